/* SPDX-License-Identifier: GPL-2.0-only */
/* What the policies that lend have in common: a server that has used up its budget lives on slack.
 */
#ifndef OB_LEND_H
#define OB_LEND_H

#include "ob_slack.h"

/* `sv` has used up its budget: until its deadline it has a claim to slack only. It is woken then,
 * and before if nobody lets it run. */
OB_FN void ob_spend(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	sv->spent = 1;
	sv->soon = 0;
	ob_due_set(ob, &sv->due, OB_DUE_LAXITY, 0);
	ob_due_set(ob, &sv->due, OB_DUE_SPENT, ob_max(sv->s - sv->shift, 1));
	ob_slack_claim(ob, sv, now);
}

OB_FN void ob_unspend(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (!sv->spent)
		return;
	ob_lent(ob, sv, now);
	ob_due_set(ob, &sv->due, OB_DUE_SPENT, 0);
	sv->spent = 0;
	sv->urgent = 0;
}

OB_FN void ob_lend_release(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (!ob_server_stays(sv, now) || ob_place_moves(sv))
		sv->had = 0;
	ob_place_take_up(ob, sv, now);
	if (ob_policy_lends(sv) == OB_LENDS_START && sv->counted)
		ob_slack_claim(ob, sv, now);
}

OB_FN void ob_lend_exhausted(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (sv->counted && sv->s > now) {
		ob_spend(ob, sv, now);
		return;
	}
	ob_place_renew_near(ob, sv, now);
}

/* What `sv`, whose next budget has just begun, has had of slack in the period before comes off it:
 * so it has had Q in each period since its job began, which is all that it is owed, and who fell
 * behind further is before it with the rest. */
OB_FN void ob_lend_repay(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 had = sv->had;

	sv->had = 0;
	if (!had || !sv->counted || sv->e <= 0)
		return;
	had = ob_min(had, (u64)sv->e);
	/* Nobody else has it in its place. */
	if (sv->account) {
		ob_account_fill(sv->account, now);
		ob_account_use(sv->account, had);
	}
	ob_server_set(ob, sv, now, sv->e - (s64)had, sv->s);
}

/* The deadline of a spent server has come: the next budget. */
OB_FN void ob_lend_replenished(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_place_renew_near(ob, sv, now);
	/* An alarm that came late must not leave a deadline in the past behind. */
	if (sv->s <= now) {
		sv->shift = 0;
		ob_server_set(ob, sv, now, sv->e, now + sv->deadline);
	}
	sv->later = 1;
	/* It need not be late: who wakes a moment before its last deadline has that pair until
	 * then, and no timer is exact. */
	sv->late = now >= sv->release + sv->deadline;
	sv->soon = 0;
	ob_lend_repay(ob, sv, now);
	if (sv->e > 0) {
		ob_slack_claim(ob, sv, now);
		return;
	}
	sv->exhaustions++;
	ob_emit(ob, now, OB_KC(OB_EV_EXHAUST, OB_NONE), OB_TS(OB_NONE, sv->id), 0, sv->s);
	ob_spend(ob, sv, now);
}

OB_INLINE void ob_lend_completed(ob_p ob, ob_server_p sv, u64 now)
{
	ob_slack_hope(ob, sv->domain, now);
}

#endif
