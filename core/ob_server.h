/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the policies may do to a server: charge it, give it a new deadline, throttle it, move it in
 * its domain's queue. Policies call these and nothing else.
 */
#ifndef OB_SERVER_H
#define OB_SERVER_H

#include "ob_claim.h"

/* Takes the time since the last charge off the budget, once for each running thread. */
OB_FN void ob_server_charge(ob_server_p sv OB_ARG, u64 now)
{
	u64 used;

	if (sv->running && now > sv->charged) {
		used = (now - sv->charged) * sv->running;
		sv->consumed += used;
		sv->served = now;
		/* Slack is nobody's budget. */
		if (!sv->spent)
			sv->e -= (s64)used;
		else
			sv->lent += used;
		if (sv->account)
			ob_account_charge(sv, used, now);
	}
	if (sv->account)
		sv->account->charged += (now - sv->charged) * sv->running;
	sv->charged = now;
}

/* `sv`, just charged, is about to live on slack no more: tells the trace what it has had of it. */
OB_INLINE void ob_lent(ob_p ob, ob_server_p sv, u64 now)
{
	if (!sv->lent)
		return;
	ob_emit(ob, now, OB_KC(OB_EV_LEND, ob_named(sv->domain)), OB_TS(OB_NONE, sv->id), sv->lent,
		sv->s);
	sv->slack += sv->lent;
	sv->had += sv->lent;
	sv->lent = 0;
}

/* New budget and deadline; the caller requeues. */
OB_FN void ob_server_set(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now, s64 e, u64 s)
{
	sv->e = e;
	sv->s = s;
	ob_order_stale(sv);
	ob_pledge(sv);
	if (sv->demoted)
		ob_account_renewed(ob, sv, now);
	ob_emit(ob, now, OB_KC(OB_EV_REPLENISH, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)e, s);
}

/* A server that runs on a borrowed pair gets its own back, with what is left of the other. */
OB_FN void ob_server_restore(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (!sv->has_saved)
		return;
	/* A capacity's deadline is its own: nothing of it stays. */
	if (ob_borrows(sv) && sv->e > 0)
		sv->e = 0;
	sv->has_saved = 0;
	sv->e += sv->saved_e;
	sv->s = sv->saved_s;
	ob_order_stale(sv);
	ob_emit(ob, now, OB_KC(OB_EV_RESTORE, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)sv->e, sv->s);
}

/* Takes `sv` out of the queue until time `until`; ob_alarm brings it back. */
OB_INLINE void ob_server_throttle(ob_p ob, ob_server_p sv, u64 now, u64 until)
{
	ob_server_unlink(ob, sv);
	sv->state = OB_RESTS;
	ob_due_set(ob, &sv->due, OB_DUE_REFILL, ob_max(until, 1));
	ob_emit(ob, now, OB_KC(OB_EV_THROTTLE, OB_NONE), OB_TS(OB_NONE, sv->id), 0, until);
}

/* If a purse of `sv`, which is ready, is empty, it rests until there is money. Whether so. */
OB_FN u64 ob_purse_stops(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 until = ob_purse_lacks(sv->purse, now);

	if (!until || sv->state != OB_READY)
		return 0;
	ob_server_charge(sv, now);
	sv->broke = 1;
	sv->dry = 1;
	ob_server_throttle(ob, sv, now, until);
	ob_server_requeue(ob, sv);
	return 1;
}

/* Takes `sv`, which no queue of a domain holds, to `cpus` of domain `to`. Who runs elsewhere stops.
 */
OB_FN void ob_server_rehome(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_domain_p to OB_ARG, u64 cpus)
{
	ob_task_p t;

	sv->domain = to;
	sv->cpus = cpus;
	sv->pinned = 0;
	for (t = sv->head; t && OB_LOOP; t = t->next)
		if (cpus & ~t->cpus)
			sv->pinned++;
	/* Where it runs now another may come first, and where it goes it may. */
	ob->kick |= ob_server_running_on(ob, sv);
}

#endif
