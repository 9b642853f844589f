/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual time of best effort, by which every order of it (others/registry.h) reckons: what a
 * thread has had for its weight; that of nice 0 runs at the clock's speed. And which CPUs one that
 * wakes asks.
 */
#ifndef OB_VIRTUAL_H
#define OB_VIRTUAL_H

#include "ob_share.h"

/* By so much of virtual time who wakes must as a rule be before who runs to have the CPU at once.
 * Less gains nobody anything but switches, where many threads send each other messages. */
#define OB_WAKE_GRAIN 500000ULL
/* By so much, a slice, who was woken by a thread: messages that come one by one are best read
 * together, and who wrote them sleeps soon. */
#define OB_TOLD_GRAIN (8 * OB_WAKE_GRAIN)

/* All best-effort threads of one CPU have a turn within this time, ns, as long as turns need not be
 * shorter than the least: with reservations the share alone must do for it. */
#define OB_OTHERS_ROUND 5000000000ULL
#define OB_OTHERS_TURN_LEAST 20000ULL

/* Virtual time begins here, ns, so that those who wake first may be before others, too. */
#define OB_OTHERS_BEGIN 1000000000ULL

/* Keys may be so far ahead of where threads are in virtual time, ns. */
#define OB_OTHERS_FAR 100000000ULL

/* Keys from here on are no virtual times: where who waits is in virtual time says its `at`. */
#define OB_OTHERS_APART (1ULL << 61)

/* Where in virtual time `n` waits, or stands by its key. */
OB_INLINE u64 ob_others_where(ob_node_p n)
{
	return n->key < OB_OTHERS_APART ? n->key : ((ob_task_p)n)->at;
}

/* Virtual time for `ran` ns of service. */
OB_INLINE u64 ob_virtual(ob_task_p t, u64 ran)
{
	return t->weight == OB_WEIGHT ? ran : ran * OB_WEIGHT / ob_max(t->weight, 1);
}

/* CPUs that one wake-up looks at, from the thread's last one on. */
#define OB_WAKE_LOOKS 0xffULL

/* The first CPU that `t`, which wakes, asks: its last one, if it may have that. */
OB_INLINE u32 ob_wake_last(ob_p ob, ob_task_p t)
{
	u64 cpus = t->cpus & ob->online;

	/* One bit at least: none of them may be on line. */
	return (cpus & OB_BIT(t->cpu) ? t->cpu : ob_lowest(cpus | OB_BIT(OB_MAX_CPUS - 1))) &
	       (OB_MAX_CPUS - 1);
}

/* It and those after it that `t` asks: bit n is the CPU n after `last`. */
OB_INLINE u64 ob_wake_looks(ob_p ob, ob_task_p t, u32 last)
{
	u64 cpus = t->cpus & ob->online;

	return (cpus >> last | cpus << ((OB_MAX_CPUS - last) & (OB_MAX_CPUS - 1))) & OB_WAKE_LOOKS;
}

/* How long a turn among best-effort threads is: a slice, or less in a crowd. (Who waits is counted
 * for all CPUs: they may all be bound to one.) */
OB_INLINE u64 ob_others_turn(ob_p ob)
{
	u64 round = OB_OTHERS_ROUND;

	if (ob->engaged && ob->share_permille)
		round = round / 1000 * ob->share_permille;
	round /= ob->best_effort.count + ob->outwaited + 1;
	return ob_min(ob_max(round, OB_OTHERS_TURN_LEAST), ob->slice);
}

/* So few who wait have whole slices while nothing is reserved. */
#define OB_OTHERS_FEW (OB_OTHERS_ROUND / OB_SLICE)

/* Whether that is so at a glance. */
OB_INLINE int ob_others_are_few(ob_p ob)
{
	return !ob->engaged && ob->best_effort.count + ob->outwaited < OB_OTHERS_FEW;
}

/* Whether turns are so short that the shell's slices do not do. */
OB_INLINE int ob_others_crowded(ob_p ob)
{
	return ob_others_turn(ob) < ob->slice;
}

#endif
