/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the service asks for: a system-call program that makes, fills, moves, swaps, resizes and
 * gives back reservations, regroups CPUs, and makes the timers. One for all, as the kernel goes
 * through the core anew for each. Part of main.bpf.c.
 */
#ifndef REQUESTS_BPF_H
#define REQUESTS_BPF_H

static __noinline int reserve(struct shell_reserve *arg)
{
	ob_server_p sv = NULL, up = NULL;
	u64 now = bpf_ktime_get_ns();
	s32 id = -ENOSPC, of = arg->up;

	LOCKED(fx)
	{
		sv = shell->vacant;
		if (of >= 0 && of < shell->nr_servers)
			up = &shell->servers[of];
		if (of >= 0 && (!up || up->used != 1 || !up->members)) {
			id = -EINVAL;
		} else if (sv) {
			ob_server_p next = sv->next;

			if (ob_server_make(&shell->ob, sv, &shell->terms, up, now)) {
				shell->vacant = next;
				id = sv->id;
			} else {
				sv->used = 0;
				sv->next = next;
			}
		}
		UNLOCK(fx);
		effects_apply(&fx);
	}
	arg->id = id;
	return 0;
}

static __noinline int assign(struct shell_assign *arg)
{
	struct task_struct *p = bpf_task_from_pid(arg->tid);
	ob_task_p t;
	s32 id = arg->id;
	u64 now;

	arg->result = -ESRCH;
	if (!p)
		return 0;
	t = task_stored(p);
	if (t && !is_bound(p)) {
		u32 busy = 0, there = 0;
		u64 tid = p->scx.tid;

		now = bpf_ktime_get_ns();
		LOCKED(fx)
		{
			/* It may have ended meanwhile, and its place been given to another. */
			there = t->payload == tid;
			if (there) {
				u64 want = OB_NEVER;

				if (id >= 0 && id < shell->nr_servers &&
				    !shell->servers[id].members)
					want = ob_name(&shell->servers[id]);
				busy = ob_ask(&shell->ob, reservations(), t, want, now);
			}
			UNLOCK(fx);
			effects_apply(&fx);
			if (there)
				arg->result = busy;
		}
	}
	bpf_task_release(p);
	return 0;
}

static __noinline int place(struct shell_place *arg)
{
	s32 id = arg->id;
	ob_terms_p terms = &shell->terms;
	u64 now = bpf_ktime_get_ns();

	if (id < 0 || id >= shell->nr_servers)
		return -EINVAL;
	LOCKED(fx)
	{
		ob_server_p sv = &shell->servers[id];
		/* Members are where their groups are. */
		bool held = sv->used && !sv->domain->up;

		if (held) {
			ob_account_set(sv, terms->rate, now);
			if (arg->swap)
				ob_server_change(&shell->ob, sv, terms, now);
			else
				ob_server_take(&shell->ob, sv, terms, now);
			ob_server_go_on(&shell->ob, sv, now);
		}
		UNLOCK(fx);
		effects_apply(&fx);
		return held ? 0 : -EINVAL;
	}
	return -EBUSY;
}

static __noinline int resize(struct shell_resize *arg)
{
	s32 id = arg->id;
	u64 budget = arg->budget;

	if (id < 0 || id >= shell->nr_servers)
		return -EINVAL;
	LOCKED(fx)
	{
		ob_server_p sv = &shell->servers[id];
		bool held = sv->used == 1;

		if (held)
			ob_server_resize(&shell->ob, sv, budget);
		UNLOCK(fx);
		effects_apply(&fx);
		return held ? 0 : -EINVAL;
	}
	return -EBUSY;
}

static __noinline int regroup(struct shell_regroup *arg)
{
	u64 now = bpf_ktime_get_ns(), cpus = arg->cpus;

	LOCKED(fx)
	{
		ob_regroup(&shell->ob, cpus, now);
		UNLOCK(fx);
		effects_apply(&fx);
		return 0;
	}
	return -EBUSY;
}

static __noinline int reorder(struct shell_reorder *arg)
{
	u32 from = arg->from, order = arg->order;

	if (from >= shell->nr_tasks)
		return -EINVAL;
	LOCKED(fx)
	{
		ob_reorder(&shell->ob, &shell->tasks[from],
			   ob_min(SHELL_STEP, shell->nr_tasks - from), order);
		UNLOCK(fx);
		effects_apply(&fx);
		return 0;
	}
	return -EBUSY;
}

static __noinline int release(struct shell_release *arg)
{
	ob_server_p sv;
	s32 id = arg->id;
	u64 now = bpf_ktime_get_ns();

	arg->result = -EINVAL;
	if (id < 0 || id >= shell->nr_servers)
		return 0;
	LOCKED(fx)
	{
		s32 result = -EBUSY;

		sv = &shell->servers[id];
		sv->used = 2;
		if (OB_DRAWS(sv->draws))
			ob_draw_unmake(&shell->ob, sv, now);
		if (!sv->threads) {
			/* Sleeping does not end the job of a program that marks its jobs. */
			if (sv->state)
				ob_server_end(&shell->ob, sv, now);
			ob_account_part(sv, now);
			ob_server_dismiss(&shell->ob, sv);
			ob_group_drop(&shell->ob, sv);
			sv->used = 0;
			sv->next = shell->vacant;
			shell->vacant = sv;
			result = 0;
		}
		UNLOCK(fx);
		effects_apply(&fx);
		arg->result = result;
	}
	return 0;
}

/* Makes the timers, before the scheduler is in force. From here, as what they do is most of the
 * core, and the kernel has gone through that for the others. */
static __noinline int start(void)
{
	u32 i;

	for (i = OB_ZERO; i < TIMER_SLOTS && can_loop; i++) {
		u32 key = i;
		struct timer_slot *ts = bpf_map_lookup_elem(&timers, &key);

		if (!ts)
			return -ENOENT;
		if (i % OB_MAX_CPUS >= shell->ob.nr_cpus)
			continue;
		if (bpf_timer_init(&ts->timer, &timers, CLOCK_MONOTONIC) ||
		    bpf_timer_set_callback(&ts->timer, timer_fired))
			return -EINVAL;
	}
	return 0;
}

SEC("syscall")
int request(struct shell_request *arg)
{
	USE_ARENA();
	switch (arg->kind) {
	case SHELL_RESERVE:
		return reserve(&arg->reserve);
	case SHELL_ASSIGN:
		return assign(&arg->assign);
	case SHELL_PLACE:
		return place(&arg->place);
	case SHELL_RELEASE:
		return release(&arg->release);
	case SHELL_REGROUP:
		return regroup(&arg->regroup);
	case SHELL_REORDER:
		return reorder(&arg->reorder);
	case SHELL_RESIZE:
		return resize(&arg->resize);
	case SHELL_START:
		return use_timers ? start() : 0;
	}
	return -EINVAL;
}

#endif
