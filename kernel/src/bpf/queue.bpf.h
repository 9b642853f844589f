/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread wakes and waits, or is left without a CPU that it may run on. Part of main.bpf.c.
 */
#ifndef QUEUE_BPF_H
#define QUEUE_BPF_H

/* Best effort pays for what it ran since this was called last, or since it began to run. */
static __always_inline void charge_share(struct task_struct *p, ob_task_p t)
{
	u64 ran = p->se.sum_exec_runtime;

	ob_among_ran(&shell->ob, t, ran - t->ran);
	t->ran = ran;
}

/* Kernel threads of one CPU serve interrupts and the like: at once, but after each other. What
 * users' packets or timers make them do is no end of work, so that is for one part in BOUND_PARTS
 * of the time, BOUND_BURST ns in one go; then they are best effort. (A turn ends with a tick, up to
 * 4 ms.) Not so where the core serves nobody, as on a CPU that goes. */
#define BOUND_PARTS 50
#define BOUND_BURST 2000000ULL

static __always_inline bool is_modest(ob_task_p t, s32 cpu)
{
	return !t || !(OB_READ(shell->ob.online) & OB_BIT(cpu)) ||
	       t->ahead < bpf_ktime_get_ns() + BOUND_PARTS * BOUND_BURST;
}

/* It has had so much of that. */
static __always_inline void bound_ran(const struct task_struct *p, ob_task_p t)
{
	u64 now = bpf_ktime_get_ns();

	t->ahead = ob_max(t->ahead, now) + BOUND_PARTS * (p->se.sum_exec_runtime - t->ran);
}

/*
 * `p` wakes: a kernel's thread has no rhythm of its own. Told by select_cpu, or by enqueue where
 * that is not asked; the kernel lets one of them at a time deal with a thread. The clock is the run
 * queues', which costs least.
 */
OB_FN void beat_woke(ob_task_p t OB_ARG, u64 ran)
{
	if (!t->kernel)
		ob_beat_woke(t->beats, scx_bpf_now(), ran);
}

/* Whether `p`, which wakes, may have `here` when its waker sleeps, which will be at once. */
static __always_inline bool is_free(const struct task_struct *p, s32 here, u64 wake_flags)
{
	return (wake_flags & SCX_WAKE_SYNC) && !tracing && ob_is_quiet(&shell->ob) &&
	       (cpus_of(p) & OB_BIT(here)) && !is_astray(p, here) &&
	       !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | here);
}

s32 BPF_STRUCT_OPS(onbeat_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	ob_task_p t = task_of(p);
	bool idle = false;
	s32 cpu, here;

	USE_ARENA();
	if (t && (wake_flags & SCX_WAKE_TTWU))
		beat_woke(t, p->se.sum_exec_runtime);
	/* Reservations are placed by the core. */
	if (t && (!ob_is_unreserved(t) || t->home))
		return prev_cpu;
	here = bpf_get_smp_processor_id();
	if (t)
		t->told = bpf_in_interrupt() ? 0 : 1 + (here & 63);
	/* That the waker is about to sleep is a hint: it may hold a reservation, or go on for all
	 * of its turn while another CPU is idle. */
	if (shell->ob.engaged || !ob_sleeps_soon(OB_READ(shell->ob.cpu[here & 63].other)))
		wake_flags &= ~(u64)SCX_WAKE_SYNC;
	/* If nobody waits for a CPU its place is free in a moment. Who ran there last needs no
	 * search for an idle one either. */
	if (prev_cpu == here && is_free(p, here, wake_flags)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, 0);
		return here;
	}
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (idle && is_astray(p, cpu)) {
		cpu = prev_cpu;
		idle = false;
	}
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

/* Whether `t`, which wakes and may run on `cpu` only, need not go through the core. */
static __always_inline bool is_next(ob_task_p t, s32 cpu)
{
	return !tracing && ob_is_next(&shell->ob, &shell->ob.cpu[cpu & 63], t) &&
	       !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
}

void BPF_STRUCT_OPS(onbeat_enqueue, struct task_struct *p, u64 enq_flags)
{
	ob_task_p t = task_of(p);
	u64 now, cpus;

	USE_ARENA();
	/* Until the service ends nobody is rid of the scheduler: that took minutes in a crowd. Whom
	 * the core has picked, for a CPU that it may not have any more, goes through it once more.
	 */
	if (((is_bound(p) && is_modest(t, scx_bpf_task_cpu(p))) || is_ending(p)) &&
	    !(t && OB_READ(t->picked))) {
		if (!scx_bpf_task_running(p) && !(shell->bound & OB_BIT(scx_bpf_task_cpu(p))))
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, enq_flags);
		/* Nobody else is there: the CPU has picked nobody before it comes here. */
		if (enq_flags & SCX_ENQ_LAST)
			scx_bpf_kick_cpu(scx_bpf_task_cpu(p), 0);
		return;
	}
	if (!t) {
		to_anybody(p, enq_flags);
		return;
	}
	if ((enq_flags & (SCX_ENQ_WAKEUP | SCX_ENQ_CPU_SELECTED)) == SCX_ENQ_WAKEUP)
		beat_woke(t, p->se.sum_exec_runtime);
	if (is_exiled(p, t)) {
		t->cpus = cpus_of(p);
		/* Only when it wakes: while it goes on and on the crowd has turns, too. */
		if (p->tgid == service && (enq_flags & SCX_ENQ_WAKEUP))
			enq_flags |= SCX_ENQ_HEAD;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, enq_flags);
		if (enq_flags & SCX_ENQ_LAST)
			scx_bpf_kick_cpu(interrupt_cpu, 0);
		return;
	}
	/* Then select_cpu is not asked. */
	if (p->nr_cpus_allowed == 1 && (enq_flags & SCX_ENQ_WAKEUP) && !is_bound(p)) {
		t->told = bpf_in_interrupt() ? 0 : 1 + (bpf_get_smp_processor_id() & 63);
		if (is_next(t, scx_bpf_task_cpu(p))) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, enq_flags);
			return;
		}
	}
	now = bpf_ktime_get_ns();
	cpus = cpus_of(p);
	/* One that executes a program in place of its process takes over the number of that. */
	if (t->tid != (u32)p->pid)
		t->tid = p->pid;
	LOCKED(fx)
	{
		if (t->server || t->home) {
			/* Who has been killed only has to end: of a budget that is used up it would
			 * wait for turns. */
			if (p->signal->flags & SIGNAL_GROUP_EXIT)
				t->want = OB_NEVER;
			/* A thread of another class has come between. */
			if (t->completes) {
				t->completes = 0;
				ob_mark(&shell->ob, t, now);
			}
		}
		t->may = p->cpus_mask.bits[0];
		ob_enqueue(&shell->ob, reservations(), t, cpus, now);
		UNLOCK(fx);
		effects_apply(&fx);
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
		effects_apply(&fx);
	}
}

static __always_inline void cpu_change(s32 cpu, u32 on, u64 now)
{
	LOCKED(fx)
	{
		ob_online(&shell->ob, cpu, on, now);
		UNLOCK(fx);
		effects_apply(&fx);
	}
}

/* The core learns that `cpu` goes. The service will place reservations anew, but it may itself be
 * waiting for a thread of theirs that may run nowhere else. */
OB_FN void cpu_gone(s32 cpu, u64 now)
{
	u32 i;

	if (!(shell->ob.online & OB_BIT(cpu)))
		return;
	/* The interrupt CPU serves alone until another comes. */
	if (interrupt_cpu >= 0 && shell->ob.online == OB_BIT(cpu)) {
		if (cpu == interrupt_cpu)
			return;
		cpu_change(interrupt_cpu, 1, now);
	}
	cpu_change(cpu, 0, now);
	for (i = OB_ZERO; i < shell->nr_servers && can_loop; i++) {
		if (shell->servers[i].used != 1)
			continue;
		LOCKED(fx)
		{
			ob_server_strand(&shell->ob, &shell->servers[i], now);
			UNLOCK(fx);
			effects_apply(&fx);
		}
	}
	/* It is still there, with somebody whom it was to serve. */
	if (interrupt_cpu >= 0 && cpu == interrupt_cpu)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* The core learns of those that ops.cpu_offline was told of. */
OB_FN void cpus_gone(u64 now)
{
	u64 gone = shell->gone;

	while (gone && can_loop) {
		u32 cpu = ob_lowest(gone);

		gone &= gone - 1;
		__sync_fetch_and_and(&shell->gone, ~OB_BIT(cpu));
		cpu_gone(cpu, now);
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
		effects_apply(&fx);
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
			t = ob_others_stranded(&shell->ob);
			if (t) {
				ob_others_remove(&shell->ob, t, now);
				t->picked = 1;
			}
			UNLOCK(fx);
			effects_apply(&fx);
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

/* `t` is no more. */
static __always_inline void slot_free(ob_task_p t)
{
	ob_forget(&shell->ob, t);
	t->next = shell->free;
	shell->free = t;
}

/* `t` has left this class, if it has not come back meanwhile: its job is done for us. */
OB_FN void leaver_settle(ob_task_p t OB_ARG, u64 now)
{
	t->listed = 0;
	if (t->leaves) {
		t->leaves = 0;
		if (shell->ob.cpu[t->cpu & 63].curr == t)
			ob_stop(&shell->ob, t->cpu, OB_STOP_SLEPT, now);
		ob_sleep(&shell->ob, t, now);
		OB_PUBLISH(t->running, 0U);
	}
	if (t->gone)
		slot_free(t);
}

/* Under the lock: sees to those that have left this class. */
OB_FN void leavers_settle(u64 now)
{
	while (shell->leavers && can_loop) {
		ob_task_p t = shell->leavers;

		shell->leavers = t->leaver;
		leaver_settle(t, now);
	}
}

#endif
