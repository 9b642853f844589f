/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The registry of server policies: one line each. X(NAME, function prefix, name users type, whether
 * budgets are enforced (2: who has used one up waits for the next), whether it isolates (what is
 * admitted gets its budget in time whatever the other reservations do), how it lends slack (enum
 * ob_lending), what it does in a few words). A policy in file `policies/<prefix>.h`, which is
 * included below the table, defines
 *
 *   ob_<prefix>_release(ob, sv, now)      a job begins: set budget and deadline
 *   ob_<prefix>_exhausted(ob, sv, now)    the budget is used up
 *   ob_<prefix>_completed(ob, sv, now)    the job has ended; sv has left the queue
 *   ob_<prefix>_replenished(ob, sv, now)  a throttled server's time has come
 *
 * The dispatcher requeues `sv` itself after each of them. The model reads the table too (its build
 * script), so nothing else knows the policies by name. docs/add-a-policy.md is the guide.
 */
#ifndef OB_REGISTRY_H
#define OB_REGISTRY_H

#include "../ob_lend.h"

#define OB_POLICIES(X)                                                                     \
	X(NONE, none, "", 0, 0, NOT, "jobs are not limited")                               \
	X(CBS_HARD, cbs_hard, "cbs-hard", 2, 1, NOT, "at most the budget in every period") \
	X(CBS, cbs, "cbs", 1, 1, NOT, "an overrun goes on with a later deadline")          \
	X(FCBS, fcbs, "fcbs", 1, 0, NOT, "as cbs, and budget left over goes to others")    \
	X(FCBS_LAG, fcbs_lag, "fcbs-lag", 1, 0, NOT,                                       \
	  "as fcbs, but only overruns receive, worst first")                               \
	X(CBS_SLACK, cbs_slack, "cbs-slack", 1, 1, DEADLINE,                               \
	  "an overrun goes on where there is slack, its deadline kept")                    \
	X(CBS_PREDICT, cbs_predict, "cbs-predict", 1, 1, START,                            \
	  "as cbs-slack, and there those first who will probably need longest")            \
	X(CASH, cash, "cash", 1, 1, NOT,                                                   \
	  "as cbs-hard, and beyond the budget what others leave or nobody wants")

#include "none.h"
#include "cbs_hard.h"
#include "cbs.h"
#include "fcbs.h"
#include "fcbs_lag.h"
#include "cbs_slack.h"
#include "cbs_predict.h"
#include "cash.h"

enum ob_kind {
#define X(NAME, prefix, name, enforced, isolates, lends, about) OB_KIND_##NAME,
	OB_POLICIES(X)
#undef X
	    OB_KINDS,
};

/* Defines ob_policy_<hook>(ob, sv, now), which calls the hook of sv's own policy. */
#define OB_POLICY_HOOK(hook)                                                        \
	OB_FN void ob_policy_##hook(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now) \
	{                                                                           \
		switch (sv->kind) {                                                 \
			OB_POLICIES(OB_POLICY_CASE_##hook)                          \
		}                                                                   \
	}
#define OB_POLICY_CASE_release(NAME, prefix, name, enforced, isolates, lends, about) \
	case OB_KIND_##NAME:                                                         \
		ob_##prefix##_release(ob, sv, now);                                  \
		break;
#define OB_POLICY_CASE_exhausted(NAME, prefix, name, enforced, isolates, lends, about) \
	case OB_KIND_##NAME:                                                           \
		ob_##prefix##_exhausted(ob, sv, now);                                  \
		break;
#define OB_POLICY_CASE_completed(NAME, prefix, name, enforced, isolates, lends, about) \
	case OB_KIND_##NAME:                                                           \
		ob_##prefix##_completed(ob, sv, now);                                  \
		break;
#define OB_POLICY_CASE_replenished(NAME, prefix, name, enforced, isolates, lends, about) \
	case OB_KIND_##NAME:                                                             \
		ob_##prefix##_replenished(ob, sv, now);                                  \
		break;

OB_POLICY_HOOK(release)
OB_POLICY_HOOK(exhausted)
OB_POLICY_HOOK(completed)
OB_POLICY_HOOK(replenished)

/* What a mark began was no job: all threads sleep. So only now is what is left nobody's. */
OB_INLINE void ob_policy_unbegun(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->kind == OB_KIND_CASH)
		ob_cash_leave(ob, sv, now);
}

/* Whether sv's budget is enforced. Who is split goes on by what it has used. */
OB_INLINE int ob_policy_enforces(ob_server_p sv)
{
#define X(NAME, prefix, name, enforced, isolates, lends, about) \
	| (u32) !!(enforced) << OB_KIND_##NAME
	return ob_place_moves(sv) || (0 OB_POLICIES(X)) >> sv->kind & 1;
#undef X
}

/* How it orders servers where there is slack: enum ob_lending. */
OB_INLINE u32 ob_policy_lends(ob_server_p sv)
{
#define X(NAME, prefix, name, enforced, isolates, lends, about) \
	| (u64)OB_LENDS_##lends << 2 * OB_KIND_##NAME
	return (0 OB_POLICIES(X)) >> 2 * sv->kind & 3;
#undef X
}

#endif
