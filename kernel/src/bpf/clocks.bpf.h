/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens by the clock: budgets that end, replenishments, and the tick as a net under the
 * timers. Part of main.bpf.c.
 */
#ifndef CLOCKS_BPF_H
#define CLOCKS_BPF_H

/*
 * A CPU on its way off line idles now and then with a kernel thread in its queue that its parking
 * waits for (seen on Linux 7.2: nobody had told it to pick again). Until it is gone it is told to
 * with every tick of another.
 */
static __always_inline void wake_leaving(s32 cpu)
{
	u32 count = shell->ob.nr_cpus;
	u64 all = count < OB_MAX_CPUS ? OB_BIT(count) - 1 : ~0ULL, online = shell->ob.online;

	if (interrupt_cpu >= 0 && !is_leaving(interrupt_cpu))
		all &= ~OB_BIT(interrupt_cpu);
	if ((all & ~online) && (online & -online) == OB_BIT(cpu))
		effects_kick(all & ~online);
}

/*
 * Whether somebody waits who should run here: in the CPU's own queue, which a reservation that goes
 * on and on does not look at, or in the core, where a reservation was sent to a CPU that another
 * class then took. The first tick to see it is soon enough: both are rare.
 */
static __always_inline bool is_passed_over(s32 cpu)
{
	ob_cpu_p c = &shell->ob.cpu[cpu & 63];

	if (shell->ob.engaged && scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
		return true;
	return ob_is_passed_over(c);
}

/* A net under the timers: where one is late the CPU picks again, which sees to it. So does a thread
 * that was asked to join or leave a reservation while it runs, which may run on without a switch.
 */
void BPF_STRUCT_OPS(onbeat_tick, struct task_struct *p)
{
	ob_task_p t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	ob_cpu_p c = &shell->ob.cpu[cpu & 63];
	u64 due;

	USE_ARENA();
	wake_leaving(cpu);
	/* The timer for it could not be set. */
	if (use_timers && (shell->gone || shell->leavers))
		alarm_set(bpf_ktime_get_ns());
	due = ob_min(c->curr || c->other ? c->timer : OB_NEVER, shell->ob.alarm_at);
	if ((t && OB_READ(t->want) && !is_bound(p)) || is_passed_over(cpu) ||
	    (due != OB_NEVER && due <= bpf_ktime_get_ns()))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* The timer of a CPU. */
static int timer_fired(void *map, u32 *slot, struct timer_slot *ts)
{
	u64 now = bpf_ktime_get_ns(), at, next = OB_NEVER;
	u32 cpu = *slot;

	USE_ARENA();
	at = shell->armed[cpu & (TIMER_SLOTS - 1)];
	/* What others set from here on stays. */
	OB_SWAP(shell->armed[cpu & (TIMER_SLOTS - 1)], OB_NEVER);
	LOCKED(fx)
	{
		if (shell->ob.cpu[cpu & 63].timer <= now) {
			ob_tick(&shell->ob, cpu, now);
			shell->ticks++;
			if (now > at && now - at > shell->late_max)
				shell->late_max = now - at;
		}
		if (!(shell->ob.kick & OB_BIT(cpu)))
			next = shell->ob.cpu[cpu & 63].timer;
		UNLOCK(fx);
		effects_apply(&fx);
	}
	next = ob_min(next, exile_tick(cpu, now));
	if (next != OB_NEVER)
		timer_set(cpu, next);
	if (measuring)
		__sync_fetch_and_add(&shell->ticks_ns, bpf_ktime_get_ns() - now);
	return 0;
}

/* What the core waits for has come, perhaps. */
OB_FN void alarm_settle(u64 now)
{
	LOCKED(fx)
	{
		leavers_settle(now);
		ob_alarm(&shell->ob, now);
		UNLOCK(fx);
		effects_apply(&fx);
	}
}

/* The timer with which a CPU keeps the core's alarm. */
static int alarm_fired(void *map, u32 *slot, struct timer_slot *ts)
{
	u64 now = bpf_ktime_get_ns();

	USE_ARENA();
	keeper_judge(*slot, shell->armed[*slot & (TIMER_SLOTS - 1)], now);
	/* What others set from here on stays. */
	OB_SWAP(shell->armed[*slot & (TIMER_SLOTS - 1)], OB_NEVER);
	OB_SWAP(shell->alarm, OB_NEVER);
	if (shell->gone)
		cpus_gone(now);
	if (shell->asked == SHELL_ASKED)
		request_settle(now);
	alarm_settle(now);
	if (measuring)
		__sync_fetch_and_add(&shell->ticks_ns, bpf_ktime_get_ns() - now);
	return 0;
}

/*
 * PREEMPT_RT: instead of timers, every CPU looks at its clock each 100 µs. Programs of this type
 * may not take the lock: the CPU is made to pick again, which sees to budgets and replenishments.
 */
SEC("perf_event")
int clock_event(struct bpf_perf_event_data *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();
	ob_cpu_p c;

	USE_ARENA();
	if (!shell)
		return 0;
	c = &shell->ob.cpu[cpu & 63];
	exile_tick(interrupt_cpu, now);
	/* For best effort among itself such a look is too dear. */
	if ((c->timer <= now && (c->server || c->share || ob_others_crowded(&shell->ob))) ||
	    shell->ob.alarm_at <= now || shell->gone || shell->asked == SHELL_ASKED)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

#endif
