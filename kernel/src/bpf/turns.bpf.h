/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread's turns: it wakes, waits, is given a CPU, runs, stops and sleeps. Part of main.bpf.c.
 */
#ifndef TURNS_BPF_H
#define TURNS_BPF_H

/* Of the kernel's headers, which are not in its type information: the whole process ends. */
#define SIGNAL_GROUP_EXIT 0x00000004

/* Joins or leaves a reservation as asked by `request`; the thread is neither queued nor running. */
static __always_inline void thread_join(ob_task_p t, u64 now)
{
	u64 want = t->want;
	ob_server_p sv = NULL;

	if (want != OB_NEVER && (want & 0xffffffff) - 1 < shell->nr_servers) {
		sv = &shell->servers[(u32)want - 1];
		/* Its slot may have been given to somebody else. */
		if (sv->used != 1 || reservation_name(sv) != want)
			sv = NULL;
	}
	ob_unqueue(&shell->ob, t);
	ob_attach(&shell->ob, t, sv, now);
	/* Last: as long as it stands nobody touches the thread without the lock (is_unreserved). */
	full_barrier();
	t->want = 0;
}

/* Whether it holds no reservation and is not about to: then what is the thread's own may be touched
 * without the lock by the CPU that has it. `want` is looked at first, for it is cleared last. */
static __always_inline bool is_unreserved(ob_task_p t)
{
	if (*(volatile u64 __arena *)&t->want)
		return false;
	barrier();
	return !*(ob_server_p volatile __arena *)&t->server && !*(volatile u8 __arena *)&t->away;
}

/* Best effort pays for what it ran since this was called last, or since it began to run. */
static __always_inline void charge_share(struct task_struct *p, ob_task_p t)
{
	u64 ran = p->se.sum_exec_runtime;

	ob_fair_charge(t, ran - t->ran);
	t->ran = ran;
}

/* Whether all goes by fair sharing, and no trace wants to know. */
static __always_inline bool unreserved(void)
{
	return !shell->ob.engaged && !tracing;
}

/* Whether who runs on `cpu`, of best effort, is known to sleep soon. */
static __always_inline bool sleeps_soon(s32 cpu)
{
	ob_task_p t = shell->ob.cpu[cpu & 63].other;

	return t && t->burst <= OB_WAKE_GRAIN;
}

/* Whether `p`, which wakes, may have `here` when its waker sleeps, which will be at once. */
static __always_inline bool is_free(const struct task_struct *p, s32 here, u64 wake_flags)
{
	return (wake_flags & SCX_WAKE_SYNC) && unreserved() && !shell->ob.best_effort.root &&
	       (cpus_of(p) & OB_BIT(here)) && !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | here);
}

s32 BPF_STRUCT_OPS(onbeat_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	ob_task_p t = task_of(p);
	bool idle = false;
	s32 cpu, here;

	USE_ARENA();
	/* Reservations are placed by the core. */
	if (t && (!is_unreserved(t) || t->home))
		return prev_cpu;
	if (t)
		t->told = !bpf_in_interrupt();
	here = bpf_get_smp_processor_id();
	/* That the waker is about to sleep is a hint: it may hold a reservation, or go on for all
	 * of its turn while another CPU is idle. */
	if (shell->ob.engaged || !sleeps_soon(here))
		wake_flags &= ~(u64)SCX_WAKE_SYNC;
	/* If nobody waits for a CPU its place is free in a moment. Who ran there last needs no
	 * search for an idle one either. */
	if (prev_cpu == here && is_free(p, here, wake_flags)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, 0);
		return here;
	}
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (!idle && is_free(p, here, wake_flags)) {
		cpu = here;
		idle = true;
	}
	if (idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, 0);
	return cpu;
}

/* The core does not know of it: any CPU may have it. Who runs a reservation looks for others only
 * when told to. */
static __always_inline void to_anybody(struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, BE_SLICE, enq_flags);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Whether `t`, which wakes and may run on `cpu` only, need not go through the core: nobody else
 * waits, and that CPU is idle, or who runs there is known to sleep soon. */
static __always_inline bool is_next(ob_task_p t, s32 cpu)
{
	ob_task_p other = shell->ob.cpu[cpu & 63].other;

	if (!unreserved() || !is_unreserved(t) || t->home || shell->ob.best_effort.root ||
	    scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
		return false;
	return other ? t->told && other->burst <= OB_WAKE_GRAIN : !!(shell->ob.idle & OB_BIT(cpu));
}

void BPF_STRUCT_OPS(onbeat_enqueue, struct task_struct *p, u64 enq_flags)
{
	ob_task_p t = task_of(p);
	u64 now, cpus;
	bool dying;

	USE_ARENA();
	/* Kernel threads of one CPU serve interrupts and the like: at once, but after each other.
	 */
	if (is_bound(p)) {
		if (!scx_bpf_task_running(p) && !(shell->bound & OB_BIT(scx_bpf_task_cpu(p))))
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, enq_flags);
		return;
	}
	if (!t) {
		to_anybody(p, enq_flags);
		return;
	}
	/* Then select_cpu is not asked. */
	if (p->nr_cpus_allowed == 1 && (enq_flags & SCX_ENQ_WAKEUP)) {
		t->told = !bpf_in_interrupt();
		if (is_next(t, scx_bpf_task_cpu(p))) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, enq_flags);
			return;
		}
	}
	now = bpf_ktime_get_ns();
	cpus = cpus_of(p);
	dying = p->signal->flags & SIGNAL_GROUP_EXIT;
	LOCKED(fx)
	{
		/* An unlocked look may have told `dequeue` that it was in no queue. */
		if (t->waiting)
			ob_unqueue(&shell->ob, t);
		t->picked = 0;
		t->cpus = cpus;
		/* Who has been killed only has to end: of a budget that is used up it would wait
		 * for turns. */
		if (dying && (t->server || t->home))
			t->want = OB_NEVER;
		if (t->want)
			thread_join(t, now);
		ob_ready(&shell->ob, t, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
		return;
	}
	to_anybody(p, enq_flags);
}

void BPF_STRUCT_OPS(onbeat_dequeue, struct task_struct *p, u64 deq_flags)
{
	ob_task_p t = task_of(p);

	USE_ARENA();
	/* From Linux 7.1 on also called for every thread that goes to a CPU, `picked` then. */
	if (!t || !t->waiting)
		return;
	LOCKED(fx)
	{
		ob_unqueue(&shell->ob, t);
		UNLOCK(fx);
		effects_apply(&fx, bpf_ktime_get_ns());
	}
}

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
 * Between a CPU's leaving cpu_active_mask and ops.cpu_offline the kernel waits for a grace period.
 * What is dispatched to the CPU meanwhile from another's run queue lands in the global queue, which
 * a busy machine does not look at.
 */
extern const void __cpu_active_mask __ksym;

static __always_inline bool is_leaving(s32 cpu)
{
	u64 active = 0;

	if (bpf_probe_read_kernel(&active, sizeof(active), &__cpu_active_mask))
		return false;
	return !(active & OB_BIT(cpu));
}

static __always_inline void cpu_change(s32 cpu, u32 on, u64 now)
{
	LOCKED(fx)
	{
		ob_online(&shell->ob, cpu, on, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

/* The core learns that `cpu` goes. The service will place reservations anew, but it may itself be
 * waiting for a thread of theirs that may run nowhere else. */
OB_FN void cpu_gone(s32 cpu, u64 now)
{
	u32 i;

	if (!(shell->ob.online & OB_BIT(cpu)))
		return;
	cpu_change(cpu, 0, now);
	for (i = OB_ZERO; i < shell->nr_servers && can_loop; i++) {
		if (shell->servers[i].used != 1)
			continue;
		LOCKED(fx)
		{
			ob_server_strand(&shell->ob, &shell->servers[i], now);
			UNLOCK(fx);
			effects_apply(&fx, now);
		}
	}
}

/* `t`, taken from its queue for a CPU that it may not go to (any more), waits again. */
OB_FN void put_back(ob_task_p t OB_ARG, u64 cpus, u64 now)
{
	LOCKED(fx)
	{
		/* Unless it has been enqueued or has left meanwhile. */
		if (t->picked) {
			t->cpus = cpus;
			ob_ready(&shell->ob, t, now);
		}
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

/*
 * A CPU that is going off line is not asked for work any more, but the kernel waits for its run
 * queue to empty: what may run nowhere else is put into its own queue from here, and moved away by
 * the kernel when that CPU picks it.
 */
OB_FN void rescue(u64 now)
{
	u32 i;

	for (i = OB_ZERO; i < 8 && can_loop; i++) {
		struct task_struct *p;
		ob_task_p t = NULL;

		LOCKED(fx)
		{
			t = ob_fair_stranded(&shell->ob);
			if (t) {
				ob_fair_remove(&shell->ob, t, now);
				t->picked = 1;
			}
			UNLOCK(fx);
			effects_apply(&fx, now);
		}
		if (!t)
			return;
		bpf_rcu_read_lock();
		p = scx_bpf_tid_to_task(t->payload);
		if (p)
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | scx_bpf_task_cpu(p), BE_SLICE, 0);
		bpf_rcu_read_unlock();
	}
}

/* What `cpu` is to run, where `pt`, or nobody, could go on: a thread of the core's, its `found`
 * then says how the kernel knows it. Global, for the verifier would follow each way through it into
 * all that comes after. */
OB_FN u64 dispatch_pick(u32 cpu, ob_task_p pt OB_ARG, u64 now)
{
	ob_cpu_p c = &shell->ob.cpu[cpu & 63];
	ob_task_p t = NULL;

	LOCKED(fx)
	{
		if (shell->ob.alarm_at <= now) {
			ob_alarm(&shell->ob, now);
			shell->alarm = OB_NEVER;
		}
		if (!shell->ob.engaged) {
			t = (ob_task_p)ob_pick_unreserved(&shell->ob, cpu, pt, now);
		} else {
			/* PREEMPT_RT's clock, and the tick, only bring us here. */
			if (c->timer <= now)
				ob_tick(&shell->ob, cpu, now);
			t = (ob_task_p)ob_pick(&shell->ob, cpu, pt, now);
		}
		if (t) {
			shell->found[cpu & 63].tid = t->payload;
			shell->found[cpu & 63].slice = t->server ? SCX_SLICE_INF : BE_SLICE;
		}
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
	return (u64)t;
}

void BPF_STRUCT_OPS(onbeat_dispatch, s32 cpu, struct task_struct *prev)
{
	struct shell_found __arena *found = &shell->found[cpu & 63];
	ob_task_p pt = NULL;
	u64 now;
	u32 try;

	USE_ARENA();
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && !is_bound(prev))
		pt = task_of(prev);
	if (pt && !pt->server)
		charge_share(prev, pt);
	/* It joins or leaves a reservation when it is enqueued. */
	if (pt && pt->want)
		pt = NULL;
	now = bpf_ktime_get_ns();
	if (ob_fair_strands(&shell->ob))
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
		bpf_rcu_read_lock();
		p = scx_bpf_tid_to_task(found->tid);
		cpus = p ? cpus_of(p) : 0;
		leaving = p && scx_bpf_task_cpu(p) != cpu && is_leaving(cpu);
		if ((cpus & OB_BIT(cpu)) && !leaving) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, found->slice, 0);
			bpf_rcu_read_unlock();
			if (!prev && shell->ob.engaged)
				settle_clock(cpu);
			return;
		}
		bpf_rcu_read_unlock();
		if (leaving)
			cpu_gone(cpu, now);
		/* Affinities change, with or without (migrate_disable) a word to us. Who has gone
		 * altogether is not there any more. */
		if (cpus)
			put_back(t, cpus, now);
	}
}

void BPF_STRUCT_OPS(onbeat_running, struct task_struct *p)
{
	ob_task_p t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	ob_cpu_p c;
	u64 now, slice = BE_SLICE;

	USE_ARENA();
	if (is_bound(p)) {
		__sync_fetch_and_or(&shell->bound, OB_BIT(cpu));
		return;
	}
	if (!t)
		return;
	t->ran = p->se.sum_exec_runtime;
	c = &shell->ob.cpu[cpu & 63];
	t->running = 1;
	/* `request` looks at `running` after it has set `want`, this the other way round. */
	full_barrier();
	if (is_unreserved(t) && !tracing && !c->share && !c->relief &&
	    !ob_fair_crowded(&shell->ob)) {
		ob_p ob = &shell->ob;

		/* Nothing here needs the lock: the fields are this CPU's and this thread's own. */
		if (!t->picked) {
			ob_fair_has(c, t, bpf_ktime_get_ns());
			/* It went round the core; meanwhile somebody else may have come. */
			if (ob_share_waiting(ob, OB_BIT(cpu)))
				scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		}
		t->awake = 1;
		t->picked = 0;
		t->cpu = cpu;
		if (p->scx.slice == SCX_SLICE_INF)
			scx_bpf_task_set_slice(p, slice);
		ob_fair_begin(ob, c, t);
		if (c->key == OB_KEY_IDLE) {
			c->key = OB_KEY_BE;
			__sync_fetch_and_and(&ob->idle, ~OB_BIT(cpu));
		}
		/* A reservation came while this thread was on its way to what was an idle CPU. */
		if (ob->engaged && c->key > OB_KEY_SHARE && c->domain->active.root &&
		    (c->domain->active.root->sub_mask & OB_BIT(cpu)))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		if (t->want)
			thread_join(t, now);
		if (!t->awake)
			ob_ready(&shell->ob, t, now);
		ob_unqueue(&shell->ob, t);
		ob_run(&shell->ob, cpu, t, now);
		if (t->server) {
			ob_server_requeue(&shell->ob, t->server);
			slice = SCX_SLICE_INF;
		}
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
	/* It may have joined or left a reservation on its way here. */
	if ((p->scx.slice == SCX_SLICE_INF) != (slice == SCX_SLICE_INF))
		scx_bpf_task_set_slice(p, slice);
}

void BPF_STRUCT_OPS(onbeat_stopping, struct task_struct *p, bool runnable)
{
	ob_task_p t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now;

	USE_ARENA();
	if (shell->bound & OB_BIT(cpu))
		__sync_fetch_and_and(&shell->bound, ~OB_BIT(cpu));
	if (!t)
		return;
	if (!t->server)
		charge_share(p, t);
	if (shell->ob.cpu[cpu & 63].curr != t) {
		ob_fair_leaves(&shell->ob.cpu[cpu & 63], t);
		/* `request` keeps off until it is asleep. */
		if (runnable)
			t->running = 0;
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_stop(&shell->ob, cpu, runnable ? OB_STOP_PREEMPTED : OB_STOP_SLEPT, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

void BPF_STRUCT_OPS(onbeat_quiescent, struct task_struct *p, u64 deq_flags)
{
	ob_task_p t = task_of(p);
	u64 now;

	USE_ARENA();
	if (!t)
		return;
	if (!(deq_flags & SCX_DEQ_SLEEP)) {
		t->running = 0;
		return;
	}
	/* Before `awake` is touched without the lock `request` must keep off. */
	t->running = 1;
	full_barrier();
	if (is_unreserved(t)) {
		t->awake = 0;
		ob_fair_slept(&shell->ob, t);
		full_barrier();
		t->running = 0;
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_sleep(&shell->ob, t, now);
		t->running = 0;
		UNLOCK(fx);
		/* This CPU is about to pick anyway. */
		fx.kick &= ~OB_BIT(scx_bpf_task_cpu(p));
		effects_apply(&fx, now);
	}
}

bool BPF_STRUCT_OPS(onbeat_yield, struct task_struct *from, struct task_struct *to)
{
	ob_task_p t = task_of(from);
	u64 now;

	USE_ARENA();
	if (!t)
		return false;
	if (!t->server) {
		scx_bpf_task_set_slice(from, 0);
		return false;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_mark(&shell->ob, t, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
	return false;
}

#endif
