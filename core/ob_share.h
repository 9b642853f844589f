/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Best effort: weighted fair queueing by virtual time in what reservations leave, and a guaranteed
 * share of every CPU.
 *
 * The share works on debt. While a CPU runs reservations it owes best-effort work σ/(1 − σ) of that
 * time; time that such work, or nobody, has the CPU pays, up to OB_SHARE_AHEAD in advance. Whenever
 * a quantum q is owed the CPU has a job to serve, of length q with a deadline T = q/σ later, no two
 * deadlines less than T apart: a sporadic task of utilization σ, ordered by deadline among the
 * reservations. So beside them it is one more task of the admission test and delays nobody beyond
 * it; on one CPU EDF serves all deadlines of reservations that ask for 1 − σ (Liu and Layland
 * 1973). When it can wait no longer it goes before everything, whatever the others' keys: a job
 * without a budget, whose early deadline stays, cannot keep it out. In any window that reservations
 * fill, best effort so gets at least σ of the CPU less two quanta and what was paid ahead.
 */
#ifndef OB_SHARE_H
#define OB_SHARE_H

#include "ob_types.h"

/* Who has waited for so long is served whatever its weight, ns. The kernel throws a scheduler out
 * that lets a thread wait for 10 s. */
#define OB_PATIENCE 3000000000ULL

/* Between marking a job and sleeping until the next release a program needs less service, ns: two
 * system calls, which take up to 100 us on the lab's slow CPUs. */
#define OB_MARK_GRACE 200000ULL

/* Best-effort and idle time that a CPU can put by, ns: as much as lets a second of an overload
 * still hold the share less half a percent point: 0.5 % of 1 s, less two quanta of 1 ms. */
#define OB_SHARE_AHEAD 3000000

/* Whether best-effort work waits that may run on these CPUs. */
OB_INLINE int ob_share_waiting(ob_p ob, u64 cpus)
{
	ob_node_p root = ob->best_effort.root;

	return root && (root->sub_mask & cpus);
}

/* A quantum is owed from now on. Deadlines stay a period apart, whatever was late before. */
OB_INLINE void ob_share_owe(ob_p ob, ob_cpu_p c, u64 now)
{
	if (c->owed || c->debt < (s64)ob->share_quantum)
		return;
	c->owed = ob->share_quantum;
	c->due = ob_max(c->due, now) + ob->share_period;
	ob->share_ready |= OB_BIT(c->id);
}

/* Brings a CPU's debt up to `now`, by what it has been running. */
OB_INLINE void ob_share_account(ob_p ob, ob_cpu_p c, u64 now)
{
	u64 dt = now > c->since ? now - c->since : 0;

	c->since = now;
	if (!ob->share_quantum)
		return;
	/* Changing over counts for neither side: debt paid weighs 1/σ times as much as incurred. */
	if (c->use == OB_USE_RESERVED) {
		c->debt += (s64)(dt * ob->share_permille / (1000 - ob->share_permille));
		/* More is not collected while nobody wants it. */
		if (c->debt > 3 * (s64)ob->share_quantum)
			c->debt = 3 * (s64)ob->share_quantum;
	} else if (c->use == OB_USE_OTHER) {
		/* Idle time was best effort's for the taking. */
		c->wanted = now;
		c->debt -= (s64)dt;
		if (c->debt < -OB_SHARE_AHEAD)
			c->debt = -OB_SHARE_AHEAD;
		c->owed -= ob_min(c->owed, dt);
		if (!c->owed)
			ob->share_ready &= ~OB_BIT(c->id);
	}
	ob_share_owe(ob, c, now);
	/* Nobody there to take it: whoever comes is served within a period, not at once. */
	if (c->owed && now + c->owed >= c->due && !c->share && !ob_share_waiting(ob, OB_BIT(c->id)))
		c->due = now + ob->share_period;
}

/* The key of the quantum that `c` owes. */
OB_INLINE u64 ob_share_key(ob_cpu_p c, u64 now)
{
	return now + c->owed >= c->due ? OB_KEY_SHARE : ob_max(c->due, OB_KEY_URGENT + 1);
}

/* Whether best-effort work must have `c` before what runs there or is about to. */
OB_INLINE int ob_share_calls(ob_p ob, ob_cpu_p c, u64 now)
{
	return c->owed && !c->share && ob_share_key(c, now) < c->key &&
	       ob_share_waiting(ob, OB_BIT(c->id));
}

/* From taking one best-effort thread out of the queue to putting another in, ns. */
#define OB_SHARE_GRACE 50000ULL

/* Best-effort work has come to `cpus`, for which none waited. A quantum that nobody wanted is no
 * debt of the last moment: by the rule of a constant bandwidth server it is due a period from now,
 * if what is left until its deadline would give it more than its share. */
OB_FN void ob_share_arrive(ob_p ob OB_ARG, u64 cpus, u64 now)
{
	cpus &= ob->share_ready;
	while (cpus && OB_LOOP) {
		ob_cpu_p c = &ob->cpu[ob_lowest(cpus) & (OB_MAX_CPUS - 1)];
		u64 left = c->due > now ? c->due - now : 0;

		/* One may just be making room for the other. */
		if (!c->share && now > c->wanted + OB_SHARE_GRACE &&
		    c->owed * 1000 > left * ob->share_permille)
			c->due = now + ob->share_period;
		cpus &= cpus - 1;
	}
}

/* Best-effort work has come that may run on `cpus`: one that owes it time now picks again. Whether
 * there is one. */
OB_FN u64 ob_share_claim(ob_p ob OB_ARG, u64 cpus, u64 now)
{
	cpus &= ob->share_ready;
	while (cpus && OB_LOOP) {
		ob_cpu_p c = &ob->cpu[ob_lowest(cpus) & (OB_MAX_CPUS - 1)];

		if (ob_share_calls(ob, c, now)) {
			ob->kick |= OB_BIT(c->id);
			return 1;
		}
		cpus &= cpus - 1;
	}
	return 0;
}

/* When a CPU that runs a reservation must look at its debt again. */
OB_INLINE u64 ob_share_next(ob_p ob, ob_cpu_p c)
{
	/* Who is to leave has been kicked for. */
	if (c->owed)
		return c->due > c->since + c->owed ? c->due - c->owed : c->since + c->owed;
	return c->since +
	       ((u64)((s64)ob->share_quantum - c->debt)) * (1000 - ob->share_permille) /
		   ob->share_permille +
	       1;
}

/* Virtual time for `ran` ns of service; weight 100 (nice 0) runs at the clock's speed. */
OB_INLINE u64 ob_share_weighted(ob_task_p t, u64 ran)
{
	return t->weight == 100 ? ran : ran * 100 / ob_max(t->weight, 1);
}

OB_INLINE void ob_share_charge(ob_task_p t, u64 ran)
{
	t->vtime += ob_share_weighted(t, ran);
	t->used += ran;
}

/* `t` sleeps. */
OB_INLINE void ob_share_slept(ob_p ob, ob_task_p t)
{
	t->burst = (t->burst + ob_min(t->used, ob->slice)) / 2;
	t->used = 0;
}

/* How far behind the others who has slept begins: less the more it uses when awake, so that who
 * uses little goes before those who woke when it did and use much. */
OB_INLINE u64 ob_share_credit(ob_p ob, ob_task_p t)
{
	return ob->slice - ob_min(t->burst, ob->slice);
}

/* CPUs that one wake-up looks at, from the thread's last one on. */
#define OB_WAKE_LOOKS 0xffULL

/* `c` serves best effort of virtual time `vtime`. */
OB_INLINE void ob_share_advance(ob_p ob, ob_cpu_p c, u64 vtime)
{
	c->vtime = ob_max(c->vtime, vtime);
	ob->vtime = ob_max(ob->vtime, vtime);
}

/* `t` begins to run on `c`. One that slept gets no more than a slice of advantage over those who
 * did not; and the time it had alone on an idle machine is no debt to those who come later. */
OB_INLINE void ob_share_begin(ob_p ob, ob_cpu_p c, ob_task_p t)
{
	if (t->vtime + ob->slice < c->vtime)
		t->vtime = c->vtime - ob->slice;
	/* A quick one on a CPU that was idle is no measure for those who wait. */
	if (!ob->best_effort.root)
		ob_share_advance(ob, c, t->vtime);
}

/* The virtual time of those with whom `t` will share CPUs: of the whole machine, or, if it is bound
 * to some, of its last one. */
OB_INLINE u64 ob_share_vtime(ob_p ob, ob_task_p t)
{
	return ob->online & ~t->cpus ? ob_cpu(ob, t->cpu)->vtime : ob->vtime;
}

/* Virtual time by which who wakes must be behind who runs to have the CPU at once. Less gains
 * nobody anything but switches, where many threads send each other messages. */
#define OB_WAKE_GRAIN 500000ULL

/* `t` has `c`, or is about to. */
OB_INLINE void ob_share_has(ob_cpu_p c, ob_task_p t, u64 now)
{
	c->other = t;
	c->started = now;
}

/* `t` stops on `c`; the next may have been picked before. */
OB_INLINE void ob_share_leaves(ob_cpu_p c, ob_task_p t)
{
	if (c->other == t)
		c->other = OB_NULL;
}

/* Whether `t`, which waits, should have `c` at once in place of the best effort there. */
OB_INLINE int ob_share_overtakes(ob_cpu_p c, ob_task_p t, u64 now)
{
	ob_task_p other = c->other;
	u64 ran = now > c->started ? now - c->started : 0;

	return other && !other->server &&
	       other->vtime + ob_share_weighted(other, ran) > t->vtime + OB_WAKE_GRAIN;
}

/* When it will, at the earliest; it does not yet. */
OB_INLINE u64 ob_share_recheck(ob_cpu_p c, ob_task_p t)
{
	u64 left = t->vtime + OB_WAKE_GRAIN - ob_min(c->other->vtime, t->vtime);

	return c->started + ob_max(left * c->other->weight / 100, OB_WAKE_GRAIN);
}

/* When the best effort on `c` is to be compared with who waits: soon if that one is known to use
 * little. Who uses whole slices can wait for one. */
OB_FN u64 ob_share_look(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_task_p first = (ob_task_p)ob_tree_first(&ob->best_effort, OB_BIT(c->id));

	if (!first || first->told || first->burst > OB_WAKE_GRAIN || !c->other || c->other->server)
		return OB_NEVER;
	return ob_max(ob_share_recheck(c, first), c->started + 2 * OB_WAKE_GRAIN);
}

/* `t` has woken and waits: who sleeps much is not to wait for the slices of those who never do. Its
 * last CPU is asked first, then those after it. Whom a thread has woken does not have its CPU at
 * once: it may be about to sleep, and messages that come one by one are best read together. */
OB_FN void ob_share_wake(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	u64 cpus = t->cpus & ob->online;
	u32 last = cpus & OB_BIT(t->cpu) ? t->cpu : ob_lowest(cpus);
	ob_cpu_p c = ob_cpu(ob, last);

	last &= OB_MAX_CPUS - 1;
	cpus = cpus >> last | cpus << ((OB_MAX_CPUS - last) & (OB_MAX_CPUS - 1));
	cpus = t->told ? 0 : cpus & OB_WAKE_LOOKS;
	while (cpus && OB_LOOP) {
		ob_cpu_p other = ob_cpu(ob, last + ob_lowest(cpus));

		if (ob_share_overtakes(other, t, now)) {
			ob->kick |= OB_BIT(other->id);
			return;
		}
		cpus &= cpus - 1;
	}
	if (c->other && !c->other->server && ob_share_recheck(c, t) < c->timer) {
		c->timer = ob_max(ob_share_recheck(c, t), now + (t->told ? 2 * OB_WAKE_GRAIN : 1));
		ob->rearm |= OB_BIT(c->id);
	}
}

/* Whether somebody who waits should have `c` in place of the best effort there. */
OB_FN u64 ob_share_overtaken(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_node_p first = ob_tree_first(&ob->best_effort, OB_BIT(c->id));

	return first && ob_share_overtakes(c, (ob_task_p)first, now);
}

/* CPUs that may take `t`: those on line, and if there are none the one that is going, from which
 * the kernel moves what it picks. */
OB_INLINE u64 ob_share_mask(ob_p ob, ob_task_p t)
{
	u64 cpus = t->cpus & ob->online;

	return cpus ? cpus : t->cpus;
}

/* Whether a task waits for CPUs of which none is on line. */
OB_INLINE int ob_share_strands(ob_p ob)
{
	return ob_share_waiting(ob, ~ob->online);
}

/* Such a task, or null. */
OB_INLINE ob_task_p ob_share_stranded(ob_p ob)
{
	return (ob_task_p)ob_tree_first(&ob->best_effort, ~ob->online);
}

/* CPUs came or went: who waits may find others. */
OB_FN void ob_share_online(ob_p ob OB_ARG)
{
	ob_node_p n;

	for (n = ob_tree_head(&ob->best_effort); n && OB_LOOP; n = ob_tree_next(n))
		ob_tree_update(n, ob_share_mask(ob, (ob_task_p)n), n->over);
	if (ob_share_strands(ob))
		ob->kick |= ob->online & -ob->online;
}

/* Queues `t` near those who wait for its CPUs, as if it had taken turns with them: no more than a
 * slice before them if it slept, no more than one of its own slices after them whatever it and
 * others had elsewhere. Nobody waits for longer than a turn of everybody. */
OB_FN void ob_share_enqueue(ob_p ob OB_ARG, ob_task_p t OB_ARG, u32 woke, u64 now)
{
	ob_node_p first = ob_tree_first(&ob->best_effort, t->cpus);
	u64 from = ob->vtime;

	if (first) {
		from = ob_min(from, ((ob_task_p)first)->vtime);
		t->vtime =
		    ob_min(t->vtime, ((ob_task_p)first)->vtime + ob_share_weighted(t, ob->slice));
	}
	if (woke && t->vtime + ob_share_credit(ob, t) < from)
		t->vtime = from - ob_share_credit(ob, t);
	t->node.key = t->vtime;
	t->node.mask = ob_share_mask(ob, t);
	/* The greatest is who has waited for longest. A kernel thread that wakes counts as one who
	 * has just lost its patience, no more, for others have too: grace periods and watchdogs
	 * wait for it, and where reservations leave 5 % to a crowd, a turn of everybody takes
	 * seconds. */
	t->node.over = ~now;
	if (woke && t->kernel)
		t->node.over = ~(now > OB_PATIENCE ? now - OB_PATIENCE : 0);
	t->waiting = 1;
	ob_tree_insert(&ob->best_effort, &t->node);
}

/* Nothing is owed where nothing is reserved. */
OB_INLINE void ob_share_clear(ob_p ob, ob_cpu_p c, u64 now)
{
	c->use = OB_USE_OTHER;
	c->debt = 0;
	c->owed = 0;
	ob->share_ready &= ~OB_BIT(c->id);
	if (!c->share)
		return;
	c->share = 0;
	ob_emit(ob, now, OB_KC(OB_EV_SHARE, c->id), OB_TS(OB_NONE, OB_NONE), 0, 0);
}

OB_INLINE void ob_share_remove(ob_p ob, ob_task_p t, u64 now)
{
	u64 cpus = t->node.mask & ob->share_ready;

	ob_tree_remove(&ob->best_effort, &t->node);
	if (ob->best_effort.root)
		cpus &= ~ob->best_effort.root->sub_mask;
	for (; cpus && OB_LOOP; cpus &= cpus - 1)
		ob->cpu[ob_lowest(cpus) & (OB_MAX_CPUS - 1)].wanted = now;
	t->waiting = 0;
}

/* The best-effort task that has waited for longest, beyond its patience, for one of these CPUs. */
OB_INLINE ob_task_p ob_share_impatient(ob_p ob, u64 cpus, u64 now)
{
	ob_node_p n = ob->best_effort.root;

	if (!n || now < OB_PATIENCE + ~n->sub_over)
		return OB_NULL;
	return (ob_task_p)ob_tree_greatest(&ob->best_effort, cpus, ~(now - OB_PATIENCE) - 1);
}

/* All best-effort threads of one CPU have a turn within this time, ns, as long as turns need not be
 * shorter than the least: with reservations the share alone must do for it. */
#define OB_SHARE_ROUND 5000000000ULL
#define OB_SHARE_TURN_LEAST 50000ULL

/* How long a turn among best-effort threads is: a slice, or less in a crowd. (Who waits is counted
 * for all CPUs: they may all be bound to one.) */
OB_INLINE u64 ob_share_turn(ob_p ob)
{
	u64 round = OB_SHARE_ROUND;

	if (ob->engaged && ob->share_permille)
		round = round / 1000 * ob->share_permille;
	round /= ob->best_effort.count + 1;
	return ob_min(ob_max(round, OB_SHARE_TURN_LEAST), ob->slice);
}

/* Whether turns are so short that the shell's slices do not do. */
OB_INLINE int ob_share_crowded(ob_p ob)
{
	return ob_share_turn(ob) < ob->slice;
}

/* Whether best effort that has lost its patience takes the place of `sv`, which has nothing left
 * but slack: there it is nobody's better. */
OB_INLINE int ob_share_relieves(ob_p ob, ob_server_p sv, u64 cpus, u64 now)
{
	return sv->spent && !sv->urgent && ob_share_impatient(ob, cpus, now);
}

/* Takes the next best-effort task that may run on `c`. */
OB_INLINE ob_task_p ob_share_take(ob_p ob, ob_cpu_p c, u64 now)
{
	ob_task_p t = ob_share_impatient(ob, OB_BIT(c->id), now);

	if (!t)
		t = (ob_task_p)ob_tree_first(&ob->best_effort, OB_BIT(c->id));

	if (t) {
		ob_share_remove(ob, t, now);
		ob_share_advance(ob, c, t->vtime);
	}
	return t;
}

#endif
