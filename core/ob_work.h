/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the program of a reservation has needed of late, period by period, of which the service's
 * clients infer a budget (model/src/auto.rs). No policy looks at it.
 *
 * Programs may wake several times within one period: several threads do, or one that waits for
 * others. So what counts as one piece of work are all jobs that begin within about a period of the
 * first one; the next piece begins with the first job after that.
 */
#ifndef OB_WORK_H
#define OB_WORK_H

#include "ob_server.h"

/* A word of the ring is the work in units of 2^OB_WORK_UNIT ns, and above that, from
 * OB_WORK_PERIODS on, how many periods in a row went without a pause for it. */
#define OB_WORK_UNIT 10
#define OB_WORK_PERIODS 28
/* A piece of work may begin so much of a period early, as a power of two. */
#define OB_WORK_EARLY 3

/* A job of `sv`, just charged, begins. Work that went on for several periods without a pause was
 * several periods' work; of more than a word can say, as much of it is noted. */
OB_INLINE void ob_work_begin(ob_server_p sv, u64 now)
{
	u64 since = sv->work_since, window = sv->period - (sv->period >> OB_WORK_EARLY);
	u64 work, periods;
	u32 count = sv->works;

	if (since && now - since < window)
		return;
	if (since) {
		work = (sv->consumed - sv->work_from) >> OB_WORK_UNIT;
		periods = ob_max((sv->work_until - since + window) / ob_max(sv->period, 1), 1);
		if (periods > 15) {
			work = work / periods * 15;
			periods = 15;
		}
		work = ob_min(work, (1ULL << OB_WORK_PERIODS) - 1);
		OB_WRITE(sv->work[count & (OB_WORKS - 1)],
			 (u32)(periods << OB_WORK_PERIODS | work));
		OB_WRITE(sv->works, count + 1);
	}
	sv->work_since = now;
	sv->work_from = sv->consumed;
}

/* A job of `sv` ends. */
OB_INLINE void ob_work_end(ob_server_p sv, u64 now)
{
	sv->work_until = now;
}

#endif
