/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How the core is called: its lock, and what is done with its answers when the lock is dropped
 * again (CPUs to kick, timers to set). Part of main.bpf.c.
 */
#ifndef EFFECTS_BPF_H
#define EFFECTS_BPF_H

/*
 * The core's lock: a word in the arena, taken with interrupts off. Not a bpf_res_spin_lock, under
 * which the verifier allows no call of a global function, so that it would have to go through the
 * whole core again at every call; and perf event programs may not take one.
 */
static __always_inline bool lock_take(void)
{
	while (can_loop) {
		if (!*(volatile u32 __arena *)&shell->lock &&
		    !__sync_val_compare_and_swap(&shell->lock, 0, 1))
			return true;
	}
	/* can_loop gives up after a quarter of a second: somebody holds it who never will let go.
	 */
	return false;
}

struct timer_slot {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TIMER_SLOTS);
	__type(key, u32);
	__type(value, struct timer_slot);
} timers SEC(".maps");

/* Effects of one call, copied out under the lock. */
struct effects {
	u64 kick;
	u64 rearm;
	u64 alarm_at;
};

static __always_inline void effects_take(struct effects *fx)
{
	ob_p ob = &shell->ob;

	fx->kick = ob->kick;
	fx->rearm = ob->rearm;
	fx->alarm_at = ob->alarm_at;
	ob->kick = 0;
	ob->rearm = 0;
}

/* Lowers `*word` to `at`; says whether it did. */
static __always_inline bool lower(u64 __arena *word, u64 at)
{
	while (can_loop) {
		u64 was = OB_READ(*word);

		if (at >= was)
			return false;
		if (__sync_val_compare_and_swap(word, was, at) == was)
			return true;
	}
	return false;
}

/* Starts timer `slot`, whose time `armed` has, until nobody has set a sooner one meanwhile. If the
 * kernel has no memory for it the CPU it is for picks again, which sets it anew; while that goes on
 * the ticks must do, for a CPU that only picks frees no memory. */
static __always_inline void timer_start(u32 slot, u64 __arena *armed, u64 at)
{
	struct timer_slot *ts = bpf_map_lookup_elem(&timers, &slot);

	while (ts && can_loop) {
		u64 sooner;

		bool made = shell->timers == SHELL_TIMERS_MADE;

		if (!made || bpf_timer_start(&ts->timer, at, BPF_F_TIMER_ABS)) {
			OB_WRITE(*armed, OB_NEVER);
			shell->alarm = OB_NEVER;
			shell->timer_failed += made;
			if (!shell->timer_short)
				scx_bpf_kick_cpu(slot < ALARM_SLOT(0) ? slot
								      : bpf_get_smp_processor_id(),
						 SCX_KICK_PREEMPT);
			shell->timer_short = 1;
			return;
		}
		shell->timer_short = 0;
		sooner = OB_READ(*armed);
		if (sooner >= at)
			return;
		at = sooner;
	}
}

/*
 * Sets timer `slot` to `at` unless it fires sooner anyway. Two may do so at once, and the later
 * time must not be what stays: `armed` has the sooner one before anybody starts the timer, and is
 * looked at again after that. With interrupts off the kernel only notes the order, in memory that
 * it may not get, and carries all of them out in turn when they are on again. So they are always
 * off, or what is done at once would be undone by what was noted before.
 */
OB_FN void timer_set(u32 slot, u64 at)
{
	u64 __arena *armed = &shell->armed[slot & (TIMER_SLOTS - 1)];
	unsigned long flags;

	if (!lower(armed, at))
		return;
	bpf_local_irq_save(&flags);
	timer_start(slot, armed, at);
	bpf_local_irq_restore(&flags);
}

/*
 * Somebody is to call ob_alarm at `at`: this CPU, by a timer that nobody else starts, and so in
 * turn, unless one has taken on to do so sooner. One timer for all would not do: an order that was
 * noted with interrupts off is carried out when they are on again, by when another CPU may have set
 * a sooner time, which it would undo.
 */
OB_FN void alarm_lower(u64 at)
{
	u32 here = bpf_get_smp_processor_id() & (OB_MAX_CPUS - 1), slot = ALARM_SLOT(here);
	u64 __arena *armed = &shell->armed[slot & (TIMER_SLOTS - 1)];

	if (!lower(&shell->alarm, at))
		return;
	if (is_kept_apart(here)) {
		OB_SWAP(shell->kept, 1);
		scx_bpf_kick_cpu(interrupt_cpu, SCX_KICK_PREEMPT);
	} else if (is_given_up(here, at)) {
		/* Who picks takes it on. */
		OB_WRITE(shell->alarm, OB_NEVER);
		scx_bpf_kick_cpu(ob_lowest(shell->ob.online), SCX_KICK_PREEMPT);
	} else if (lower(armed, at)) {
		timer_start(slot, armed, at);
	}
}

/* The interrupt CPU takes on the alarm, if somebody has asked it to. */
static __always_inline void alarm_keep(s32 cpu)
{
	if (interrupt_cpu < 0 || cpu != interrupt_cpu || !use_timers || !OB_READ(shell->kept))
		return;
	OB_SWAP(shell->kept, 0);
	timer_set(ALARM_SLOT(cpu & (OB_MAX_CPUS - 1)), OB_READ(shell->alarm));
}

/* The interrupt CPU was asked and has not come: a real-time thread has it, or it goes off line. */
static __always_inline void keeper_miss(void)
{
	u64 now, alarm = OB_READ(shell->alarm);

	if (interrupt_cpu < 0 || alarm == OB_NEVER || !OB_READ(shell->kept))
		return;
	now = bpf_ktime_get_ns();
	if (alarm + KEEPER_LATE >= now)
		return;
	OB_WRITE(shell->doubted, now + KEEPER_DOUBTED);
	OB_WRITE(shell->alarm, OB_NEVER);
}

/* The same; most often it is set. */
static __always_inline void alarm_set(u64 at)
{
	keeper_miss();
	if (at < OB_READ(shell->alarm))
		alarm_lower(at);
}

OB_FN void effects_kick(u64 kick)
{
	for (; kick && can_loop; kick &= kick - 1) {
		__sync_fetch_and_add(&shell->kicks, 1);
		scx_bpf_kick_cpu(ob_lowest(kick), SCX_KICK_PREEMPT);
	}
}

OB_FN void effects_rearm(u64 rearm)
{
	for (; rearm && can_loop; rearm &= rearm - 1) {
		u32 i = ob_lowest(rearm);

		timer_set(i, shell->ob.cpu[i & 63].timer);
	}
}

static __always_inline void effects_apply(struct effects *fx)
{
	if (fx->kick)
		effects_kick(fx->kick);
	if (!use_timers)
		return;
	/* Who is made to pick by a kick that preempts, sets its timer then. */
	if (fx->rearm & ~fx->kick)
		effects_rearm(fx->rearm & ~fx->kick);
	if (fx->alarm_at != OB_NEVER)
		alarm_set(fx->alarm_at);
}

/* LOCKED(fx) { … } runs its body, which ends in UNLOCK, under the core's lock; the effects are left
 * in fx. Without the lock the body is skipped. */
#define LOCKED(fx)                                            \
	unsigned long __flags;                                \
	struct effects fx = {};                               \
	bpf_local_irq_save(&__flags);                         \
	if (!lock_take()) {                                   \
		bpf_local_irq_restore(&__flags);              \
		__sync_fetch_and_add(&shell->lock_failed, 1); \
	} else
#define UNLOCK(fx)                               \
	do {                                     \
		effects_take(&fx);               \
		OB_PUBLISH(shell->lock, 0U);     \
		bpf_local_irq_restore(&__flags); \
	} while (0)

#endif
