/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Why jobs of reservations were late, as far as their server sees it (docs/events.md has the
 * causes). model/src/metrics/late.rs finds the same in events; here each CPU remembers its last few
 * stretches. Nothing is decided by it.
 */
#ifndef OB_BLAME_H
#define OB_BLAME_H

#include "ob_types.h"

/* Between two of best effort, or of one server, there is so little time that they are one, ns. */
#define OB_STRETCH_GAP 200000ULL

/* Less made no job late: changing over takes up to 100 us on the lab's slow CPUs, ns. */
#define OB_BLAME_LEAST 200000ULL

/* What ran on `c` for `sv`, or as best effort, leaves it. */
OB_INLINE void ob_blame_leaves(ob_cpu_p c, ob_server_p sv, u64 now)
{
	u64 from = now ? c->came : 0;
	u32 had = sv && !sv->draws ? sv->id : OB_NONE;
	ob_stretch_p last = &c->past[c->stretches % OB_STRETCHES];

	/* Threads of the kernel's own that nobody was told of are none of these. */
	if (!from)
		return;
	c->came = 0;
	if (last->had != had || from > last->until + OB_STRETCH_GAP) {
		c->stretches++;
		last = &c->past[c->stretches % OB_STRETCHES];
		last->had = had;
		last->from = from;
	}
	last->until = now;
}

/* A job of `sv` begins. */
OB_INLINE void ob_blame_begin(ob_server_p sv)
{
	sv->dry = 0;
	sv->longest = 0;
	sv->lost[OB_CAUSE_BLOCKED] = 0;
	sv->lost[OB_CAUSE_RESERVATION] = 0;
	sv->lost[OB_CAUSE_BEST_EFFORT] = 0;
	sv->lost[OB_CAUSE_REAL_TIME] = 0;
	sv->lost[OB_CAUSE_UNKNOWN] = 0;
}

/* `sv` wakes in the midst of a job. */
OB_INLINE void ob_blame_slept(ob_server_p sv, u64 now)
{
	if (now > sv->waits)
		sv->lost[OB_CAUSE_BLOCKED] += now - sv->waits;
}

/* `sv` has waited since `from`, on `c` in the end. */
OB_FN void ob_blame_wait(ob_cpu_p c OB_ARG, ob_server_p sv OB_ARG, u64 from, u64 now)
{
	u64 at = now, until, length;
	u32 i;

	for (i = OB_ZERO; i < OB_STRETCHES && at > from && OB_LOOP; i++) {
		ob_stretch_p one = &c->past[(c->stretches - i) % OB_STRETCHES];

		until = ob_max(ob_min(one->until, at), from);
		sv->lost[OB_CAUSE_REAL_TIME] += at - until;
		at = ob_max(ob_min(one->from, until), from);
		length = until - at;
		if (one->had == OB_NONE) {
			sv->lost[OB_CAUSE_BEST_EFFORT] += length;
			continue;
		}
		sv->lost[OB_CAUSE_RESERVATION] += length;
		if (length > sv->longest) {
			sv->longest = length;
			sv->behind = one->had;
		}
	}
	sv->lost[OB_CAUSE_UNKNOWN] += at - from;
}

/* A thread of `sv` begins to run on `c`; if no other does, it has waited. */
OB_INLINE void ob_blame_waited(ob_cpu_p c, ob_server_p sv, u64 now)
{
	if (!sv->running && now > sv->waits)
		ob_blame_wait(c, sv, sv->waits, now);
}

/* The job of `sv` that ends is late; an owed one not for its budget. */
OB_FN void ob_blame_late(ob_server_p sv OB_ARG, int owed)
{
	u32 cause = OB_CAUSE_UNKNOWN, i;
	u64 most = OB_BLAME_LEAST;

	if (!owed && (sv->dry || sv->consumed - sv->begun > sv->budget)) {
		cause = OB_CAUSE_BUDGET;
	} else {
		for (i = OB_CAUSE_BLOCKED; i <= OB_CAUSE_UNKNOWN; i++) {
			if (sv->lost[i] <= most)
				continue;
			most = sv->lost[i];
			cause = i;
		}
	}
	sv->late_for[cause & 7]++;
	if (cause == OB_CAUSE_RESERVATION)
		sv->late_by = sv->behind;
}

#endif
