/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a chooser (choose/registry.h) puts a server in its queue. */
#ifndef OB_RANK_H
#define OB_RANK_H

#include "../ob_types.h"

/* What comes first in a queue; of each rank but the first, the earliest deadline. */
enum ob_rank {
	OB_RANK_NOW = 0,   /* it is to run: no more of these than CPUs, and none passes another */
	OB_RANK_LATER = 1, /* it is in the plan, behind one that is to run now */
	OB_RANK_LEFT = 2,  /* it is not in the plan */
};

/* Below a rank's bits there is room for a deadline, ns: 18 years. */
#define OB_RANK_SHIFT 59

/* What a server of such a queue is ordered by. */
OB_INLINE u64 ob_rank_key(ob_server_p sv)
{
	u64 rank = (u64)(sv->rank & 3) << OB_RANK_SHIFT;

	return rank ? rank | ob_min(sv->s, (1ULL << OB_RANK_SHIFT) - 1) : 0;
}

#endif
