/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the service asks for: reservations are made, moved, swapped, resized and given back, threads
 * join them, CPUs are regrouped. Most of that is most of the core, through which the kernel goes
 * anew for each program. So the service's own program only has it carried out where the core is
 * reached anyway: by a timer, or by PREEMPT_RT's next pick, both of which are parts of `dispatch`.
 * Part of main.bpf.c.
 */
#ifndef REQUESTS_BPF_H
#define REQUESTS_BPF_H

static __always_inline int reserve(struct shell_reserve __arena *arg, u64 now)
{
	ob_server_p sv = shell->vacant, up = NULL, next;
	s32 of = arg->up;

	arg->id = -EINVAL;
	if (of >= 0 && of < shell->nr_servers)
		up = &shell->servers[of];
	if (of >= 0 && (!up || up->used != 1 || !up->members))
		return 0;
	arg->id = -ENOSPC;
	if (!sv)
		return 0;
	next = sv->next;
	if (ob_server_make(&shell->ob, sv, &shell->terms, up, now)) {
		shell->vacant = next;
		if (!next)
			shell->freed = NULL;
		arg->id = sv->id;
	} else {
		sv->used = 0;
		sv->next = next;
	}
	return 0;
}

static __always_inline int assign(struct shell_assign __arena *arg, u64 now)
{
	ob_task_p t = arg->task;
	s32 id = arg->id;
	u64 want = OB_NEVER;

	/* It may have ended meanwhile, and its place been given to another. */
	if (!arg->payload || t->payload != arg->payload)
		return 0;
	if (id >= 0 && id < shell->nr_servers && !shell->servers[id].members)
		want = ob_name(&shell->servers[id]);
	arg->result = ob_ask(&shell->ob, reservations(), t, want, now);
	return 0;
}

static __always_inline int place(struct shell_place __arena *arg, u64 now)
{
	s32 id = arg->id;
	ob_terms_p terms = &shell->terms;
	ob_server_p sv;

	if (id < 0 || id >= shell->nr_servers)
		return -EINVAL;
	sv = &shell->servers[id];
	/* Members are where their groups are. */
	if (!sv->used || sv->domain->up)
		return -EINVAL;
	ob_account_set(sv, terms->rate, now);
	if (arg->swap)
		ob_server_change(&shell->ob, sv, terms, now);
	else
		ob_server_take(&shell->ob, sv, terms, now);
	return 0;
}

static __always_inline int resize(struct shell_resize __arena *arg, u64 now)
{
	s32 id = arg->id;
	ob_server_p sv;

	if (id < 0 || id >= shell->nr_servers)
		return -EINVAL;
	sv = &shell->servers[id];
	if (sv->used != 1)
		return -EINVAL;
	ob_server_resize(&shell->ob, sv, arg->budget, arg->period, now);
	return 0;
}

static __always_inline int reorder(struct shell_reorder __arena *arg)
{
	u32 from = arg->from;

	if (from >= shell->nr_tasks)
		return -EINVAL;
	ob_reorder(&shell->ob, &shell->tasks[from], ob_min(SHELL_STEP, shell->nr_tasks - from),
		   arg->order);
	return 0;
}

static __always_inline int release(struct shell_release __arena *arg, u64 now)
{
	s32 id = arg->id;
	ob_server_p sv, last;

	arg->result = -EINVAL;
	if (id < 0 || id >= shell->nr_servers)
		return 0;
	sv = &shell->servers[id];
	arg->result = -EBUSY;
	if (arg->stays && sv->threads)
		return 0;
	sv->used = 2;
	if (arg->stays) {
		arg->result = 0;
		return 0;
	}
	if (sv->draws)
		ob_draw_unmake(&shell->ob, sv, now);
	if (sv->threads)
		return 0;
	/* Sleeping does not end the job of a program that marks its jobs. */
	if (sv->state)
		ob_server_end(&shell->ob, sv, now);
	ob_account_part(sv, now);
	ob_server_dismiss(&shell->ob, sv);
	ob_group_drop(&shell->ob, sv);
	sv->used = 0;
	/* Behind all others that are free: who still names it by its number is not to reach another
	 * soon. */
	sv->next = NULL;
	last = shell->freed;
	if (last)
		last->next = sv;
	else
		shell->vacant = sv;
	shell->freed = sv;
	arg->result = 0;
	return 0;
}

/* Under the lock: 0, or why it cannot be done at all. */
static __noinline int request_do(struct shell_request __arena *r, u64 now)
{
	switch (r->kind) {
	case SHELL_RESERVE:
		return reserve(&r->reserve, now);
	case SHELL_ASSIGN:
		return assign(&r->assign, now);
	case SHELL_PLACE:
		return place(&r->place, now);
	case SHELL_RELEASE:
		return release(&r->release, now);
	case SHELL_REGROUP:
		ob_regroup(&shell->ob, r->regroup.cpus, now);
		return 0;
	case SHELL_REORDER:
		return reorder(&r->reorder);
	case SHELL_RESIZE:
		return resize(&r->resize, now);
	}
	return -EINVAL;
}

/* Carries the service's request out, if there is one and nobody else does. */
OB_FN void request_settle(u64 now)
{
	struct shell_request __arena *r = &shell->request;
	s32 result = -EBUSY;

	if (__sync_val_compare_and_swap(&shell->asked, SHELL_ASKED, SHELL_TAKEN) != SHELL_ASKED)
		return;
	LOCKED(fx)
	{
		result = request_do(r, now);
		/* From here, as there is little stack left beneath it. */
		if (r->kind == SHELL_PLACE && !result)
			ob_server_go_on(&shell->ob, &shell->servers[r->place.id], now);
		UNLOCK(fx);
		effects_apply(&fx);
	}
	r->result = result;
	OB_PUBLISH(shell->asked, SHELL_ANSWERED);
}

/* Looks up the thread that is to join a reservation. Whether it can. */
static __always_inline bool assign_find(struct shell_assign __arena *arg)
{
	struct task_struct *p = bpf_task_from_pid(arg->tid);
	ob_task_p t;

	arg->result = -ESRCH;
	if (!p)
		return false;
	t = is_bound(p) ? NULL : task_stored(p);
	arg->task = t;
	arg->payload = p->scx.tid;
	bpf_task_release(p);
	return !!t;
}

/* The service's: sees to it that shell->request is carried out soon. */
SEC("syscall")
int ask(void *ctx)
{
	struct shell_request __arena *r = &shell->request;

	USE_ARENA();
	if (shell->asked == SHELL_NEW) {
		if (r->kind == SHELL_CLOCK) {
			shell->clock = scx_bpf_now();
			r->result = 0;
			OB_PUBLISH(shell->asked, SHELL_ANSWERED);
			return 0;
		}
		if (r->kind == SHELL_ASSIGN && r->assign.tid && !assign_find(&r->assign)) {
			OB_PUBLISH(shell->asked, SHELL_ANSWERED);
			return 0;
		}
		/* Who sets the timer meanwhile sees it, or this does. */
		OB_SWAP(shell->asked, SHELL_ASKED);
	}
	if (use_timers)
		alarm_set(bpf_ktime_get_ns());
	return 0;
}

#endif
