/* SPDX-License-Identifier: GPL-2.0-only */
/* What begins to run under a reservation, or stops, charges it, its purse, and all groups that it
 * is in: threads of its own, or best effort that it draws. */
#ifndef OB_SERVE_H
#define OB_SERVE_H

#include "ob_budget.h"

/* A thread of `sv` has begun to run: its purses pay for it. Others that they pay for have so much
 * less: their CPUs look again sooner. */
OB_FN void ob_purse_begins(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u32 i;

	ob_purse_run(sv->purse, 1, now);
	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_cpu(ob, i)->server)
			ob_arm(ob, ob_cpu(ob, i));
}

/* A thread of `sv` has begun to run: its groups are charged for it. Returns the outermost. */
OB_FN u64 ob_group_begins(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_p up;

	for (up = sv->domain->up; up && OB_LOOP; up = up->domain->up) {
		ob_server_charge(up, now);
		up->running++;
		ob_account_run(up, 1, now);
		if (up->purse)
			ob_purse_begins(ob, up, now);
		sv = up;
		ob_server_attend(ob, up, now);
		if (up->running > 1)
			ob_server_rearm(ob, up);
	}
	return (u64)sv;
}

/* It has stopped. */
OB_FN void ob_group_stops(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	for (sv = sv->domain->up; sv && OB_LOOP; sv = sv->domain->up) {
		ob_server_charge(sv, now);
		sv->running--;
		ob_account_run(sv, (u32)-1, now);
		if (sv->purse)
			ob_purse_run(sv->purse, (u32)-1, now);
		if (sv->urgent || sv->soon)
			ob_server_restand(sv, now);
		ob_laxity_sync(ob, sv);
	}
}

/* One more runs under `sv`. Returns the outermost group that it is in, or `sv`. */
OB_INLINE ob_server_p ob_server_begins(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	sv->running++;
	ob_account_run(sv, 1, now);
	if (sv->purse)
		ob_purse_begins(ob, sv, now);
	return sv->domain->up ? (ob_server_p)ob_group_begins(ob, sv, now) : sv;
}

/* One less. */
OB_INLINE void ob_server_stops(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	sv->running--;
	ob_account_run(sv, (u32)-1, now);
	sv->waits = now;
	if (sv->purse)
		ob_purse_run(sv->purse, (u32)-1, now);
	if (sv->urgent || sv->soon)
		ob_server_restand(sv, now);
	/* Nobody sees to its siblings that wait any more. */
	ob_laxity_sync(ob, sv);
	if (sv->domain->up)
		ob_group_stops(ob, sv, now);
}

#endif
