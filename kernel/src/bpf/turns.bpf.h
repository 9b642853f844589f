/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread's turns: it begins to run, stops and sleeps. What is done here without the lock, and why
 * it may be, is in ob_unlocked.h. Part of main.bpf.c.
 */
#ifndef TURNS_BPF_H
#define TURNS_BPF_H

/* A turn begins on the interrupt CPU, which the core does not know to be there: in a crowd it is
 * short, and too short for the tick to end it. */
static __always_inline void exile_begin(s32 cpu)
{
	u64 turn, at;
	s32 queued;

	if (!is_apart(cpu))
		return;
	queued = scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
	turn = ob_max(exile_lap / ((u64)(queued > 0 ? queued : 0) + 1), EXILE_LEAST);
	if (turn >= BE_SLICE) {
		OB_WRITE(shell->exile_ends, 0);
		return;
	}
	at = bpf_ktime_get_ns() + turn;
	OB_WRITE(shell->exile_ends, at);
	if (use_timers && shell->timers == SHELL_TIMERS_MADE)
		timer_set(cpu & (OB_MAX_CPUS - 1), at);
}

void BPF_STRUCT_OPS(onbeat_running, struct task_struct *p)
{
	ob_task_p t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	ob_cpu_p c;
	u64 now, slice = BE_SLICE;

	USE_ARENA();
	/* With somebody in its queue the CPU does not come to pick. */
	alarm_keep(cpu);
	exile_begin(cpu);
	if (is_ahead(p) && !(t && t->picked)) {
		__sync_fetch_and_or(&shell->bound, OB_BIT(cpu));
		return;
	}
	if (!t)
		return;
	t->ran = p->se.sum_exec_runtime;
	c = &shell->ob.cpu[cpu & 63];
	if (ob_claim(t) && !tracing && ob_is_plain(&shell->ob, c)) {
		bool round = !t->picked;

		now = round || shell->ob.engaged ? bpf_ktime_get_ns() : 0;
		if (round)
			ob_others_has(c, t, now);
		c->came = now;
		if (p->scx.slice == SCX_SLICE_INF)
			scx_bpf_task_set_slice(p, slice);
		if (ob_begin_alone(&shell->ob, c, t, round, now))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_begin(&shell->ob, cpu, t, now);
		if (t->server)
			slice = SCX_SLICE_INF;
		UNLOCK(fx);
		effects_apply(&fx);
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
	if (shell->bound & OB_BIT(cpu)) {
		__sync_fetch_and_and(&shell->bound, ~OB_BIT(cpu));
		if (t)
			bound_ran(p, t);
	}
	if (!t)
		return;
	if (!t->server)
		charge_share(p, t);
	if (shell->ob.cpu[cpu & 63].curr != t) {
		now = shell->ob.engaged ? bpf_ktime_get_ns() : 0;
		ob_stop_alone(&shell->ob.cpu[cpu & 63], t, runnable, now);
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_stop(&shell->ob, cpu, runnable ? OB_STOP_PREEMPTED : OB_STOP_SLEPT, now);
		UNLOCK(fx);
		effects_apply(&fx);
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
		OB_PUBLISH(t->running, 0U);
		return;
	}
	/* One that executes a program in place of its process takes over the number of that. */
	if (t->tid != (u32)p->pid)
		t->tid = p->pid;
	ob_beat_slept(t->beats, scx_bpf_now());
	if (ob_claim(t)) {
		ob_sleep_alone(&shell->ob, t);
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_sleep(&shell->ob, t, now);
		OB_PUBLISH(t->running, 0U);
		UNLOCK(fx);
		/* This CPU is about to pick anyway. */
		fx.kick &= ~OB_BIT(scx_bpf_task_cpu(p));
		effects_apply(&fx);
	}
}

/* A program that marks its jobs has completed one. The core is told by the pick that follows:
 * with this, too, the verifier would go through most of it. */
bool BPF_STRUCT_OPS(onbeat_yield, struct task_struct *from, struct task_struct *to)
{
	ob_task_p t = task_of(from);

	USE_ARENA();
	if (!t)
		return false;
	if (t->server) {
		if (!t->server->marks)
			return false;
		t->completes = 1;
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

#endif
