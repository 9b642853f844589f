/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BEST: Banachowski and Brandt, "The BEST scheduler for integrated processing of best-effort and
 * soft real-time processes", MMCN 2002. Nobody says which threads are periodic. One that wakes at
 * steady intervals is taken to be, and to have to be done when it would wake next: a period after
 * it woke. Those go first, the earliest deadline first, and all others as under `fair`. It knows
 * nothing of fairness among those that beat, nor of nice: a thread that beats and computes for most
 * of its period has most of a CPU, and others may have nothing but what patience gives them
 * (ob_others.h). docs/decisions.md says in what it differs from the paper.
 */
#ifndef OB_OTHERS_BEST_H
#define OB_OTHERS_BEST_H

#include "fair.h"

/* Keys: of those that beat, their deadlines; of the others, virtual times. Both begin beyond
 * OB_OTHERS_APART, so that neither is taken for a plain virtual time. */
#define OB_BEST_BEATS OB_OTHERS_APART
#define OB_BEST_FAIR (OB_OTHERS_APART << 1)

/* Rhythms are looked for within these, ns. */
#define OB_BEST_LEAST 2000000ULL
#define OB_BEST_MOST 2000000000ULL

/* After so many wake-ups it is known whether a thread beats. From the second on it is presumed to,
 * with this interval, ns: who needs more than its part would else never be done, nor sleep, and not
 * be known by its sleep. */
#define OB_BEST_KNOWN 8U
#define OB_BEST_GUESS 100000000ULL
/* From then until so many wake-ups jobs are due after half an interval: of who is late with every
 * second job only the others end in sleep, as if it beat half as often. */
#define OB_BEST_TRIED (OB_BEST_KNOWN + 8)
/* An interval may be so many beats. */
#define OB_BEST_SKIPPED 3

/* So much, ns, one that beats may use without sleeping, as it is late. */
#define OB_BEST_BEHIND 1000000000ULL

/* Whether its intervals vary by less than a quarter. */
OB_INLINE int ob_best_steady(ob_task_p t)
{
	return t->interval >= OB_BEST_LEAST && 4 * t->varies <= t->interval;
}

/* How many beats of `known` ns `interval` is, if more than one; else 0. */
OB_FN u64 ob_best_skips(u64 interval, u64 known)
{
	u64 beats = (interval + known / 2) / ob_max(known, 1), all = beats * known;
	u64 off = interval > all ? interval - all : all - interval;

	return beats > 1 && beats <= OB_BEST_SKIPPED && 8 * off <= known ? beats : 0;
}

/* Whether `interval` tells nothing new of `t`, which is known and steady. Who was late and gave a
 * job up goes on with the next, and does not wake for it: now and then that leaves its rhythm what
 * it is, often it does not. A half or a third of what is known says that it was late until then. */
OB_INLINE int ob_best_knows(ob_task_p t, u64 interval)
{
	u64 beats = ob_best_skips(interval, t->interval);

	if (beats) {
		t->varies = (3 * t->varies + (beats - 1) * t->interval / 4) / 4;
		return 1;
	}
	if (!ob_best_skips(t->interval, interval))
		return 0;
	t->interval = interval;
	t->varies = t->varies / 2 + interval / 10;
	t->heard = OB_BEST_KNOWN;
	return 1;
}

/* `t` woke at `now`: its interval counts in the averages of intervals and of by how much they vary.
 * Of one that is known, an interval that is much shorter is a part of the same job, which waited
 * for something. Of one that is not, an interval that is quite another says that it began before it
 * had a rhythm; and after a long sleep nothing is known. */
OB_INLINE void ob_best_hear(ob_task_p t, u64 now)
{
	u64 interval = now - t->beat, off;
	int learns = t->heard < OB_BEST_KNOWN;

	if (!learns && interval < t->interval / 4)
		return;
	t->beat = now;
	if (interval > OB_BEST_MOST) {
		t->interval = 0;
		t->heard = 1;
		return;
	}
	if (!learns && ob_best_steady(t) && ob_best_knows(t, interval))
		return;
	off = interval > t->interval ? interval - t->interval : t->interval - interval;
	t->heard += learns;
	if (learns && 3 * off > t->interval) {
		t->interval = interval;
		t->varies = interval;
		return;
	}
	t->varies = (3 * t->varies + off) / 4;
	t->interval = (3 * t->interval + interval) / 4;
}

/* The time between two deadlines of `t`; 0: it does not beat. */
OB_INLINE u64 ob_best_interval(ob_task_p t)
{
	if (ob_best_steady(t))
		return t->interval;
	return t->heard > 1 && t->heard < OB_BEST_KNOWN ? OB_BEST_GUESS : 0;
}

/* `t` woke at `now`. (These words are BEST's own: what an order keeps in others may be read by the
 * next one, for a thread that runs, ob_swap.h.) */
OB_FN void ob_best_woke(ob_task_p t OB_ARG, u64 now)
{
	u64 interval;

	ob_best_hear(t, now);
	interval = ob_best_interval(t);
	if (interval && t->beat == now && t->heard >= OB_BEST_KNOWN && t->heard < OB_BEST_TRIED) {
		t->heard++;
		interval /= 2;
	}
	t->aim = interval && !t->kernel ? OB_BEST_BEATS + t->beat + interval : 0;
	t->until = t->used + OB_BEST_BEHIND;
}

/* `t` goes on at `now`. Past its deadline, it is late, or has given that job up: its next one has
 * come. */
OB_FN void ob_best_goes_on(ob_task_p t OB_ARG, u64 now)
{
	u64 interval = ob_best_interval(t);

	if (!t->aim || t->aim > OB_BEST_BEATS + now)
		return;
	if (!interval || t->used >= t->until)
		t->aim = 0;
	else
		t->aim += ((OB_BEST_BEATS + now - t->aim) / interval + 1) * interval;
}

OB_INLINE void ob_best_place(ob_p ob, ob_task_p t, u64 most, u64 from)
{
	u64 since = ~t->node.over;

	ob_fair_place(ob, t, most, from);
	/* It may be here from a reservation, awake. */
	if (from != OB_NEVER || !t->until)
		ob_best_woke(t, since);
	else
		ob_best_goes_on(t, since);
	t->notable |= !!t->aim;
	t->node.key = t->aim ?: OB_BEST_FAIR + t->at;
}

OB_INLINE void ob_best_taken(ob_p ob, ob_task_p t)
{
	t->vtime = t->at;
}

OB_INLINE void ob_best_begin(ob_p ob, ob_cpu_p c, ob_task_p t)
{
	ob_fair_begin(ob, c, t);
	if (!t->until)
		ob_best_woke(t, c->started);
	else
		ob_best_goes_on(t, c->started);
}

OB_INLINE void ob_best_ran(ob_p ob, ob_task_p t, u64 ran)
{
	ob_fair_ran(ob, t, ran);
	if (t->used >= t->until)
		t->aim = 0;
}

OB_INLINE void ob_best_slept(ob_p ob, ob_task_p t)
{
	/* Jobs may be longer than a slice. */
	t->burst = (t->burst + ob_min(t->used, OB_BEST_MOST)) / 2;
	t->used = 0;
	t->until = 0;
	t->aim = 0;
}

OB_INLINE u64 ob_best_key(ob_p ob, ob_task_p t)
{
	return t->aim ?: OB_BEST_FAIR + t->vtime;
}

/* What `other`, which has run for `ran`, may use until it is taken to be bound by the CPU; 0: it
 * is. */
OB_INLINE u64 ob_best_left(ob_task_p other, u64 ran)
{
	u64 used = OB_READ(other->used) + ran, until = OB_READ(other->until);

	return other->aim && used < until ? until - used : 0;
}

OB_INLINE u64 ob_best_beats(ob_p ob, ob_task_p t, ob_task_p other, u64 ran)
{
	u64 left = ob_best_left(other, ran);

	if (t->node.key < OB_BEST_FAIR)
		return !left || t->node.key < other->aim;
	return !left && ob_fair_beats(ob, t, other, ran);
}

OB_INLINE u64 ob_best_passes(ob_p ob, ob_cpu_p c, ob_task_p other, ob_task_p t)
{
	u64 left = ob_best_left(other, 0), at = c->started + ob_max(left, OB_WAKE_GRAIN);

	if (left || t->node.key < OB_BEST_FAIR)
		return at;
	return ob_fair_passes(ob, c, other, t);
}

OB_INLINE u64 ob_best_look(ob_p ob, ob_cpu_p c, ob_task_p other, ob_task_p first)
{
	u64 left = ob_best_left(other, 0);

	if (!left && first->node.key >= OB_BEST_FAIR)
		return ob_fair_look(ob, c, other, first);
	/* By then it may beat no more. */
	return c->started + ob_max(ob_min(left, ob->slice), 2 * OB_WAKE_GRAIN);
}

/* Its key is apart. */
OB_INLINE u64 ob_best_bound(ob_p ob)
{
	return 0;
}

#endif
