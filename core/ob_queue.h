/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a server stands in its queue: for which CPUs, by what key, and whether it may run at all.
 */
#ifndef OB_QUEUE_H
#define OB_QUEUE_H

#include "ob_account.h"
#include "ob_patience.h"

/* Whether it has used up its share of a window and been given nothing (EDF-WMR). */
OB_INLINE int ob_server_starves(ob_server_p sv)
{
	return ob_place_waits(sv) && sv->e <= 0;
}

/* Whether it may not run now, though its threads want to. */
OB_INLINE int ob_server_rests(ob_server_p sv)
{
	return sv->state == OB_RESTS || ob_server_starves(sv);
}

/* Whether `sv`, and each group that it is in, may run and has a CPU among these. */
OB_FN u64 ob_group_open(ob_server_p sv OB_ARG, u64 cpus)
{
	for (; sv && OB_LOOP; sv = sv->domain->up)
		if (ob_server_rests(sv) || !(sv->cpus & cpus))
			return 0;
	return 1;
}

/* Whether what `sv` serves may run on `cpus`. */
OB_INLINE u64 ob_server_open(ob_server_p sv, u64 cpus)
{
	return sv->domain->up ? ob_group_open(sv, cpus) : !ob_server_rests(sv) && (sv->cpus & cpus);
}

/* CPUs on which `t` may run under `sv`. */
OB_INLINE u64 ob_thread_cpus(ob_server_p sv, ob_task_p t)
{
	return t->cpus & sv->cpus;
}

/* Where what waits in a server may be served that has members, draws, is split, or has threads of
 * narrower affinities. */
OB_FN u64 ob_server_mask_of(ob_server_p sv OB_ARG)
{
	u64 cpus = 0;
	ob_task_p t;

	if (sv->members)
		return sv->members->active.root ? sv->members->active.root->sub_mask & sv->cpus : 0;
	if (!sv->waiting || ob_server_starves(sv))
		return sv->draws && !sv->running && !sv->drawn ? sv->domain->others & sv->cpus : 0;
	if (!sv->pinned)
		return sv->cpus;
	for (t = sv->head; t && OB_LOOP; t = t->next)
		cpus |= ob_thread_cpus(sv, t);
	return cpus;
}

/* Where what waits in it may be served; most have none of those. */
OB_INLINE u64 ob_server_mask(ob_server_p sv)
{
	if (sv->members || sv->draws || sv->pinned || ob_place_moves(sv))
		return ob_server_mask_of(sv);
	return sv->waiting ? sv->cpus : 0;
}

/* Whether a thread of it waits, or one that it draws. */
OB_INLINE int ob_server_waits(ob_server_p sv)
{
	return sv->members || sv->draws ? !!sv->node.mask : !!sv->waiting;
}

/* CPUs that run threads of `sv`. */
OB_FN u64 ob_server_running_on(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 cpus = 0;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_runs(ob_cpu(ob, i), sv))
			cpus |= OB_BIT(i);
	return cpus;
}

#include "orders/laxity.h"

/* The node of `sv`, a member, has changed: its groups stand in their queues for what waits in them.
 */
OB_FN void ob_group_sync(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 mask;

	for (sv = sv->domain->up; sv && sv->state == OB_READY && OB_LOOP; sv = sv->domain->up) {
		mask = ob_server_mask(sv);
		if (!sv->node.linked) {
			sv->node.key = ob_server_node_key(sv, sv->charged);
			sv->node.mask = mask;
			sv->node.over = ob_server_over(sv);
			ob_tree_insert(&sv->domain->active, &sv->node);
		} else if (sv->node.mask == mask) {
			return;
		} else {
			ob_tree_update(&sv->node, mask, sv->node.over);
		}
		ob_laxity_sync(ob, sv);
	}
}

/* Takes `sv` out of its queue. */
OB_INLINE void ob_server_unlink(ob_p ob, ob_server_p sv)
{
	ob_order_stale(sv);
	ob_tree_remove(&sv->domain->active, &sv->node);
	if (sv->domain->up)
		ob_group_sync(ob, sv);
}

/* Brings sv's nodes in line with its waiting threads, and `over` as it is; key unchanged. */
OB_INLINE void ob_server_masks(ob_p ob, ob_server_p sv, u64 over)
{
	u64 mask = ob_server_mask(sv);

	if (sv->node.mask != mask || sv->node.over != over)
		ob_tree_update(&sv->node, mask, over);
	if (sv->domain->up)
		ob_group_sync(ob, sv);
	ob_laxity_sync(ob, sv);
	ob_patience_sync(ob, sv);
}

/* The same with its deadline. */
OB_FN void ob_server_update(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	ob_server_masks(ob, sv, ob_server_over(sv));
}

/* Puts the threads of `sv` that wait where its key of `now` belongs. */
OB_FN void ob_server_stand(ob_server_p sv OB_ARG, u64 now)
{
	u64 key;

	if (!sv->node.linked)
		return;
	key = ob_server_node_key(sv, now);
	if (sv->node.key == key)
		return;
	ob_tree_remove(&sv->domain->active, &sv->node);
	sv->node.key = key;
	ob_tree_insert(&sv->domain->active, &sv->node);
}

/* A thread of `sv` that waits stands where those that run do: keys by the latest time to begin grow
 * while they run, and a thread is not to go before its own siblings by an older key. */
OB_INLINE void ob_server_restand(ob_server_p sv, u64 now)
{
	if (ob_policy_lends(sv) == OB_LENDS_START || sv->urgent || sv->soon)
		ob_server_stand(sv, now);
}

#endif
