/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hard constant bandwidth server with capacity sharing (Caccamo, Buttazzo and Sha, "Capacity
 * sharing for overrun control", RTSS 2000), and background service as EDF-HSB has it: who has used
 * up its budget goes on with what another leaves, at that one's deadline, and else behind all who
 * have budget, uncharged, until its own next budget comes. ob_cash.h says what may be left.
 */
#ifndef OB_CASH_POLICY_H
#define OB_CASH_POLICY_H

#include "../ob_cash.h"

OB_INLINE void ob_cash_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_cash_begin(ob, sv, now);
}

OB_INLINE void ob_cash_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	ob_cash_dry(ob, sv, now);
}

OB_INLINE void ob_cash_completed(ob_p ob, ob_server_p sv, u64 now)
{
	ob_cash_leave(ob, sv, now);
}

OB_INLINE void ob_cash_replenished(ob_p ob, ob_server_p sv, u64 now)
{
	ob_cash_return(ob, sv, now);
	ob_cbs_hard_replenished(ob, sv, now);
}

#endif
