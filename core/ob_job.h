/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Jobs of reservations: when one begins and ends, and what a group learns of it. A job is one
 * release: from the first thread's waking, or a mark, to the last one's sleeping, or the next mark.
 */
#ifndef OB_JOB_H
#define OB_JOB_H

#include "ob_blame.h"
#include "ob_owed.h"
#include "ob_work.h"
#include "policies/registry.h"

/* Between marking a job and sleeping until the next release a program needs less service, ns: two
 * system calls, which take up to 100 us on the lab's slow CPUs. */
#define OB_MARK_GRACE 200000ULL

/* A job of `sv` begins. */
OB_FN void ob_server_begin(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_charge(sv, now);
	sv->state = OB_READY;
	sv->release = now;
	sv->begun = sv->consumed;
	ob_work_begin(sv, now);
	sv->urgent = 0;
	sv->later = 0;
	sv->late = 0;
	sv->soon = 0;
	sv->rank = OB_RANK_LEFT;
	ob_order_stale(sv);
	ob_blame_begin(sv);
	ob_owed_release(sv, now);
	ob_policy_release(ob, sv, now);
	sv->woke = 0;
	if (sv->e <= 0 && ob_policy_enforces(sv) && sv->state == OB_READY) {
		sv->dry = 1;
		ob_policy_exhausted(ob, sv, now);
	}
	ob_emit(ob, now, OB_KC(OB_EV_ACTIVATE, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)sv->e, sv->s);
}

/* A server in the middle of a marked job wakes: what slept past its deadline or hoarded budget may
 * not fall upon the others now (the CBS's rule for a job that arrives). Without a server a job
 * keeps its deadline, but until the first mark each wake begins the first job: what a program did
 * while it started up is none. */
OB_FN void ob_server_wake(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (ob_server_rests(sv) || (sv->spent && sv->due.at[OB_DUE_SPENT] > now))
		return;
	ob_unspend(ob, sv, now);
	if (!ob_policy_enforces(sv)) {
		if (sv->jobs)
			return;
		ob_server_charge(sv, now);
		sv->release = now;
		sv->begun = sv->consumed;
		ob_blame_begin(sv);
		ob_policy_release(ob, sv, now);
		ob_server_requeue(ob, sv);
		return;
	}
	ob_server_charge(sv, now);
	ob_server_restore(ob, sv, now);
	sv->had = 0;
	sv->woke = 1;
	ob_place_take_up(ob, sv, now);
	if (sv->e <= 0) {
		sv->dry = 1;
		ob_policy_exhausted(ob, sv, now);
	}
	ob_server_requeue(ob, sv);
}

/* `sv` has no job any more. */
OB_FN void ob_server_leave(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_charge(sv, now);
	ob_lent(ob, sv, now);
	ob_account_promote(ob, sv);
	ob_server_unlink(ob, sv);
	/* One that leaves while throttled keeps e ≤ 0 and its deadline: the release rule sees that.
	 */
	sv->state = OB_IDLE;
	sv->broke = 0;
	sv->urgent = 0;
	sv->marked = 0;
	sv->spent = 0;
	sv->soon = 0;
	ob_patience_end(ob, sv);
	ob_due_forget(ob, &sv->due);
	ob_place_leave(ob, sv);
}

/* A job of `sv` ends: counters, and the policy may pass on what is left. */
OB_FN void ob_server_end(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 due = sv->release + sv->deadline;
	int owed;

	ob_server_leave(ob, sv, now);
	ob_work_end(sv, now);
	sv->jobs++;
	owed = ob_owed_complete(sv, due, now);
	if (now > due) {
		ob_blame_late(sv, owed);
		sv->misses++;
		sv->tardiness_sum += now - due;
		sv->tardiness_max = ob_max(sv->tardiness_max, now - due);
	}
	ob_emit(ob, now, OB_KC(OB_EV_IDLE, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)sv->e, sv->s);
	ob_policy_completed(ob, sv, now);
}

/*
 * Whether `sv`, a member, wants service has perhaps changed: its threads are awake, or it draws and
 * somebody waits, and no lack of budget stops it. With the first member that does a group's job
 * begins, and it ends when none does.
 */
OB_FN void ob_group_want(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_p up;

	for (up = sv->domain->up; up && OB_LOOP; up = sv->domain->up) {
		u8 wants = sv->state == OB_READY && (sv->awake || sv->draws);

		if (sv->wants == wants)
			return;
		sv->wants = wants;
		if (wants) {
			if (up->awake++)
				return;
			ob_server_begin(ob, up, now);
			if (!up->purse || !ob_purse_stops(ob, up, now))
				ob_server_requeue(ob, up);
		} else {
			if (--up->awake)
				return;
			ob_server_end(ob, up, now);
		}
		sv = up;
	}
}

OB_INLINE void ob_want(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->domain->up)
		ob_group_want(ob, sv, now);
}

/* The first of its threads wants to run. */
OB_INLINE void ob_server_rouse(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->state)
		ob_blame_slept(sv, now);
	sv->served = now;
	sv->waits = now;
	ob_order_stale(sv);
	if (sv->state)
		ob_server_wake(ob, sv, now);
	else
		ob_server_begin(ob, sv, now);
	if (sv->purse)
		ob_purse_stops(ob, sv, now);
	ob_want(ob, sv, now);
}

/* Who marks a job and then sleeps until the next release has not begun that next job with the mark:
 * it begins when waking up, with the pair of budget and deadline it has by then, as ever. Not in
 * the log: it is an ACTIVATE that another follows. */
OB_FN void ob_server_unbegin(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 used;

	ob_server_charge(sv, now);
	used = sv->consumed - sv->marked_consumed;
	if (!sv->marked || used >= OB_MARK_GRACE || (sv->has_saved && !ob_borrows(sv)))
		return;
	ob_server_restore(ob, sv, now);
	ob_server_leave(ob, sv, now);
	ob_place_unbegin(sv);
	ob_policy_unbegun(ob, sv, now);
}

#endif
