/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interrupt CPU (Kenna et al., "Soft real-time on multiprocessors"): the core takes it to be
 * off line, so that neither reservations nor best effort are put there. Who may run nowhere else
 * runs there all the same, past the core, one after the other. The timer that keeps the core's
 * alarm for all CPUs is there. If all others go off line it serves as they did. Part of main.bpf.c.
 */
#ifndef APART_BPF_H
#define APART_BPF_H

/* Its number; -1: there is none. */
const volatile s32 interrupt_cpu = -1;

/*
 * Between a CPU's leaving cpu_active_mask and ops.cpu_offline the kernel waits for a grace period.
 * What is dispatched to the CPU meanwhile from another's run queue lands in the global queue, which
 * a busy machine does not look at. The mask itself is not in the kernel's type information: to find
 * it the loader would read all of the kernel's symbols, which takes longer than all else but the
 * verifier. So where the CPU stands on its way is looked at, by which it is in the mask or not.
 */
extern const struct cpuhp_cpu_state cpuhp_state __ksym;

static __always_inline bool is_leaving(s32 cpu)
{
	const struct cpuhp_cpu_state *on_its_way = bpf_per_cpu_ptr(&cpuhp_state, cpu);

	return on_its_way &&
	       on_its_way->state < bpf_core_enum_value(enum cpuhp_state, CPUHP_AP_ACTIVE);
}

/* Whether `cpu` is the interrupt CPU, and others serve. */
static __always_inline bool is_apart(s32 cpu)
{
	return interrupt_cpu >= 0 && cpu == interrupt_cpu && !(shell->ob.online & OB_BIT(cpu));
}

/* Whether `p` is on `cpu`, which is apart, and may run elsewhere. */
static __always_inline bool is_astray(const struct task_struct *p, s32 cpu)
{
	return is_apart(cpu) && (cpus_of(p) & shell->ob.online);
}

/* Whether `p`, which waits, is on the CPU that is apart, may run nowhere else, and is nothing to
 * the core. */
static __always_inline bool is_exiled(const struct task_struct *p, ob_task_p t)
{
	s32 cpu = scx_bpf_task_cpu(p);

	return is_apart(cpu) && !is_astray(p, cpu) && ob_is_unreserved(t) && !t->home &&
	       !t->waiting;
}

/* Everybody who waits there has had a turn within this: a quarter of what the watchdog allows, as
 * the service's turns may come between, ns. */
const volatile u64 exile_lap = 250000000ULL;

/* The shortest of these turns, ns. */
#define EXILE_LEAST 20000ULL

/* The timer's part of a turn there: when it is to fire again. */
static __always_inline u64 exile_tick(s32 cpu, u64 now)
{
	u64 at = OB_READ(shell->exile_ends);

	if (!at || interrupt_cpu < 0 || cpu != interrupt_cpu)
		return OB_NEVER;
	if (at > now)
		return at;
	OB_WRITE(shell->exile_ends, 0);
	if (is_apart(cpu))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return OB_NEVER;
}

/* The interrupt CPU is late with the alarm if interrupts take it for longer than the first of
 * these; the others keep it for the second then, ns. */
#define KEEPER_LATE 100000ULL
#define KEEPER_DOUBTED 1000000000ULL

/* Whether `cpu`, when kicked, comes to pick soon: no real-time thread has it. */
static __always_inline bool is_at_hand(s32 cpu)
{
	const struct rq *rq = bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->curr->prio >= 100;
}

/* Whether the interrupt CPU is to keep the alarm that this CPU would. */
static __always_inline bool is_kept_apart(u32 here)
{
	return interrupt_cpu >= 0 && here != interrupt_cpu && shell->timers == SHELL_TIMERS_MADE &&
	       bpf_ktime_get_ns() >= OB_READ(shell->doubted) && !is_leaving(interrupt_cpu) &&
	       is_at_hand(interrupt_cpu);
}

/* Whether another CPU is to keep the alarm for `at`, which this one, the interrupt CPU, would. What
 * is due, such as a request, it sees to itself. */
static __always_inline bool is_given_up(u32 here, u64 at)
{
	u64 now;

	if (interrupt_cpu < 0 || !is_apart(here))
		return false;
	now = bpf_ktime_get_ns();
	return now < OB_READ(shell->doubted) && at > now + KEEPER_LATE &&
	       is_at_hand(ob_lowest(shell->ob.online));
}

/* It was to call ob_alarm `at`. */
static __always_inline void keeper_judge(u32 slot, u64 at, u64 now)
{
	if (interrupt_cpu >= 0 && slot == ALARM_SLOT(interrupt_cpu) && at && at < now &&
	    now - at > KEEPER_LATE)
		OB_WRITE(shell->doubted, now + KEEPER_DOUBTED);
}

#endif
