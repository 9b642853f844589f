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

/* Whether the interrupt CPU is to keep the alarm that this CPU would: it comes to pick soon, unless
 * a real-time thread has it. */
static __always_inline bool is_kept_apart(u32 here)
{
	const struct rq *rq;

	if (interrupt_cpu < 0 || here == interrupt_cpu || shell->timers != SHELL_TIMERS_MADE ||
	    is_leaving(interrupt_cpu))
		return false;
	rq = bpf_per_cpu_ptr(&runqueues, interrupt_cpu);
	return rq && rq->curr->prio >= 100;
}

#endif
