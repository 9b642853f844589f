/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reservations split over several CPUs: EDF-WM (Kato, Yamasaki and Ishikawa 2009) and EDF-WMR
 * (Kato, Ishikawa and Rajkumar, "CPU scheduling and memory management for interactive real-time
 * applications", section 5). A split reservation has legs; in each cycle of one period it may use
 * its share of leg k, on that leg's CPU, in the window from k·W to (k + 1)·W, with the window's end
 * as deadline. EDF-WM goes on to the next leg as soon as a share is used up: it is early there,
 * which disturbs nobody, for the deadline stays the window's. EDF-WMR stays until the window ends,
 * with no budget of its own but fit to be given some (FCBS).
 *
 * No two activations of a leg are less than a period apart, unless by being early, so to its CPU
 * each is the sporadic task (share, W, P) that the analysis has tested. Who slept and wakes within
 * a window would ask for its share in less than W. So what is left, and all that follows, is due
 * later by as much of the window as is over: a share is then served in parts, each with W of time,
 * and in no interval do parts add up to more than shares do that are P apart. Cycles begin when
 * they would have, for what is early harms nobody.
 */
#ifndef OB_PLACE_WINDOWS_H
#define OB_PLACE_WINDOWS_H

#include "whole.h"

OB_INLINE u64 ob_windows_end(ob_server_p sv)
{
	return sv->windows.cycle + sv->shift + (sv->windows.leg + 1) * sv->windows.length;
}

/* When EDF-WMR goes on: with a deadline before the period's end the last window is followed by a
 * gap. */
OB_INLINE u64 ob_windows_leave_at(ob_server_p sv)
{
	if (sv->windows.leg + 1 == sv->windows.legs)
		return sv->windows.cycle + sv->period;
	return sv->windows.cycle + (sv->windows.leg + 1) * sv->windows.length;
}

/* EDF-WMR is woken then while it has a job. */
OB_INLINE void ob_windows_watch(ob_p ob, ob_server_p sv)
{
	if (sv->place == OB_PLACE_POSTPONED && sv->state)
		ob_due_set(ob, &sv->due, OB_DUE_WINDOW, ob_max(ob_windows_leave_at(sv), 1));
}

/* Goes to leg `leg` of the cycle of nominal begin `cycle`. The caller requeues. */
OB_FN void ob_windows_enter(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 cycle, u64 leg, u64 now)
{
	struct ob_leg OB_ARENA *l = &sv->windows.plan[leg & (OB_MAX_LEGS - 1)];
	ob_domain_p to = &ob->domain[l->domain & (OB_MAX_DOMAINS - 1)];

	if (to != sv->domain) {
		ob_tree_remove(&sv->domain->active, &sv->node);
		ob_server_rehome(ob, sv, to, l->cpus);
	}
	sv->windows.cycle = cycle;
	sv->windows.leg = (u32)leg;
	sv->windows.starved = 0;
	/* What was overdrawn is paid back, what is left stays behind. */
	ob_server_set(ob, sv, now, (sv->e < 0 ? sv->e : 0) + (s64)l->budget, ob_windows_end(sv));
	ob_windows_watch(ob, sv);
}

/* Goes to the next leg: of the next cycle after the last one. */
OB_INLINE void ob_windows_go(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->windows.leg + 1 < sv->windows.legs)
		ob_windows_enter(ob, sv, sv->windows.cycle, sv->windows.leg + 1, now);
	else
		ob_windows_enter(ob, sv, sv->windows.cycle + sv->period, 0, now);
}

/* What is left in the window of `sv`, which began at `begin`, and all that follows, is due so much
 * later that there is a whole window for it. */
OB_INLINE void ob_windows_shift(ob_server_p sv, u64 begin, u64 now)
{
	if (now > begin)
		sv->shift = ob_max(sv->shift, now - begin);
}

/* A cycle begins at `now`, no earlier than nominally: what was late in the one before may still be.
 */
OB_INLINE void ob_windows_anew(ob_server_p sv, u64 nominal, u64 now)
{
	sv->shift = nominal + sv->shift - ob_min(now, nominal + sv->shift);
}

/*
 * A job begins. One that comes when its reservation's cycle is over begins another. One that comes
 * before goes on in the present window, unless that is all but over and the last: then the next
 * cycle begins early, so that a periodic job which wakes a little too soon begins at home.
 */
OB_FN void ob_windows_take_up(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 next = sv->windows.cycle + sv->period,
	    end = sv->windows.cycle + (sv->windows.leg + 1) * sv->windows.length;
	u32 leg = sv->windows.leg, unbegun = sv->windows.unbegun;

	sv->windows.unbegun = 0;
	if (!sv->s || now >= next) {
		if (sv->s)
			ob_windows_anew(sv, next, now);
		ob_windows_enter(ob, sv, now, 0, now);
		return;
	}
	if (ob_server_goes_on(sv, now) && sv->e > 0) {
		ob_windows_watch(ob, sv);
		return;
	}
	/* A cycle that a mark began too early begins now that its job comes, its window whole. */
	if (unbegun && now > sv->windows.cycle) {
		ob_windows_anew(sv, sv->windows.cycle, now);
		sv->windows.cycle = now;
		ob_server_set(ob, sv, now, sv->e, ob_windows_end(sv));
		ob_windows_watch(ob, sv);
		return;
	}
	while (end <= now && leg < sv->windows.legs && OB_LOOP) {
		end += sv->windows.length;
		leg++;
	}
	/* Past the last window of a deadline shorter than the period there is nothing left either.
	 */
	if (leg == sv->windows.legs || (leg + 1 == sv->windows.legs && sv->windows.cycle <= now &&
					end - now < sv->windows.length / 8)) {
		ob_windows_enter(ob, sv, next, 0, now);
	} else if (leg > sv->windows.leg) {
		ob_windows_shift(sv, end - sv->windows.length, now);
		ob_windows_enter(ob, sv, sv->windows.cycle, leg, now);
	} else {
		if (sv->e > 0) {
			ob_windows_shift(sv, end - sv->windows.length, now);
			ob_server_set(ob, sv, now, sv->e, ob_windows_end(sv));
		}
		ob_windows_watch(ob, sv);
	}
}

/* A job begins that nothing limits: it goes on to its next share as under a soft CBS. */
OB_INLINE void ob_windows_fresh(ob_p ob, ob_server_p sv, u64 now)
{
	ob_windows_take_up(ob, sv, now);
}

/* The share is used up. */
OB_INLINE void ob_windows_next(ob_p ob, ob_server_p sv, u64 now)
{
	u64 end = ob_windows_leave_at(sv);

	if (sv->place == OB_PLACE_EARLY || end <= now) {
		ob_windows_go(ob, sv, now);
		return;
	}
	/* Section 5.2: a deadline one period later, beyond what it is owed: an overrun to FCBS. */
	sv->windows.starved = 1;
	sv->s = end + sv->period;
	ob_emit(ob, now, OB_KC(OB_EV_THROTTLE, OB_NONE), OB_TS(OB_NONE, sv->id), 0, end);
}

/* Another leg of the same period is no new budget. */
OB_INLINE u64 ob_windows_rests_until(ob_server_p sv)
{
	if (sv->place == OB_PLACE_POSTPONED || sv->windows.leg + 1 < sv->windows.legs)
		return 0;
	return sv->windows.cycle + sv->period;
}

OB_INLINE void ob_windows_late(ob_p ob, ob_server_p sv, u64 now)
{
	if (ob_windows_end(sv) > now)
		return;
	sv->shift = 0;
	ob_windows_enter(ob, sv, now, 0, now);
}

/* When its cycle lies ahead or its share is used up. */
OB_INLINE u64 ob_windows_over(ob_server_p sv)
{
	return sv->windows.starved ? ob_whole_over(sv) : sv->windows.cycle;
}

OB_INLINE u64 ob_windows_waits(ob_server_p sv)
{
	return sv->windows.starved;
}

OB_INLINE void ob_windows_unbegin(ob_server_p sv)
{
	sv->windows.unbegun = !sv->windows.leg && sv->windows.cycle > sv->release;
}

OB_INLINE u64 ob_windows_shuts_out(ob_server_p sv, u64 cpus, u64 narrow)
{
	u32 i;

	for (i = OB_ZERO; i < sv->windows.legs && i < OB_MAX_LEGS && OB_LOOP; i++)
		if (!(sv->windows.plan[i & (OB_MAX_LEGS - 1)].cpus & cpus))
			return 1;
	return 0;
}

OB_INLINE void ob_windows_count(ob_p ob, ob_server_p sv, u32 by)
{
	u32 i;

	for (i = OB_ZERO; i < sv->windows.legs && i < OB_MAX_LEGS && OB_LOOP; i++) {
		struct ob_leg OB_ARENA *leg = &sv->windows.plan[i & (OB_MAX_LEGS - 1)];
		ob_domain_p d = &ob->domain[leg->domain & (OB_MAX_DOMAINS - 1)];

		d->uncounted += by;
		d->split += by;
	}
}

OB_INLINE void ob_windows_leave(ob_p ob, ob_server_p sv)
{
	sv->windows.starved = 0;
}

/* It has just been split, and stands at its first leg's CPU, where a cycle begins. */
OB_INLINE void ob_windows_begin(ob_p ob, ob_server_p sv, u64 now)
{
	sv->has_saved = 0;
	sv->s = 0;
	sv->shift = 0;
	if (sv->state)
		ob_windows_enter(ob, sv, now, 0, now);
}

/* A window is over. What is left of a share that is due later has until then: only from then on, or
 * from when it is used up, is the next one's window whole. */
OB_INLINE void ob_windows_passed(ob_p ob, ob_server_p sv, u64 now)
{
	while (ob_windows_leave_at(sv) <= now && OB_LOOP) {
		if (sv->e > 0 && !sv->windows.starved && ob_windows_end(sv) > now) {
			ob_due_set(ob, &sv->due, OB_DUE_WINDOW, ob_windows_end(sv));
			return;
		}
		ob_windows_go(ob, sv, now);
	}
}

/* Describes how `sv`, at the place of the first leg, is split. */
OB_FN void ob_windows_describe(ob_server_p sv OB_ARG, ob_terms_p terms OB_ARG)
{
	u32 i;

	sv->windows.starved = 0;
	sv->windows.unbegun = 0;
	sv->windows.length = terms->window;
	for (i = OB_ZERO; i < OB_MAX_LEGS && i < terms->legs && OB_LOOP; i++) {
		struct ob_leg OB_ARENA *to = &sv->windows.plan[i & (OB_MAX_LEGS - 1)];
		struct ob_leg OB_ARENA *leg = &terms->plan[i & (OB_MAX_LEGS - 1)];

		to->cpus = leg->cpus;
		to->budget = leg->budget;
		to->domain = leg->domain & (OB_MAX_DOMAINS - 1);
	}
	sv->windows.legs = i;
	sv->place = OB_PLACE_WHOLE;
	if (i)
		sv->place = terms->postponed ? OB_PLACE_POSTPONED : OB_PLACE_EARLY;
}

#endif
