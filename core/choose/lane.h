/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a chooser works on: the jobs of one queue, and lanes, one for each CPU, on which it tries
 * what would end in time if each lane served its jobs by deadline. All of it is in ob->plan, for
 * the kernel's stack is short.
 */
#ifndef OB_LANE_H
#define OB_LANE_H

#include "rank.h"

typedef struct ob_choice OB_ARENA *ob_choice_p;

/* The job whose `node` is at n. */
#define OB_CHOICE_OF(n) OB_OF(ob_choice, node, n)

/* The one after `n` in its tree, or null. Global: its loops would be gone through for each caller's
 * states. */
OB_FN u64 ob_choice_next(ob_node_p n OB_ARG)
{
	return (u64)ob_tree_next(n);
}

/* Puts `job` into lane number `lane` if all jobs there still end in time; whether they do. Goes
 * through that lane's jobs once. */
OB_FN u64 ob_lane_take(ob_p ob OB_ARG, u32 lane, ob_choice_p job OB_ARG, u64 now)
{
	ob_choice_p before = OB_NULL, after = ob->plan.lane[lane & (OB_MAX_CPUS - 1)], at;
	u64 end = now;

	for (; after && after->due <= job->due && OB_LOOP; after = after->next) {
		end += after->left;
		before = after;
	}
	end += job->left;
	if (end > job->due)
		return 0;
	for (at = after; at && OB_LOOP; at = at->next) {
		end += at->left;
		if (end > at->due)
			return 0;
	}
	job->next = after;
	if (before)
		before->next = job;
	else
		ob->plan.lane[lane & (OB_MAX_CPUS - 1)] = job;
	return 1;
}

/* The first of each lane is to run now, the others later. */
OB_FN void ob_lanes_rank(ob_p ob OB_ARG)
{
	ob_choice_p at;
	u32 lane;

	for (lane = OB_ZERO; lane < ob->plan.lanes && OB_LOOP; lane++) {
		at = ob->plan.lane[lane & (OB_MAX_CPUS - 1)];
		if (!at)
			continue;
		at->rank = OB_RANK_NOW;
		for (at = at->next; at && OB_LOOP; at = at->next)
			at->rank = OB_RANK_LATER;
	}
}

#endif
