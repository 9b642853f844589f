/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the service asks for: a system-call program that makes, fills, moves and gives back
 * reservations. One for all, as the kernel goes through the core anew for each. Part of main.bpf.c.
 */
#ifndef REQUESTS_BPF_H
#define REQUESTS_BPF_H

/* Splits `sv`, which is not split and at the place of the first leg, by the loader's plan. */
static __always_inline void split(ob_server_p sv)
{
	struct shell_plan __arena *plan = &shell->plan;
	u32 i;

	sv->window = plan->window;
	sv->postponed = !!plan->postponed;
	for (i = OB_ZERO; i < OB_MAX_LEGS && i < plan->legs && can_loop; i++) {
		struct ob_leg __arena *leg = &sv->plan[i & (OB_MAX_LEGS - 1)];

		leg->cpus = plan->leg[i & (OB_MAX_LEGS - 1)].cpus;
		leg->budget = plan->leg[i & (OB_MAX_LEGS - 1)].budget;
		leg->domain = plan->leg[i & (OB_MAX_LEGS - 1)].domain & (OB_MAX_DOMAINS - 1);
	}
	sv->legs = i;
}

static __always_inline int reserve(struct shell_reserve *arg)
{
	ob_server_p sv = NULL;
	u32 i, id = OB_MAX_DOMAINS;
	u64 domain = arg->domain, cpus = arg->cpus, budget = arg->budget, period = arg->period;
	u64 deadline = arg->deadline;
	u32 kind = arg->kind, order = arg->order, marks = arg->marks, account = arg->account;
	u64 rate = arg->rate, now = bpf_ktime_get_ns();

	arg->id = -ENOSPC;
	LOCKED(fx)
	{
		for (i = OB_ZERO; i < shell->nr_servers && can_loop; i++) {
			sv = &shell->servers[i];
			if (!sv->used)
				break;
		}
		if (i < shell->nr_servers) {
			sv->used = 1;
			sv->generation++;
			sv->id = i;
			sv->head = NULL;
			sv->tail = NULL;
			sv->threads = 0;
			sv->awake = 0;
			sv->waiting = 0;
			sv->running = 0;
			sv->pinned = 0;
			sv->active = 0;
			sv->throttled = 0;
			sv->urgent = 0;
			sv->domain = &shell->ob.domain[domain & 63];
			sv->cpus = cpus & sv->domain->cpus;
			sv->budget = budget;
			sv->period = period;
			sv->deadline = deadline;
			sv->kind = kind;
			sv->order = order;
			sv->marks = marks;
			sv->e = 0;
			sv->s = 0;
			sv->has_saved = 0;
			sv->starved = 0;
			sv->unbegun = 0;
			sv->spent = 0;
			sv->late = 0;
			sv->soon = 0;
			sv->wont = 0;
			sv->miss = 0;
			sv->leg = 0;
			sv->cycle = 0;
			sv->shift = 0;
			split(sv);
			ob_account_join(&shell->ob, sv, account, rate, now);
			ob_server_admit(&shell->ob, sv);
			sv->jobs = 0;
			sv->misses = 0;
			sv->tardiness_max = 0;
			sv->tardiness_sum = 0;
			sv->consumed = 0;
			sv->exhaustions = 0;
			sv->donated = 0;
			sv->received = 0;
			sv->begun = 0;
			sv->owed_end = 0;
			sv->owed_left = 0;
			sv->owed_from = 0;
			sv->owed = 0;
			sv->owed_late = 0;
			sv->owed_tardiness_max = 0;
			id = i;
		}
		UNLOCK(fx);
		effects_apply(&fx, now);
		if (i < shell->nr_servers)
			arg->id = id;
	}
	return 0;
}

static __always_inline int assign(struct shell_assign *arg)
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
		u32 queued = 0, busy = 0, there = 0;
		u64 tid = p->scx.tid;

		now = bpf_ktime_get_ns();
		LOCKED(fx)
		{
			/* It may have ended meanwhile, and its place been given to another. */
			there = t->payload == tid;
			if (there) {
				t->want = id >= 0 && id < shell->nr_servers
					      ? reservation_name(&shell->servers[id])
					      : OB_NEVER;
				full_barrier();
				busy = t->running || t->picked;
				queued = t->waiting;
				if (!busy) {
					thread_join(t, now);
					if (queued)
						ob_ready(&shell->ob, t, now);
				}
			}
			UNLOCK(fx);
			effects_apply(&fx, now);
			if (there)
				arg->result = busy;
		}
	}
	bpf_task_release(p);
	return 0;
}

static __always_inline int place(struct shell_place *arg)
{
	s32 id = arg->id;
	u64 cpus = arg->cpus, domain = arg->domain, rate = arg->rate, now = bpf_ktime_get_ns();

	if (id < 0 || id >= shell->nr_servers)
		return -EINVAL;
	LOCKED(fx)
	{
		ob_account_set(&shell->servers[id], rate, now);
		ob_server_place(&shell->ob, &shell->servers[id], domain, cpus, now);
		split(&shell->servers[id]);
		if (shell->servers[id].legs)
			ob_server_split(&shell->ob, &shell->servers[id], now);
		UNLOCK(fx);
		effects_apply(&fx, now);
		return 0;
	}
	return -EBUSY;
}

static __always_inline int release(struct shell_release *arg)
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
		if (!sv->threads) {
			/* Sleeping does not end the job of a program that marks its jobs. */
			if (sv->active)
				ob_server_end(&shell->ob, sv, now);
			ob_account_part(sv, now);
			ob_server_dismiss(&shell->ob, sv);
			sv->used = 0;
			result = 0;
		}
		UNLOCK(fx);
		effects_apply(&fx, bpf_ktime_get_ns());
		arg->result = result;
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
	}
	return -EINVAL;
}

#endif
