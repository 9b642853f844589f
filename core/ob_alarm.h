/* SPDX-License-Identifier: GPL-2.0-only */
/* Instants at which time alone changes something. */
#ifndef OB_ALARM_H
#define OB_ALARM_H

#include "ob_run.h"

/* The window of `sv` is over: what it was given there stays behind. */
OB_INLINE void ob_window_over(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	ob_server_restore(ob, sv, now);
	ob_place_passed(ob, sv, now);
	if (sv->e <= 0)
		ob_policy_exhausted(ob, sv, now);
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* A spent server's deadline has come. */
OB_INLINE void ob_spent_over(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	ob_unspend(ob, sv, now);
	ob_policy_replenished(ob, sv, now);
	/* The new budget ended its demotion, and may be used up already. */
	if (sv->account)
		ob_account_check(ob, sv, now);
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* A demoted server may be one no more. */
OB_FN void ob_account_review(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_charge(sv, now);
	if (ob_account_restored(sv, now)) {
		ob_account_promote(ob, sv);
		ob_server_requeue(ob, sv);
		ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
		return;
	}
	ob_account_watch(ob, sv, now);
}

/* A throttled server's time of replenishment has come. */
OB_INLINE void ob_refill(ob_p ob, ob_server_p sv, u64 now)
{
	sv->state = OB_READY;
	ob_order_stale(sv);
	if (sv->broke) {
		/* As if it had slept. */
		sv->broke = 0;
		ob_server_restore(ob, sv, now);
		ob_unspend(ob, sv, now);
		ob_place_take_up(ob, sv, now);
		if (sv->e <= 0 && ob_policy_enforces(sv))
			ob_policy_exhausted(ob, sv, now);
	} else {
		ob_policy_replenished(ob, sv, now);
	}
	if (sv->purse)
		ob_purse_stops(ob, sv, now);
	ob_want(ob, sv, now);
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
	/* Those for whom it was to come back may have been served. */
	if (sv->draws)
		ob_draw_sync(ob, 0, now);
}

/* What is due at a server. Each may undo the next. */
OB_FN void ob_due_server(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_due_p due = &sv->due;

	if (ob_due_comes(due, OB_DUE_WINDOW, now))
		ob_window_over(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_SPENT, now))
		ob_spent_over(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_REFILL, now))
		ob_refill(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_LAXITY, now))
		ob_laxity_over(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_PATIENCE, now))
		ob_patience_lost(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_REVIEW, now))
		ob_account_review(ob, sv, now);
}

/* Sees to all that is due: budgets that come back, laxity, windows and patience that end, slack
 * that is to be reckoned anew. */
OB_FN void ob_alarm(ob_p ob OB_ARG, u64 now)
{
	ob_node_p n = ob_tree_head(&ob->due);

	for (; n && n->key <= now && OB_LOOP; n = ob_tree_head(&ob->due)) {
		ob_due_p due = OB_OF(ob_due, node, n);

		ob_tree_remove(&ob->due, n);
		/* Of those that are linked, only domains have one of these. */
		if (!due->at[OB_DUE_LOOK])
			ob_due_server(ob, OB_OF(ob_server, due, due), now);
		else if (ob_due_comes(due, OB_DUE_LOOK, now))
			ob_slack_look(ob, OB_OF(ob_domain, due, due), now);
		ob_due_link(ob, due);
	}
	ob->alarm_at = n ? n->key : OB_NEVER;
}

#endif
