/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The last wake-ups of a thread, of which its rhythm is inferred (model/src/beat.rs). No policy
 * looks at them: the shell writes them, the service reads them.
 *
 * Many programs wake several times within one job. What a thread sleeps within a job is short
 * beside what it sleeps between jobs, but how short nobody knows before. So there are several
 * rings, each of which has the wake-ups after a sleep of at least its gap only: in one of them,
 * where the gap is longer than any sleep within a job and shorter than those between, a job is one
 * wake-up.
 */
#ifndef OB_BEAT_H
#define OB_BEAT_H

#include "ob_port.h"

enum ob_beat_size {
	OB_BEAT_LEVELS = 3,
	OB_BEAT_WAKES = 16, /* of each ring; a power of two */
};

/* Times in a ring are in units of 2^OB_BEAT_UNIT ns; below OB_BEAT_AT is the CPU time used so far,
 * modulo 2^OB_BEAT_AT units, 17 s. */
#define OB_BEAT_UNIT 10
#define OB_BEAT_AT 24

struct ob_beats {
	u64 slept;                 /* when it went to sleep last; 0: it has not yet */
	u32 count[OB_BEAT_LEVELS]; /* wake-ups so far */
	u32 pad;
	u64 wake[OB_BEAT_LEVELS][OB_BEAT_WAKES];
};

typedef struct ob_beats OB_ARENA *ob_beats_p;

/* The shortest sleep before a wake-up in ring `level`, ns: 0.26 ms, 4 ms, 34 ms. */
OB_INLINE u64 ob_beat_gap(u32 level)
{
	return level == 0 ? 1ULL << 18 : level == 1 ? 1ULL << 22 : 1ULL << 25;
}

/* One word, written as one, lest a reader sees half of it; before the count, which is how the
 * reader knows which to believe. */
OB_INLINE void ob_beat_note(ob_beats_p b, u32 level, u64 wake)
{
	u32 count = b->count[level];

	OB_WRITE(b->wake[level][count & (OB_BEAT_WAKES - 1)], wake);
	OB_WRITE(b->count[level], count + 1);
}

/* Of a thread that is new. */
OB_INLINE void ob_beats_clear(ob_beats_p b)
{
	b->slept = 0;
	b->count[0] = 0;
	b->count[1] = 0;
	b->count[2] = 0;
}

OB_INLINE void ob_beat_slept(ob_beats_p b, u64 now)
{
	OB_WRITE(b->slept, now);
}

/* The thread wakes, having used `ran` ns of CPU time so far. */
OB_INLINE void ob_beat_woke(ob_beats_p b, u64 now, u64 ran)
{
	u64 slept = b->slept, gap = now - slept;
	u64 wake =
	    now >> OB_BEAT_UNIT << OB_BEAT_AT | (ran >> OB_BEAT_UNIT & ((1ULL << OB_BEAT_AT) - 1));

	/* CPUs' clocks may differ a little. */
	if (!slept || now < slept || gap < ob_beat_gap(0))
		return;
	ob_beat_note(b, 0, wake);
	if (gap < ob_beat_gap(1))
		return;
	ob_beat_note(b, 1, wake);
	if (gap < ob_beat_gap(2))
		return;
	ob_beat_note(b, 2, wake);
}

#endif
