/* SPDX-License-Identifier: GPL-2.0-only */
/* When what runs on a CPU must be looked at again: its budget, its turn, its place end. */
#ifndef OB_TIMER_H
#define OB_TIMER_H

#include "ob_queue.h"

/* Whether its budget is enforced: the registry says so. */
OB_INLINE int ob_policy_enforces(ob_server_p sv);

/* Threads of one server take turns of this length at most, ns, and of the other at least. */
#define OB_ROTATE 4000000ULL
#define OB_ROTATE_LEAST 50000ULL
/* All of them have a turn within this time, ns, as long as turns need not be shorter than that. */
#define OB_ROUND 6000000000ULL

/* How long a turn is: a crowd in a small reservation takes short ones, for Q/P of a CPU is all it
 * can count on. */
OB_INLINE u64 ob_turn(ob_server_p sv)
{
	u64 share = sv->period / ob_max(sv->budget, 1) + 1;
	u64 turn = OB_ROUND / ob_max(share * (sv->waiting + 1), 1);

	return ob_max(ob_min(turn, OB_ROTATE), OB_ROTATE_LEAST);
}

/* What is left at `now` of the turn of what runs on `c`, ns. It goes on with the same turn after
 * others have interrupted it: who is always interrupted soon must not keep its siblings waiting. */
OB_INLINE u64 ob_turn_left(ob_cpu_p c, u64 now)
{
	u64 had = c->curr->turn + (now > c->started ? now - c->started : 0);

	u64 turn = ob_turn(c->server);

	return had < turn ? turn - had : 0;
}

/* After so long one that runs looks again who waits behind its sibling, ns. */
#define OB_AGAIN 500000ULL

/* When what runs on `c` has run for so long that somebody who waits comes first: keys by the latest
 * time to begin grow while their servers run. */
OB_INLINE u64 ob_key_passes(ob_server_p sv, ob_cpu_p c)
{
	ob_node_p first;
	u64 key;

	if (!sv->counted || sv->domain->tight || ob_policy_lends(sv) != OB_LENDS_START)
		return OB_NEVER;
	key = ob_server_key(sv, sv->charged);
	if (key <= OB_KEY_SOON || key >= OB_KEY_EQUAL)
		return OB_NEVER;
	first = ob_tree_first(&sv->domain->active, OB_BIT(c->id));
	/* Behind a sibling that waits there may be others: look again in a while. */
	if (first == &sv->node)
		return sv->charged + OB_AGAIN;
	if (!first || first->key < key || first->key >= ob_key_plain(ob_key_due(sv)))
		return OB_NEVER;
	/* Half as long again as it takes (4 / OB_SURE), for to be passed is a preemption. */
	return sv->charged + 2 * (first->key - key) / ob_max(sv->running, 1) + 2;
}

/* How long the budget of `sv`, which runs, lasts, and its purse. */
OB_INLINE u64 ob_server_lasts(ob_server_p sv)
{
	u64 t = OB_NEVER;

	if (ob_server_rests(sv))
		return t;
	if (sv->purse)
		t = ob_purse_lasts(sv->purse);
	if (!ob_policy_enforces(sv) || sv->spent)
		return t;
	return ob_min(
	    t, sv->charged +
		   (sv->e > 0 ? ((u64)sv->e + sv->running - 1) / ob_max(sv->running, 1) : 0));
}

/* The same of the groups it is in. */
OB_FN u64 ob_group_lasts(ob_server_p sv OB_ARG)
{
	u64 t = OB_NEVER;

	for (sv = sv->domain->up; sv && OB_LOOP; sv = sv->domain->up)
		t = ob_min(t, ob_server_lasts(sv));
	return t;
}

/* Sets c->timer: when the dispatcher must look at what runs here again. Instants are told from when
 * the server was charged, a while ago at a pick (ob_budget_look): those of keys that grow as it
 * runs may be past then, and are told anew when they ring. Accounts and purses are up to date. Who
 * is to leave the CPU has been kicked for: looking again at once would change nothing, and keep the
 * kernel in the timer's interrupt. */
OB_FN void ob_arm(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_server_p sv = c->server;
	u64 t = OB_NEVER;

	if (sv) {
		ob_server_p top = sv;

		t = ob_server_lasts(sv);
		if (sv->domain->up) {
			top = ob_server_top(sv);
			t = ob_min(t, ob_group_lasts(sv));
		}
		/* Who has had its turn is told at the end of another: a sibling may have just come.
		 */
		if (sv->waiting)
			t = ob_min(t, sv->charged + (ob_turn_left(c, sv->charged) ?: OB_ROTATE));
		if (ob->share_quantum && !sv->draws)
			t = ob_min(t, ob_share_next(ob, c));
		t = ob_min(t, ob_key_passes(top, c));
		if (ob_account_limits(top))
			t = ob_min(t, ob_account_next(ob, c, top));
	}
	if (!sv || sv->draws) {
		if (c->share)
			t = c->since + (c->owed ?: OB_ROTATE);
		if (c->curr && ob_others_crowded(ob))
			t = ob_min(t, ob_max(c->started, c->since) + ob_others_turn(ob));
		if (c->other)
			t = ob_min(t, ob_max(ob_others_look(ob, c), c->since + OB_WAKE_GRAIN));
	}
	c->timer = t;
	ob->rearm |= OB_BIT(c->id);
}

/* Sets the timers of all CPUs that run `sv`. */
OB_FN void ob_server_rearm(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_runs(ob_cpu(ob, i), sv))
			ob_arm(ob, ob_cpu(ob, i));
}

#endif
