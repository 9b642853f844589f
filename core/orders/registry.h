/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The registry of orders: one line each. X(NAME, function prefix, name users type, whether it goes
 * by the servers' deadlines, whether what is without laxity goes first, whether it chooses a set of
 * jobs (choose/registry.h), whether hard ones go before soft ones and what draws best effort, on
 * how many CPUs of one queue it isolates (0: on none, 1: on one, 2: on any number), what it does in
 * a few words). An order in file `orders/<prefix>.h`, which is included below the table, defines
 *
 *   ob_<prefix>_key(sv)    what `sv` is ordered by, least first: a time or a length of time, ns
 *
 * Any order goes with any server (policies/registry.h), on one queue for all CPUs, for each cluster
 * of them or for each CPU; one that ranks has one queue. The model reads the table too (its build
 * script).
 */
#ifndef OB_ORDERS_H
#define OB_ORDERS_H

#include "../ob_types.h"

#define OB_ORDERS(X)                                                                            \
	X(EDF, edf, "edf", 1, 0, 0, 0, 1, "earliest deadline first")                            \
	X(RM, rm, "rm", 0, 0, 0, 0, 0, "shortest period first")                                 \
	X(EDZL, edzl, "edzl", 1, 1, 0, 0, 2, "what can wait no longer first, then by deadline") \
	X(FIFO, fifo, "fifo", 0, 0, 0, 0, 0, "first come, first served")                        \
	X(DASA, dasa, "dasa", 0, 0, 1, 0, 0, "the most value for the time that it takes")       \
	X(HSB, hsb, "hsb", 1, 0, 0, 1, 2,                                                       \
	  "hard ones first, on a CPU each, then soft ones, by deadline")

#include "edf.h"
#include "rm.h"
#include "edzl.h"
#include "fifo.h"
#include "dasa.h"
#include "hsb.h"

enum ob_order {
#define X(NAME, prefix, name, deadlines, laxity, chooses, ranks, isolates, about) OB_ORDER_##NAME,
	OB_ORDERS(X)
#undef X
	    OB_ORDER_COUNT,
};

/* What `sv` is ordered by. */
OB_INLINE u64 ob_order_key(ob_server_p sv)
{
	switch (sv->order) {
#define X(NAME, prefix, name, deadlines, laxity, chooses, ranks, isolates, about) \
	case OB_ORDER_##NAME:                                                     \
		return ob_##prefix##_key(sv);
		OB_ORDERS(X)
#undef X
	}
	return sv->s;
}

/* Whether the order of `sv` goes by deadlines. */
OB_INLINE int ob_order_deadlines(ob_server_p sv)
{
#define X(NAME, prefix, name, deadlines, laxity, chooses, ranks, isolates, about) \
	| (u32)(deadlines) << OB_ORDER_##NAME
	return (0 OB_ORDERS(X)) >> sv->order & 1;
#undef X
}

/* Whether what is without laxity goes first in it. */
OB_INLINE int ob_order_laxity(ob_server_p sv)
{
#define X(NAME, prefix, name, deadlines, laxity, chooses, ranks, isolates, about) \
	| (u32)(laxity) << OB_ORDER_##NAME
	return (0 OB_ORDERS(X)) >> sv->order & 1;
#undef X
}

/* Whether hard ones go before soft ones in it. */
OB_INLINE int ob_order_ranks(ob_server_p sv)
{
#define X(NAME, prefix, name, deadlines, laxity, chooses, ranks, isolates, about) \
	| (u32)(ranks) << OB_ORDER_##NAME
	return (0 OB_ORDERS(X)) >> sv->order & 1;
#undef X
}

/* On how many CPUs of one queue it isolates, as in the table. */
OB_INLINE u32 ob_order_isolates(ob_server_p sv)
{
#define X(NAME, prefix, name, deadlines, laxity, chooses, ranks, isolates, about) \
	| (u32)(isolates) << 2 * OB_ORDER_##NAME
	return (0 OB_ORDERS(X)) >> 2 * sv->order & 3;
#undef X
}

/* The orders that choose, a bit each. */
#define X(NAME, prefix, name, deadlines, laxity, chooses, ranks, isolates, about) \
	| (u32)(chooses) << OB_ORDER_##NAME
enum { OB_ORDERS_CHOOSE = 0 OB_ORDERS(X) };
#undef X

/* Whether the order of `sv` chooses a set of jobs. */
OB_INLINE int ob_order_chooses(ob_server_p sv)
{
	return (u32)OB_ORDERS_CHOOSE >> sv->order & 1;
}

/* The job of `sv` has come, gone or changed: what was chosen before no longer holds. */
OB_INLINE void ob_order_stale(ob_server_p sv)
{
	if (ob_order_chooses(sv))
		sv->domain->stale = 1;
}

#endif
