/* SPDX-License-Identifier: GPL-2.0-only */
/* Budgets and accounts that run out. */
#ifndef OB_BUDGET_H
#define OB_BUDGET_H

#include "ob_job.h"

/* Sees to a budget that has run out. */
OB_INLINE void ob_budget_enforce(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	if (sv->e > 0 || sv->state != OB_READY || sv->spent || !ob_policy_enforces(sv))
		return;
	/* What it was given in a window whose share is used up is used up, too. */
	if (ob_place_waits(sv)) {
		ob_server_restore(ob, sv, now);
		ob_server_requeue(ob, sv);
		return;
	}
	sv->exhaustions++;
	/* One that is split has used up a part only, or all. */
	if (!ob_place_moves(sv) || ob_place_rests_until(sv))
		sv->dry = 1;
	ob_emit(ob, now, OB_KC(OB_EV_EXHAUST, OB_NONE), OB_TS(OB_NONE, sv->id), 0, sv->s);
	sv->urgent = 0;
	ob_policy_exhausted(ob, sv, now);
	ob_want(ob, sv, now);
	ob_server_requeue(ob, sv);
	if (ob_place_moves(sv))
		ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* The account of `sv`, just charged, may be empty, or not any more. A demoted one's place in the
 * queue changes with what it has had. */
OB_FN void ob_account_check(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (!ob_account_limits(sv) || !sv->state)
		return;
	if (sv->demoted) {
		if (ob_account_restored(sv, now))
			ob_account_promote(ob, sv);
	} else {
		ob_account_fill(sv->account, now);
		if (ob_account_left(sv->account, now) > 0 || !ob_account_ahead(sv, now))
			return;
		ob_account_demote(ob, sv, now);
	}
	ob_server_requeue(ob, sv);
}

/* Sees to budget and account, and to those of the groups that it is in. */
OB_FN void ob_budget_check(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	for (; sv && OB_LOOP; sv = sv->domain->up) {
		if (sv->purse && ob_purse_stops(ob, sv, now))
			ob_want(ob, sv, now);
		ob_budget_enforce(ob, sv, now);
		if (ob_account_limits(sv))
			ob_account_check(ob, sv, now);
	}
}

/* The same, where nothing but that is at stake: who has enough left is not charged for it. */
OB_INLINE void ob_budget_look(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->purse || sv->domain->up || ob_account_limits(sv) ||
	    (sv->state == OB_READY && !sv->spent &&
	     sv->e <= (s64)((now - ob_min(now, sv->charged)) * sv->running)))
		ob_budget_check(ob, sv, now);
}

#endif
