/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Purses: budgets that reservations share wherever they stand. RED-Linux calls them budget groups
 * (Wang and Lin, "RED-Linux: A programmable real-time operating system", section on integrating
 * scheduling groups and budget groups): a second tree, beside that of the groups, which limits and
 * does not order. All that runs charges its purse and each that this one is in; what it may have is
 * the least that is left on the way to the root; and who finds one empty sleeps until money comes.
 *
 * A purse holds up to OB_SEGMENTS amounts of CPU time, each available from one instant of a cycle
 * until another. Which of them comes back when is settled by the cycles alone, as in a cyclic
 * executive. What expires first is spent first.
 */
#ifndef OB_PURSE_H
#define OB_PURSE_H

#include "ob_trace.h"

/* The cycle that `now` is in. */
OB_INLINE u64 ob_purse_cycle(ob_purse_p p, u64 now)
{
	return now > p->origin ? (now - p->origin) / ob_max(p->period, 1) : 0;
}

/* What is left of segment `i` at `now`, ns; it is 0 outside of its time. A new cycle fills it. */
OB_INLINE u64 ob_segment_has(ob_purse_p p, u32 i, u64 now)
{
	struct ob_segment OB_ARENA *s = &p->segment[i & (OB_SEGMENTS - 1)];
	u64 cycle = ob_purse_cycle(p, now), at = now - (p->origin + cycle * p->period);

	if (now < p->origin || at < s->from || at >= s->until)
		return 0;
	/* (Of two CPUs one may have read its clock before the other, and come after it.) */
	if (s->cycle < cycle + 1) {
		s->cycle = cycle + 1;
		s->left = s->amount;
	}
	return s->left;
}

/* The segment to be spent first at `now`; p->count: all are empty. */
OB_FN u32 ob_purse_first(ob_purse_p p OB_ARG, u64 now)
{
	u32 first = p->count, i;

	for (i = OB_ZERO; i < p->count && OB_LOOP; i++) {
		if (!ob_segment_has(p, i, now))
			continue;
		if (first == p->count || p->segment[i & (OB_SEGMENTS - 1)].until <
					     p->segment[first & (OB_SEGMENTS - 1)].until)
			first = i;
	}
	return first;
}

/* Takes what has run under `p` since the last time. */
OB_FN void ob_purse_charge(ob_purse_p p OB_ARG, u64 now)
{
	u64 used = now > p->charged ? (now - p->charged) * p->running : 0, part;
	u64 from = p->charged;
	u32 i;

	p->charged = ob_max(p->charged, now);
	p->consumed += used;
	while (used && OB_LOOP) {
		i = ob_purse_first(p, from);
		/* What enforcement let through late is not asked for again. */
		if (i >= p->count)
			return;
		part = ob_min(used, p->segment[i & (OB_SEGMENTS - 1)].left);
		p->segment[i & (OB_SEGMENTS - 1)].left -= part;
		used -= part;
	}
}

/* The next instant after `now` at which a segment begins or, if `ends`, ends. */
OB_FN u64 ob_purse_next(ob_purse_p p OB_ARG, u64 now, u32 ends)
{
	u64 begin = p->origin + ob_purse_cycle(p, now) * p->period, next = OB_NEVER;
	u32 i;

	for (i = OB_ZERO; i < p->count && OB_LOOP; i++) {
		struct ob_segment OB_ARENA *s = &p->segment[i & (OB_SEGMENTS - 1)];
		u64 from = begin + s->from, until = begin + s->until;

		next = ob_min(next, from > now ? from : from + p->period);
		if (ends && until > now)
			next = ob_min(next, until);
	}
	return next;
}

/* When `p` or one that it is in must be looked at for what runs under it, just charged. */
OB_FN u64 ob_purse_lasts(ob_purse_p p OB_ARG)
{
	u64 t = OB_NEVER, left;
	u32 i;

	for (; p && OB_LOOP; p = p->up) {
		i = ob_purse_first(p, p->charged);
		left = i < p->count ? p->segment[i & (OB_SEGMENTS - 1)].left : 0;
		t = ob_min(t, p->charged + (left + p->running - 1) / ob_max(p->running, 1));
		t = ob_min(t, ob_purse_next(p, p->charged, 1));
	}
	return t;
}

/* Until when who has purse `p` must sleep: 0 if there is money in all on the way to the root. */
OB_FN u64 ob_purse_lacks(ob_purse_p p OB_ARG, u64 now)
{
	u64 until = 0;

	for (; p && OB_LOOP; p = p->up) {
		ob_purse_charge(p, now);
		if (ob_purse_first(p, now) >= p->count)
			until = ob_max(until, ob_purse_next(p, now, 0));
	}
	return until;
}

/* One more (`by` 1) or one less (-1) runs under `p` and those that it is in. */
OB_FN void ob_purse_run(ob_purse_p p OB_ARG, u32 by, u64 now)
{
	for (; p && OB_LOOP; p = p->up) {
		ob_purse_charge(p, now);
		p->running += by;
	}
}

/* Makes purse `p` without money, a part of `up` if that is not null; its cycles of `period` ns
 * begin at `origin`. */
OB_INLINE void ob_purse_make(ob_p ob, ob_purse_p p, ob_purse_p up, u64 period, u64 origin)
{
	ob->purses = 1;
	p->up = up;
	p->period = period;
	p->origin = origin;
	p->charged = origin;
	p->consumed = 0;
	p->running = 0;
	p->count = 0;
}

/* `amount` ns are in it from `from` until `until` ns of each cycle. Whether there was room. */
OB_INLINE u64 ob_purse_fill(ob_purse_p p, u64 amount, u64 from, u64 until)
{
	struct ob_segment OB_ARENA *s = &p->segment[p->count & (OB_SEGMENTS - 1)];

	if (p->count >= OB_SEGMENTS || from >= until || until > p->period)
		return 0;
	s->amount = amount;
	s->from = from;
	s->until = until;
	s->cycle = 0;
	p->count++;
	return 1;
}

#endif
