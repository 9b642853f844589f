/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sets of CPUs under policies of their own, and what happens when such a policy changes while it
 * is in force.
 *
 * A domain stands in the slot of the lowest of its CPUs. Sets are disjoint, so slots never collide.
 * A set's policy is swapped in short steps, each under the lock once: its CPUs are told which
 * domain they are of (ob_regroup), then each reservation is taken to its new domain, rule and order
 * (ob_server_swap), then the CPUs pick again (ob_regroup once more). Between the steps what has not
 * been taken over yet is served where its old domain still has a CPU, or waits; keys of two orders
 * stand side by side. docs/sets.md says how long that is.
 *
 * What becomes of a server's pair of budget left e and deadline s:
 *
 * - It is kept where both policies isolate and nobody changes domains. One that meets all deadlines
 *   by s has so far, so there is a schedule that goes on with these pairs; on one CPU EDF finds it
 *   (Dertouzos, "Control robotics: the procedural control of physical processes", 1974).
 * - Else the server takes up its job as a constant bandwidth server does that has slept: if what is
 *   left by s is more than its bandwidth until then, it has a whole budget by t + D instead. So
 * from t on nobody asks for more than Q/P (Abeni and Buttazzo 1998), whatever was late before. Who
 *   moves may be late by that, at most D.
 * - Without an enforced budget before, or split before or after, it begins anew at t.
 */
#ifndef OB_SWAP_H
#define OB_SWAP_H

#include "ob_online.h"

/* The CPUs of `d` have changed: slack reckoned before, and a bonus kept for them, are void. (Its
 * servers have their keys renewed as each is taken over.) */
OB_FN void ob_domain_changed(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	d->bonus = 0;
	d->tight = 1;
	if (d->due.at[OB_DUE_LOOK])
		ob_due_set(ob, &d->due, OB_DUE_LOOK, ob_max(now, 1));
}

/* `cpus` are one domain from now on. They pick again. */
OB_FN void ob_regroup(ob_p ob OB_ARG, u64 cpus, u64 now)
{
	ob_domain_p to = &ob->domain[ob_lowest(cpus | OB_BIT(63)) & (OB_MAX_DOMAINS - 1)], from;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++) {
		from = ob_cpu(ob, i)->domain;
		if (!(cpus & OB_BIT(i)) || from == to)
			continue;
		from->cpus &= ~OB_BIT(i);
		to->cpus |= OB_BIT(i);
		OB_WRITE(ob_cpu(ob, i)->domain, to);
		ob_domain_changed(ob, from, now);
		ob_domain_changed(ob, to, now);
	}
	ob->kick |= cpus & ob->online;
}

/* `sv` is to have another rule: nothing is left of what the old one did to it. One that rests for
 * want of budget is ready, for the new rule to say what follows. */
OB_FN void ob_rule_leave(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_charge(sv, now);
	ob_server_restore(ob, sv, now);
	ob_unspend(ob, sv, now);
	ob_due_set(ob, &sv->due, OB_DUE_SPENT, 0);
	sv->urgent = 0;
	sv->soon = 0;
	sv->later = 0;
	sv->late = 0;
	sv->rank = OB_RANK_LEFT;
	ob_due_set(ob, &sv->due, OB_DUE_LAXITY, 0);
	ob_order_stale(sv);
	if (sv->state != OB_RESTS || sv->broke)
		return;
	ob_due_set(ob, &sv->due, OB_DUE_REFILL, 0);
	sv->state = OB_READY;
}

/* `sv` has its new rule and place; `fresh`: its pair means nothing there. */
OB_FN void ob_rule_enter(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 fresh, u32 anew, u64 now)
{
	if (fresh) {
		sv->shift = 0;
		sv->e = 0;
		sv->s = 0;
		ob_pledge(sv);
	}
	/* What has no job takes up its next one by the new rule. */
	if (sv->state != OB_READY || ob_place_moves(sv))
		return;
	if (!ob_policy_enforces(sv))
		ob_server_set(ob, sv, now, (s64)sv->budget, sv->release + sv->deadline);
	else if (fresh)
		ob_place_fresh(ob, sv, now);
	else if (anew)
		ob_place_take_up(ob, sv, now);
	if (sv->e <= 0 && ob_policy_enforces(sv))
		ob_policy_exhausted(ob, sv, now);
}

/* `sv`, a member of no group, has the rule and order and the place that `terms` say, in no queue
 * yet.
 */
OB_FN void ob_server_change(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_terms_p terms OB_ARG, u64 now)
{
	u32 fresh = !ob_policy_enforces(sv) || ob_place_moves(sv);

	ob_rule_leave(ob, sv, now);
	/* What stood by the old order leaves the queue by it. */
	ob_tree_remove(&sv->domain->active, &sv->node);
	sv->kind = terms->kind;
	sv->order = terms->order;
	ob_server_take(ob, sv, terms, now);
	ob_rule_enter(ob, sv, fresh || ob_place_moves(sv), terms->anew, now);
}

/* The same, and it goes on so. (Two calls, not one in the other, for the kernel's stack is short.)
 */
OB_INLINE void ob_server_swap(ob_p ob, ob_server_p sv, ob_terms_p terms, u64 now)
{
	ob_server_change(ob, sv, terms, now);
	ob_server_go_on(ob, sv, now);
}

/* Best effort is served in order number `order` from now on; those of `count` threads at `tasks`
 * that wait are put where that has them. The shell goes through all threads in steps: meanwhile
 * keys of both orders stand side by side: those of virtual time before those that are apart
 * (OB_OTHERS_APART). */
OB_FN void ob_reorder(ob_p ob OB_ARG, ob_task_p tasks OB_ARG, u64 count, u32 order)
{
	u64 i;

	OB_WRITE(ob->others, order);
	for (i = OB_ZERO; i < count && OB_LOOP; i++) {
		ob_task_p t = &tasks[i];

		if (!t->waiting || t->server || t->placed == order)
			continue;
		ob_others_subtract(ob, t);
		t->expires = 0;
		ob_others_put(ob, t, OB_NEVER);
	}
}

#endif
