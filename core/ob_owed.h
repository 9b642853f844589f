/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The measure of the promise: how many jobs a reservation owed, and how many of those were late.
 * Owed is what a CPU that gives the program exactly Q in every P would have finished in time;
 * docs/events.md defines it, and model/src/metrics/owed.rs computes the same from events. Nothing
 * here has a say in what runs.
 */
#ifndef OB_OWED_H
#define OB_OWED_H

#include "ob_server.h"

/* Budgets are enforced to within that, ns: a job is owed only if so much would be left over. */
#define OB_OWED_GRAIN 50000

/* A job begins. One that a mark begins follows the job before without a pause. */
OB_INLINE void ob_owed_release(ob_server_p sv, u64 now)
{
	if (sv->owed_end < now ||
	    (!sv->marked && ob_server_spares(sv, sv->owed_end - now, sv->owed_left))) {
		sv->owed_end = now + sv->deadline;
		sv->owed_left = sv->budget;
	} else if (sv->owed_end == now) {
		sv->owed_left = 0;
	}
}

/* How many more windows than the present one `work` needs. */
OB_INLINE u64 ob_owed_windows(ob_server_p sv, u64 work)
{
	u64 budget = ob_max(sv->budget, 1);

	return work > sv->owed_left ? (work - sv->owed_left + budget - 1) / budget : 0;
}

/* The job whose deadline is `due` ends; the server has been charged. Whether it was owed. */
OB_INLINE int ob_owed_complete(ob_server_p sv, u64 due, u64 now)
{
	u64 work = sv->consumed - sv->owed_from, windows;
	u64 grain = ob_min(OB_OWED_GRAIN, sv->budget / 20);
	int owed;

	sv->owed_from = sv->consumed;
	windows = ob_owed_windows(sv, work + grain);
	/* A member gets what its group leaves it, and who takes from a purse what is in that. */
	owed = sv->owed_end + windows * sv->period <= due && !sv->domain->up && !sv->purse;
	if (owed) {
		sv->owed++;
		if (now > due) {
			sv->owed_late++;
			sv->owed_tardiness_max = ob_max(sv->owed_tardiness_max, now - due);
		}
	}
	windows = ob_owed_windows(sv, work);
	sv->owed_end += windows * sv->period;
	sv->owed_left += windows * sv->budget - work;
	return owed;
}

#endif
