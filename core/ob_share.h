/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The share of every CPU that is guaranteed to best effort.
 *
 * It works on debt. While a CPU runs reservations it owes best-effort work σ/(1 − σ) of that
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

#include "ob_due.h"

/* How much of the share both worlds serve at a time, ns. */
#define OB_SHARE_QUANTUM 1000000

/* Where several CPUs serve one queue a quantum keeps who has no laxity left from one of them, and
 * several fall together. There it is at most such a part of any relative deadline; and never less
 * than so many ns, as each costs two switches. docs/slack.md says what was measured. */
#define OB_SHARE_PART 40
#define OB_SHARE_SHORTEST 100000

/* Best-effort and idle time that a CPU can put by, ns: as much as lets a second of an overload
 * still hold the share less half a percent point: 0.5 % of 1 s, less two quanta. */
#define OB_SHARE_AHEAD 3000000

/* How far best effort can be behind its share of a CPU, ns: a quantum is owed, another grows. */
#define OB_SHARE_LAG (2 * OB_SHARE_QUANTUM + OB_SHARE_AHEAD)

/* The share is served in quanta of so many ns from the next one on. */
OB_INLINE void ob_share_divide(ob_p ob, u64 quantum)
{
	ob->share_quantum = quantum;
	ob->share_period = quantum * 1000 / ob->share_permille;
}

/* `sv` is part of its domain from now on. Quanta grow again when the last brief one has gone. */
OB_FN void ob_share_admit(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 most = ob_min(sv->period, sv->deadline) / OB_SHARE_PART, cpus = sv->domain->cpus;

	sv->brief = most < ob->share_whole && (cpus & (cpus - 1)) && !sv->domain->up;
	if (!sv->brief)
		return;
	ob->briefs++;
	most = ob_max(most, OB_SHARE_SHORTEST);
	if (most < ob->share_quantum)
		ob_share_divide(ob, most);
}

/* It is no more. */
OB_FN void ob_share_dismiss(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	if (!sv->brief)
		return;
	sv->brief = 0;
	if (!--ob->briefs)
		ob_share_divide(ob, ob->share_whole);
}

/* Whether best-effort work waits that may run on these CPUs, or what is served in its place. */
OB_INLINE int ob_share_waiting(ob_p ob, u64 cpus)
{
	ob_node_p root = ob->best_effort.root, other = ob->impatient.root;

	return (root && (root->sub_mask & cpus)) || (other && (other->sub_mask & cpus));
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
	if (c->use == OB_USE_RESERVED)
		c->served += dt;
	if (!ob->share_quantum)
		return;
	/* Changing over counts for neither side: debt paid weighs 1/σ times as much as incurred. */
	if (c->use == OB_USE_RESERVED) {
		c->debt += (s64)(dt * ob->share_permille / (1000 - ob->share_permille));
		/* More is not collected while nobody wants it. */
		if (c->debt > 3 * (s64)ob->share_quantum)
			c->debt = 3 * (s64)ob->share_quantum;
	} else if (c->use == OB_USE_OTHER) {
		/* Idle time was best effort's for the taking; but nobody wanted it. */
		if (c->other)
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
	return now + c->owed >= c->due ? OB_KEY_SHARE : OB_KEY_PLAIN + c->due + 1;
}

/* Whether best-effort work must have `c` before what runs there or is about to. */
OB_INLINE int ob_share_calls(ob_p ob, ob_cpu_p c, u64 now)
{
	return c->owed && !c->share && ob_share_key(c, now) < c->key &&
	       ob_share_waiting(ob, OB_BIT(c->id));
}

/* From taking one best-effort thread out of the queue to putting another in, ns. */
#define OB_SHARE_GRACE 50000ULL

/* Best-effort work has come to `c`, for which none waited. A quantum that nobody wanted is no debt
 * of the last moment: by the rule of a constant bandwidth server it is due a period from now, if
 * what is left until its deadline would give it more than its share. */
OB_FN void ob_share_arrive_at(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	u64 left = c->due > now ? c->due - now : 0;

	/* One may just be making room for the other. */
	if (!c->share && now > c->wanted + OB_SHARE_GRACE &&
	    c->owed * 1000 > left * ob->share_permille)
		c->due = now + ob->share_period;
}

/* The same of all of `cpus`. */
OB_FN void ob_share_arrive(ob_p ob OB_ARG, u64 cpus, u64 now)
{
	cpus &= ob->share_ready;
	while (cpus && OB_LOOP) {
		ob_share_arrive_at(ob, &ob->cpu[ob_lowest(cpus) & (OB_MAX_CPUS - 1)], now);
		cpus &= cpus - 1;
	}
}

/* The same, for a loop. */
OB_FN u64 ob_share_calls_for(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	return ob_share_calls(ob, c, now);
}

/* Best-effort work has come that may run on `cpus`: one that owes it time now picks again. Whether
 * there is one. */
OB_FN u64 ob_share_claim(ob_p ob OB_ARG, u64 cpus, u64 now)
{
	cpus &= ob->share_ready;
	while (cpus && OB_LOOP) {
		ob_cpu_p c = &ob->cpu[ob_lowest(cpus) & (OB_MAX_CPUS - 1)];

		if (ob_share_calls_for(ob, c, now)) {
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

/* Best effort's turn on `c` begins, or ends. */
OB_FN void ob_share_turn(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u32 begins, u64 now)
{
	ob_emit(ob, now, OB_KC(OB_EV_SHARE, c->id), OB_TS(OB_NONE, OB_NONE), begins, 0);
	c->share = (u8)begins;
}

/* Whether best effort's quantum begins to call for `c`, or is served; another has a later deadline.
 */
OB_INLINE void ob_share_tick(ob_p ob, ob_cpu_p c, u64 now)
{
	ob_node_p first;

	if (!c->share) {
		if (c->use == OB_USE_RESERVED && ob_share_calls(ob, c, now))
			ob->kick |= OB_BIT(c->id);
		return;
	}
	c->key = ob_share_key(c, now);
	first = ob_tree_first(&c->domain->active, OB_BIT(c->id));
	if (!c->owed || (first && first->key < c->key))
		ob->kick |= OB_BIT(c->id);
}

#endif
