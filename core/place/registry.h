/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The registry of placements: one line each. X(NAME, function prefix, when it changes CPUs (0:
 * never, 1: when its part of the budget there is used up, 2: at times only)). A placement in file
 * `place/<prefix>.h`, which is included below, defines
 *
 *   take_up(ob, sv, now)   a job begins: budget and deadline by the rule of a CBS
 *   fresh(ob, sv, now)     the same, of a server that nothing limits
 *   next(ob, sv, now)      the budget is used up: the next one, or its next part
 *   late(ob, sv, now)      a wait for budget ended late: no deadline may be past
 *   passed(ob, sv, now)    OB_DUE_WINDOW has come
 *   begin(ob, sv, now)     it has just been placed so
 *   leave(ob, sv)          its job has ended
 *   unbegin(sv)            its job, which a mark began, was none
 *   count(ob, sv, by)      it counts so often in its domains, besides
 *   rests_until(sv)        when the next budget begins; 0: a part of this one is left
 *   over(sv)               above `now` it has run ahead of its bandwidth
 *   waits(sv)              it waits for time alone, unless it is given budget
 *   shuts_out(sv, cpus, narrow)  a thread bound to `cpus`, for ever not on `narrow`, is not for it
 *
 * each with `ob_<prefix>_` before it. Server policies and orders know of none of them; who makes or
 * moves a reservation describes its windows (ob_windows_describe).
 */
#ifndef OB_PLACES_H
#define OB_PLACES_H

#include "windows.h"

#define OB_PLACES(X)         \
	X(WHOLE, whole, 0)   \
	X(EARLY, windows, 1) \
	X(POSTPONED, windows, 2)

/* When it changes CPUs. */
OB_INLINE u64 ob_place_moves(ob_server_p sv)
{
#define X(NAME, prefix, moves) | (u64)(moves) << 2 * OB_PLACE_##NAME
	return (0 OB_PLACES(X)) >> 2 * sv->place & 3;
#undef X
}

/* Defines ob_place_<hook>, which calls the hook of sv's own placement. */
#define OB_PLACE_HOOK(hook)                                                        \
	OB_FN void ob_place_##hook(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now) \
	{                                                                          \
		switch (sv->place) {                                               \
			OB_PLACES(OB_PLACE_CASE_##hook)                            \
		}                                                                  \
	}
#define OB_PLACE_CASE(NAME, call) \
	case OB_PLACE_##NAME:     \
		call;             \
		break;
#define OB_PLACE_CASE_take_up(NAME, prefix, moves) \
	OB_PLACE_CASE(NAME, ob_##prefix##_take_up(ob, sv, now))
#define OB_PLACE_CASE_fresh(NAME, prefix, moves) \
	OB_PLACE_CASE(NAME, ob_##prefix##_fresh(ob, sv, now))
#define OB_PLACE_CASE_next(NAME, prefix, moves) OB_PLACE_CASE(NAME, ob_##prefix##_next(ob, sv, now))
#define OB_PLACE_CASE_late(NAME, prefix, moves) OB_PLACE_CASE(NAME, ob_##prefix##_late(ob, sv, now))
#define OB_PLACE_CASE_passed(NAME, prefix, moves) \
	OB_PLACE_CASE(NAME, ob_##prefix##_passed(ob, sv, now))
#define OB_PLACE_CASE_begin(NAME, prefix, moves) \
	OB_PLACE_CASE(NAME, ob_##prefix##_begin(ob, sv, now))

OB_PLACE_HOOK(take_up)
OB_PLACE_HOOK(fresh)
OB_PLACE_HOOK(next)
OB_PLACE_HOOK(late)
OB_PLACE_HOOK(passed)
OB_PLACE_HOOK(begin)

/* Answers of sv's own placement; 0 from one that is not in the table. */
#define OB_PLACE_ANSWER(NAME, call) \
	case OB_PLACE_##NAME:       \
		return call;

OB_FN u64 ob_place_rests_until(ob_server_p sv OB_ARG)
{
	switch (sv->place) {
#define X(NAME, prefix, moves) OB_PLACE_ANSWER(NAME, ob_##prefix##_rests_until(sv))
		OB_PLACES(X)
#undef X
	}
	return 0;
}

OB_INLINE u64 ob_place_over(ob_server_p sv)
{
	switch (sv->place) {
#define X(NAME, prefix, moves) OB_PLACE_ANSWER(NAME, ob_##prefix##_over(sv))
		OB_PLACES(X)
#undef X
	}
	return 0;
}

OB_INLINE u64 ob_place_waits(ob_server_p sv)
{
	switch (sv->place) {
#define X(NAME, prefix, moves) OB_PLACE_ANSWER(NAME, ob_##prefix##_waits(sv))
		OB_PLACES(X)
#undef X
	}
	return 0;
}

OB_FN u64 ob_place_shuts_out(ob_server_p sv OB_ARG, u64 cpus, u64 narrow)
{
	switch (sv->place) {
#define X(NAME, prefix, moves) OB_PLACE_ANSWER(NAME, ob_##prefix##_shuts_out(sv, cpus, narrow))
		OB_PLACES(X)
#undef X
	}
	return 0;
}

OB_INLINE void ob_place_leave(ob_p ob, ob_server_p sv)
{
	switch (sv->place) {
#define X(NAME, prefix, moves) OB_PLACE_CASE(NAME, ob_##prefix##_leave(ob, sv))
		OB_PLACES(X)
#undef X
	}
}

OB_INLINE void ob_place_unbegin(ob_server_p sv)
{
	switch (sv->place) {
#define X(NAME, prefix, moves) OB_PLACE_CASE(NAME, ob_##prefix##_unbegin(sv))
		OB_PLACES(X)
#undef X
	}
}

OB_FN void ob_place_count(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 by)
{
	switch (sv->place) {
#define X(NAME, prefix, moves) OB_PLACE_CASE(NAME, ob_##prefix##_count(ob, sv, by))
		OB_PLACES(X)
#undef X
	}
}

/* Whose next deadline, too, has been past for that long, ns, is late for another reason than those
 * who share its queue: a higher class has had the CPUs, some have gone, or its threads were bound
 * to one that could not do it. */
#define OB_LATE_MOST 10000000000ULL
/* The same where nobody should be late: some times what best effort's quanta and EDZL bring. */
#define OB_LATE_ISOLATED 5000000ULL

/* How far past a server's next deadline may be which it keeps. It then goes before who is not, so
 * that it makes up for what it has missed: without that lateness has no bound. */
OB_INLINE u64 ob_place_keeps(ob_server_p sv)
{
	u64 cpus = sv->domain->cpus;

	/* Members wait for their group's budget. */
	if (sv->domain->up || ob_order_ranks(sv) ||
	    ob_order_isolates(sv) < (cpus & (cpus - 1) ? 2 : 1))
		return OB_LATE_MOST;
	return OB_LATE_ISOLATED;
}

/* The budget is used up: the next one, as long as there is no wait for it. */
OB_FN void ob_place_renew(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	while (sv->e <= 0 && !ob_place_waits(sv) && OB_LOOP)
		ob_place_next(ob, sv, now);
}

/* The same under a policy that isolates: who is too late begins anew, lest it make up for all of
 * that at the expense of others. */
OB_FN void ob_place_renew_near(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 next = sv->s + sv->period;

	if (next + OB_LATE_ISOLATED <= now && next + ob_place_keeps(sv) <= now)
		ob_place_late(ob, sv, now);
	ob_place_renew(ob, sv, now);
}

#endif
