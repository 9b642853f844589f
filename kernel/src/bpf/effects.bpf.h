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
	__uint(max_entries, OB_MAX_CPUS + 1);
	__type(key, u32);
	__type(value, struct timer_slot);
} timers SEC(".maps");

#define ALARM_SLOT OB_MAX_CPUS

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

/* So late a timer that is set has been lost, ns. */
#define TIMER_LOST 10000000ULL

/* Sets timer `slot` to `at` unless it fires sooner anyway. A late reset is caught by the callback.
 * Where interrupts are off the kernel needs memory to start it, and may find none: the next who
 * comes tries again. */
static __always_inline void timer_set(u32 slot, u64 at, u64 now)
{
	struct timer_slot *ts;
	u64 armed = shell->armed[slot & 127];

	if (at == OB_NEVER || (at >= armed && now < armed + TIMER_LOST))
		return;
	ts = bpf_map_lookup_elem(&timers, &slot);
	if (!ts)
		return;
	shell->armed[slot & 127] = at;
	if (bpf_timer_start(&ts->timer, at > now ? at - now : 1, 0))
		shell->armed[slot & 127] = OB_NEVER;
}

OB_FN void effects_kick(u64 kick)
{
	u32 i;

	for (i = OB_ZERO; i < OB_MAX_CPUS && kick && can_loop; i++) {
		if (kick & OB_BIT(i)) {
			kick &= ~OB_BIT(i);
			scx_bpf_kick_cpu(i, SCX_KICK_PREEMPT);
		}
	}
}

OB_FN void effects_rearm(u64 rearm, u64 now)
{
	u32 i;

	for (i = OB_ZERO; i < OB_MAX_CPUS && rearm && can_loop; i++) {
		if (rearm & OB_BIT(i)) {
			rearm &= ~OB_BIT(i);
			timer_set(i, shell->ob.cpu[i & 63].timer, now);
		}
	}
}

static __always_inline void effects_apply(struct effects *fx, u64 now)
{
	if (fx->kick)
		effects_kick(fx->kick);
	if (!use_timers)
		return;
	if (fx->rearm)
		effects_rearm(fx->rearm, now);
	if (fx->alarm_at != OB_NEVER)
		timer_set(ALARM_SLOT, fx->alarm_at, now);
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
