/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Zero laxity: who would be late if it waited any longer goes before all others. Orders that have
 * it say so in the registry's column.
 */
#ifndef OB_LAXITY_H
#define OB_LAXITY_H

#include "../ob_due.h"

/* Under EDZL a lending server is urgent so much before its laxity ends, ns, yet behind those whose
 * laxity has ended: others of its domain do not run by deadline, and several may end together. */
#define OB_MARGIN 1500000ULL

/* What a change of laxity is followed by (ob_server.h, ob_claim.h). */
OB_FN void ob_server_charge(ob_server_p sv OB_ARG, u64 now);
OB_FN void ob_server_stand(ob_server_p sv OB_ARG, u64 now);
OB_FN void ob_server_requeue(ob_p ob OB_ARG, ob_server_p sv OB_ARG);
OB_FN void ob_preempt(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 prefer);

/* Whether it is served before others for want of laxity, and a thread of it runs. */
OB_INLINE int ob_server_attended(ob_server_p sv)
{
	return sv->running && (sv->urgent || sv->soon);
}

/* Whether a thread of `sv` runs where those that wait can take turns with it. */
OB_INLINE int ob_server_sees_to(ob_p ob, ob_server_p sv)
{
	if (!sv->running)
		return 0;
	return !sv->pinned || (sv->node.mask & ob_server_running_on(ob, sv));
}

/* So long before its deadline `sv` has to be served from then on, to have what is left of its
 * budget in time: of each CPU best effort has its share. */
OB_INLINE u64 ob_laxity_needs(ob_p ob, ob_server_p sv)
{
	return (u64)sv->e * 1000 / (1000 - ob->share_permille);
}

/*
 * EDZL (Lee 1994; Cho, Lee, Ahn, Lin 2002): earliest deadline first, save that a server that would
 * miss its deadline if it waited any longer goes before all others. Here the laxity is the
 * reservation's, s − now − e/(1 − σ): what it is owed, not what its job may need. While no thread
 * of it runs e stands still, so laxity ends at the fixed time s − e/(1 − σ). Whatever G-EDF
 * schedules in time, EDZL does too (Park et al. 2005), and six reservations of 25 ms in 41 ms fit
 * four CPUs.
 */
OB_FN void ob_laxity_set(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 need = ob_laxity_needs(ob, sv) + (sv->counted && !sv->soon ? OB_MARGIN : 0), end;

	/* Windows that change at their ends see to it. */
	if (sv->state != OB_READY || !ob_server_waits(sv) || sv->urgent || sv->e <= 0 ||
	    ob_place_moves(sv) == 2 || ob_server_sees_to(ob, sv))
		end = 0;
	else
		end = sv->s > need ? sv->s - need : 1;
	ob_due_set(ob, &sv->due, OB_DUE_LAXITY, end);
}

/* To be called when it may have changed. */
OB_INLINE void ob_laxity_sync(ob_p ob, ob_server_p sv)
{
	if (ob_order_laxity(sv))
		ob_laxity_set(ob, sv);
}

/* The key of those of sv's threads that wait. Without laxity a server needs one CPU, and has it if
 * one of its threads runs: the siblings are not to take those of others. */
OB_FN u64 ob_server_node_key(ob_server_p sv OB_ARG, u64 now)
{
	u64 key = ob_server_key(sv, now), urgent = sv->urgent, soon = sv->soon;

	if (!ob_server_attended(sv))
		return key;
	sv->urgent = 0;
	sv->soon = 0;
	key = ob_server_key(sv, now);
	sv->urgent = (u8)urgent;
	sv->soon = (u8)soon;
	return key;
}

/* A thread of `sv` has begun to run. One is enough for want of laxity; with more there is some. */
OB_INLINE void ob_server_attend(ob_p ob, ob_server_p sv, u64 now)
{
	if (!ob_server_attended(sv))
		return;
	if (sv->running == 1) {
		ob_server_stand(sv, now);
		return;
	}
	sv->urgent = 0;
	sv->soon = 0;
	ob_server_requeue(ob, sv);
}

/* Whether a lending server's laxity is about to end, and has not. */
OB_INLINE int ob_soon(ob_p ob, ob_server_p sv, u64 now)
{
	u64 done = now + ob_laxity_needs(ob, sv);

	return sv->counted && !sv->soon && ob_order_laxity(sv) && sv->e > 0 && done < sv->s &&
	       done + OB_MARGIN >= sv->s;
}

/* Laxity has ended, or is about to. */
OB_INLINE void ob_laxity_over(ob_p ob, ob_server_p sv, u64 now)
{
	/* A thread of it has run meanwhile beside those that wait. */
	if (sv->running) {
		ob_server_charge(sv, now);
		ob_server_requeue(ob, sv);
		if (!ob_due_comes(&sv->due, OB_DUE_LAXITY, now))
			return;
	}
	if (ob_soon(ob, sv, now))
		sv->soon = 1;
	else
		sv->urgent = 1;
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

#endif
