/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU asks what it is to run. Part of main.bpf.c.
 */
#ifndef DISPATCH_BPF_H
#define DISPATCH_BPF_H

/*
 * Linux 7.2 asks, when an idle CPU takes up a task in ops.dispatch, to skip the clock's update at
 * the *next* switch (local_dsq_post_enq calls wakeup_preempt), and what the task has used since the
 * last tick is then booked to nobody. A switch that changes nothing takes the request away. (After
 * a thread of another class it is needless, and seldom.)
 */
static __always_inline void settle_clock(s32 cpu)
{
	scx_bpf_kick_cpu(cpu, 0);
}

/*
 * Makes the timers: by the first that asks for work, as what they do is most of the core, and the
 * kernel goes through that for `dispatch` anyway. Who sets one sooner is told to ask (timer_start).
 */
OB_FN void timers_make(void)
{
	u32 i;

	if (__sync_val_compare_and_swap(&shell->timers, SHELL_TIMERS_NONE, SHELL_TIMERS_BEGUN) !=
	    SHELL_TIMERS_NONE)
		return;
	/* Two for each CPU. */
	for (i = OB_ZERO; i < 2 * shell->ob.nr_cpus && can_loop; i++) {
		u32 key = i / 2 + (i & 1 ? ALARM_SLOT(0) : 0);
		struct timer_slot *ts = bpf_map_lookup_elem(&timers, &key);

		if (!ts)
			break;
		if (bpf_timer_init(&ts->timer, &timers, CLOCK_MONOTONIC) ||
		    (!(i & 1) ? bpf_timer_set_callback(&ts->timer, timer_fired)
			      : bpf_timer_set_callback(&ts->timer, alarm_fired))) {
			scx_bpf_error("the kernel makes no timers");
			return;
		}
	}
	OB_PUBLISH(shell->timers, SHELL_TIMERS_MADE);
}

/* The program of `t` has completed a job. */
OB_FN void complete(ob_task_p t OB_ARG, u64 now)
{
	LOCKED(fx)
	{
		t->completes = 0;
		ob_mark(&shell->ob, t, now);
		UNLOCK(fx);
		effects_apply(&fx);
	}
}

/* What `cpu` is to run, where `pt`, or nobody, could go on: a thread of the core's, its `found`
 * then says how the kernel knows it. Global, for the verifier would follow each way through it into
 * all that comes after. */
OB_FN u64 dispatch_pick(u32 cpu, ob_task_p pt OB_ARG, u64 now)
{
	ob_task_p t = NULL;

	LOCKED(fx)
	{
		if (!use_timers && shell->leavers)
			leavers_settle(now);
		t = ob_next(&shell->ob, cpu, pt, now);
		if (t) {
			shell->found[cpu & 63].tid = t->payload;
			shell->found[cpu & 63].slice = t->server ? SCX_SLICE_INF : BE_SLICE;
		}
		UNLOCK(fx);
		effects_apply(&fx);
	}
	return (u64)t;
}

static __always_inline void dispatch(s32 cpu, struct task_struct *prev, u64 now)
{
	struct shell_found __arena *found = &shell->found[cpu & 63];
	ob_task_p pt = NULL;
	u32 try;

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		pt = task_of(prev);
	/* One that goes round the core comes back to its CPU's queue by itself. */
	if (pt && is_ahead(prev) && !OB_READ(pt->running))
		pt = NULL;
	if (pt) {
		if (!pt->server)
			charge_share(prev, pt);
		else if (pt->completes)
			complete(pt, now);
		/* It joins or leaves a reservation when it is enqueued. */
		if (OB_READ(pt->want) || is_astray(prev, cpu))
			pt = NULL;
	}
	if (ob_others_strands(&shell->ob))
		rescue(now);
	for (try = OB_ZERO; try < 8 && can_loop; try++) {
		ob_task_p t = (ob_task_p)dispatch_pick(cpu, pt, now);
		struct task_struct *p;
		bool leaving;
		u64 cpus;

		if (!t)
			return;
		if (t == pt) {
			scx_bpf_task_set_slice(prev, found->slice);
			return;
		}
		/* The kernel calls this in an RCU section: `p` stays. */
		p = scx_bpf_tid_to_task(found->tid);
		cpus = p ? cpus_of(p) : 0;
		leaving = p && scx_bpf_task_cpu(p) != cpu && is_leaving(cpu);
		if ((cpus & OB_BIT(cpu)) && !leaving) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, found->slice, 0);
			if (!prev && shell->ob.engaged)
				settle_clock(cpu);
			return;
		}
		if (leaving)
			cpu_gone(cpu, now);
		/* Affinities change, with or without (migrate_disable) a word to us. Who has gone
		 * altogether is not there any more. */
		if (cpus)
			put_back(t, cpus, now);
	}
}

void BPF_STRUCT_OPS(onbeat_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 now;

	USE_ARENA();
	now = bpf_ktime_get_ns();
	if (use_timers) {
		if (shell->timers == SHELL_TIMERS_NONE)
			timers_make();
		alarm_keep(cpu);
	} else {
		if (shell->gone)
			cpus_gone(now);
		if (shell->asked == SHELL_ASKED)
			request_settle(now);
	}
	dispatch(cpu, prev, now);
}

#endif
