/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The registry of orders of best effort among itself: one line each. X(NAME, function prefix, name
 * users type, what it does in a few words). ob->others is the number of the one in force. It may
 * change (ob_reorder): then what an order keeps in a thread must be as for a new one, but for
 * `vtime`, `burst` and `used`, which all have in common.
 *
 * All orders have virtual time in common (ob_virtual.h): `vtime` of a thread is what it has had for
 * its weight, and who wakes is put near those who wait. Keys are times of that kind, least first.
 * Patience, short turns in crowds, the share and idle CPUs are seen to for every order
 * (ob_others.h). An order in file `others/<prefix>.h`, which is included below the table, defines
 *
 *   ob_<prefix>_place(ob, t, most, from)  `t` is about to wait: set t->node.key; where it is, `at`,
 *                                         and its `parts` in the average of those who wait; and
 *                                         `notable`, whether it may be a reason to look before a
 *                                         slice is over. Whatever it had elsewhere it is no further
 *                                         than `most`; if it woke, those with whom it shares CPUs
 *                                         are at `from`, else OB_NEVER
 *   ob_<prefix>_taken(ob, t)              it waits no more, but is served
 *   ob_<prefix>_begin(ob, c, t)           it begins to run on `c`; it may not have waited at all
 *   ob_<prefix>_ran(ob, t, ran)           it has run for `ran` ns
 *   ob_<prefix>_slept(ob, t)              it sleeps
 *   ob_<prefix>_key(ob, t)                the key of one that runs
 *   ob_<prefix>_beats(ob, t, other, ran)  whether `t`, which waits, is to have a CPU at once in
 *                                         place of `other`, which has run there for `ran` ns
 *   ob_<prefix>_passes(ob, c, other, t)   when that will be so, at the earliest; it is not yet
 *   ob_<prefix>_look(ob, c, other, first) when `other`, on `c`, is to be compared with the first
 *                                         who waits before its slice is over, or OB_NEVER
 *   ob_<prefix>_bound(ob)                 by how much the key of one that is bound by the CPU is
 *                                         ahead of where it is in virtual time: a user's overrun,
 *                                         which takes turns with best effort, stands there, too
 *
 * Keys are ahead of where their threads are by OB_OTHERS_FAR at most, or else from OB_OTHERS_APART
 * on: where the others are is told from the first key (ob_others_put).
 *
 * `begin`, `ran` and `slept` are called without the lock, too: of what is shared they may only
 * read, and of what they read a word may be old; the thread is this CPU's (ob_unlocked.h). The
 * model reads the table (its build script). docs/add-a-policy.md is the guide.
 */
#ifndef OB_OTHERS_REGISTRY_H
#define OB_OTHERS_REGISTRY_H

#include "../ob_virtual.h"

#define OB_OTHERS(X)                                                               \
	X(BERATE, berate, "berate",                                                \
	  "who is to sleep soonest within its part first: deadlines are inferred") \
	X(FAIR, fair, "fair", "who has had least for its weight first")            \
	X(BEST, best, "best", "who wakes at steady intervals first, by when it will wake next")

#include "fair.h"
#include "berate.h"
#include "best.h"

enum ob_others_order {
#define X(NAME, prefix, name, about) OB_OTHERS_##NAME,
	OB_OTHERS(X)
#undef X
	    OB_OTHERS_COUNT,
};

/* Defines ob_among_<hook>, which calls the hook of the order in force. Those that are OB_FN the
 * verifier goes through once, whatever the order. */
#define OB_OTHERS_HOOK(how, type, hook, ...)             \
	how type ob_among_##hook(__VA_ARGS__)            \
	{                                                \
		switch (OB_READ(ob->others)) {           \
			OB_OTHERS(OB_OTHERS_CASE_##hook) \
		}                                        \
		return (type)0;                          \
	}
#define OB_OTHERS_CASE(NAME, call) \
	case OB_OTHERS_##NAME:     \
		return ob_##call;
#define OB_OTHERS_CASE_place(NAME, prefix, name, about) \
	OB_OTHERS_CASE(NAME, prefix##_place(ob, t, most, from))
#define OB_OTHERS_CASE_taken(NAME, prefix, name, about) OB_OTHERS_CASE(NAME, prefix##_taken(ob, t))
#define OB_OTHERS_CASE_begin(NAME, prefix, name, about) \
	OB_OTHERS_CASE(NAME, prefix##_begin(ob, c, t))
#define OB_OTHERS_CASE_ran(NAME, prefix, name, about) OB_OTHERS_CASE(NAME, prefix##_ran(ob, t, ran))
#define OB_OTHERS_CASE_slept(NAME, prefix, name, about) OB_OTHERS_CASE(NAME, prefix##_slept(ob, t))
#define OB_OTHERS_CASE_key(NAME, prefix, name, about) OB_OTHERS_CASE(NAME, prefix##_key(ob, t))
#define OB_OTHERS_CASE_beats(NAME, prefix, name, about) \
	OB_OTHERS_CASE(NAME, prefix##_beats(ob, t, other, ran))
#define OB_OTHERS_CASE_passes(NAME, prefix, name, about) \
	OB_OTHERS_CASE(NAME, prefix##_passes(ob, c, other, t))
#define OB_OTHERS_CASE_look(NAME, prefix, name, about) \
	OB_OTHERS_CASE(NAME, prefix##_look(ob, c, other, first))
#define OB_OTHERS_CASE_bound(NAME, prefix, name, about) OB_OTHERS_CASE(NAME, prefix##_bound(ob))

OB_OTHERS_HOOK(OB_INLINE, void, place, ob_p ob, ob_task_p t, u64 most, u64 from)
OB_OTHERS_HOOK(OB_INLINE, void, taken, ob_p ob, ob_task_p t)
OB_OTHERS_HOOK(OB_FN, void, begin, ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p t OB_ARG)
OB_OTHERS_HOOK(OB_INLINE, void, ran, ob_p ob, ob_task_p t, u64 ran)
OB_OTHERS_HOOK(OB_FN, void, slept, ob_p ob OB_ARG, ob_task_p t OB_ARG)
OB_OTHERS_HOOK(OB_FN, u64, key, ob_p ob OB_ARG, ob_task_p t OB_ARG)
OB_OTHERS_HOOK(OB_FN, u64, beats, ob_p ob OB_ARG, ob_task_p t OB_ARG, ob_task_p other OB_ARG,
	       u64 ran)
OB_OTHERS_HOOK(OB_FN, u64, passes, ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p other OB_ARG,
	       ob_task_p t OB_ARG)
OB_OTHERS_HOOK(OB_INLINE, u64, look, ob_p ob, ob_cpu_p c, ob_task_p other, ob_task_p first)
OB_OTHERS_HOOK(OB_INLINE, u64, bound, ob_p ob)

#endif
