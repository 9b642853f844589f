/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Patience: no thread of a reservation waits for ever.
 *
 * Where an overrun pushes its deadline far ahead, where nothing limits jobs, or where a hard budget
 * of many hours is used up, a reservation's threads may wait for longer than the kernel allows,
 * which would throw the scheduler out. One that has not been served for OB_PATIENCE therefore gets
 * a turn for each thread that waits, in best effort's time: the share that admission has set aside,
 * or what nobody else wants. So it costs no other reservation anything. Its job goes on meanwhile,
 * and its budget and deadline stay as they are.
 */
#ifndef OB_PATIENCE_H
#define OB_PATIENCE_H

#include "ob_key.h"

/* The server whose `wait` is at n. */
#define OB_SERVER_OF_WAIT(n) OB_OF(ob_server, wait, n)

/* CPUs on which a waiting thread of `sv` may run. */
OB_FN u64 ob_patience_mask(ob_server_p sv OB_ARG)
{
	u64 cpus = 0;
	ob_task_p t;

	if (!sv->pinned)
		return sv->cpus;
	for (t = sv->head; t && OB_LOOP; t = t->next)
		cpus |= t->cpus & sv->cpus;
	return cpus;
}

/* Those who waited have had their turns. */
OB_FN void ob_patience_over(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	ob_tree_remove(&ob->impatient, &sv->wait);
	ob->outwaited -= sv->outwaited;
	sv->outwaited = 0;
}

/* Nothing is to be waited for. The instant, seconds away, and the node in the tree stay: to take it
 * out, and to put it in again, with each switch costs more than an alarm for nothing now and then.
 */
OB_INLINE void ob_patience_end(ob_p ob, ob_server_p sv)
{
	sv->due.at[OB_DUE_PATIENCE] = 0;
	if (sv->outwaited)
		ob_patience_over(ob, sv);
}

/* Whether its deadline serves it before that. (The first kind is none: others do not end, then. Nor
 * does a deadline mean that where a group's budget comes first.) */
OB_INLINE int ob_patience_needless(ob_server_p sv, u64 end)
{
	return sv->kind && ob_order_deadlines(sv) && sv->state == OB_READY && !sv->spent &&
	       !sv->demoted && sv->s <= end && !sv->domain->up;
}

/* Threads of `sv` wait. */
OB_FN void ob_patience_waits(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 end = sv->served + OB_PATIENCE;

	if (!sv->state) {
		ob_patience_end(ob, sv);
	} else if (sv->outwaited) {
		ob_tree_update(&sv->wait, ob_patience_mask(sv), 0);
	} else if (!sv->due.at[OB_DUE_PATIENCE] && !ob_patience_needless(sv, end)) {
		ob_due_set(ob, &sv->due, OB_DUE_PATIENCE, end);
	}
}

/* To be called when sv's waiting threads or deadline have changed. */
OB_INLINE void ob_patience_sync(ob_p ob, ob_server_p sv)
{
	if (sv->waiting)
		ob_patience_waits(ob, sv);
	else
		ob_patience_end(ob, sv);
}

/* A thread of `sv` is about to be taken for such a turn. */
OB_FN void ob_patience_had(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	sv->served = now;
	if (sv->outwaited == 1)
		ob_patience_end(ob, sv);
	if (!sv->outwaited)
		return;
	sv->outwaited--;
	ob->outwaited--;
}

/* The time has come that `sv` was given. */
OB_FN void ob_patience_lost(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 cpus, idle;

	if (!sv->waiting)
		return;
	/* It has been served since; but siblings that run may be where others may not. */
	if (!sv->pinned && (sv->running || sv->served + OB_PATIENCE > now)) {
		if (sv->running)
			sv->served = now;
		ob_patience_sync(ob, sv);
		return;
	}
	cpus = ob_patience_mask(sv);
	sv->outwaited = sv->waiting;
	ob->outwaited += sv->outwaited;
	sv->wait.key = sv->served;
	sv->wait.mask = cpus;
	sv->wait.over = 0;
	cpus &= ~(ob->best_effort.root ? ob->best_effort.root->sub_mask : 0);
	ob_share_arrive(ob, cpus, now);
	ob_tree_insert(&ob->impatient, &sv->wait);
	idle = sv->wait.mask & ob->idle;
	if (idle) {
		ob_idle_clear(ob, idle & -idle);
		ob->kick |= idle & -idle;
	} else if (!ob_share_claim(ob, sv->wait.mask, now) && !ob->share_quantum) {
		ob->kick |= sv->wait.mask & -sv->wait.mask;
	}
}

/* Without a share of best effort it is at the expense of all. */
OB_INLINE int ob_patience_presses(ob_p ob, u64 cpus)
{
	return !ob->share_quantum && !!ob_tree_first(&ob->impatient, cpus);
}

/* A server that has lost its patience, and has waited for longer than all best effort has. */
OB_INLINE ob_server_p ob_patience_first(ob_p ob, u64 cpus, u64 now)
{
	ob_node_p n = ob_tree_first(&ob->impatient, cpus);
	ob_task_p t;

	if (!n)
		return OB_NULL;
	t = ob_others_impatient(ob, cpus, now);
	return t && ~t->node.over < n->key ? OB_NULL : OB_SERVER_OF_WAIT(n);
}

/* Whether somebody has lost its patience who waits for one of `cpus`. */
OB_FN u64 ob_patience_is_lost(ob_p ob OB_ARG, u64 cpus, u64 now)
{
	return ob_others_impatient(ob, cpus, now) || ob_tree_first(&ob->impatient, cpus);
}

/* Whether who has lost its patience takes the place of `sv`, which has nothing left but slack:
 * there it is nobody's better. */
OB_INLINE int ob_patience_relieves(ob_p ob, ob_server_p sv, u64 cpus, u64 now)
{
	return sv->spent && !sv->urgent && ob_patience_is_lost(ob, cpus, now);
}

#endif
