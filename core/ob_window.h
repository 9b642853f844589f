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
#ifndef OB_WINDOW_H
#define OB_WINDOW_H

#include "ob_server.h"

OB_INLINE u64 ob_window_end(ob_server_p sv)
{
	return sv->cycle + sv->shift + (sv->leg + 1) * sv->window;
}

/* When EDF-WMR goes on: with a deadline before the period's end the last window is followed by a
 * gap. */
OB_INLINE u64 ob_window_leave(ob_server_p sv)
{
	if (sv->leg + 1 == sv->legs)
		return sv->cycle + sv->period;
	return sv->cycle + (sv->leg + 1) * sv->window;
}

/* EDF-WMR is woken then while it has a job. */
OB_INLINE void ob_window_watch(ob_p ob, ob_server_p sv)
{
	u64 end = ob_window_leave(sv);

	if (!ob_server_windowed(sv) || !sv->active)
		return;
	ob_tree_remove(&ob->windows, &sv->lax);
	sv->lax.key = end;
	ob_tree_insert(&ob->windows, &sv->lax);
	ob->alarm_at = ob_min(ob->alarm_at, end);
}

/* Goes to leg `leg` of the cycle of nominal begin `cycle`. The caller requeues. */
OB_FN void ob_window_enter(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 cycle, u64 leg, u64 now)
{
	struct ob_leg OB_ARENA *l = &sv->plan[leg & (OB_MAX_LEGS - 1)];
	ob_domain_p to = &ob->domain[l->domain & (OB_MAX_DOMAINS - 1)];

	if (to != sv->domain) {
		if (!sv->throttled)
			ob_tree_remove(&sv->domain->active, &sv->node);
		ob_server_rehome(ob, sv, to, l->cpus);
	}
	sv->cycle = cycle;
	sv->leg = (u32)leg;
	sv->starved = 0;
	/* What was overdrawn is paid back, what is left stays behind. */
	ob_server_set(ob, sv, now, (sv->e < 0 ? sv->e : 0) + (s64)l->budget, ob_window_end(sv));
	ob_window_watch(ob, sv);
}

/* Goes to the next leg: of the next cycle after the last one. */
OB_INLINE void ob_window_next(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->leg + 1 < sv->legs)
		ob_window_enter(ob, sv, sv->cycle, sv->leg + 1, now);
	else
		ob_window_enter(ob, sv, sv->cycle + sv->period, 0, now);
}

/* What is left in the window of `sv`, which began at `begin`, and all that follows, is due so much
 * later that there is a whole window for it. */
OB_INLINE void ob_window_shift(ob_server_p sv, u64 begin, u64 now)
{
	if (now > begin)
		sv->shift = ob_max(sv->shift, now - begin);
}

/* A cycle begins at `now`, no earlier than nominally: what was late in the one before may still be.
 */
OB_INLINE void ob_window_anew(ob_server_p sv, u64 nominal, u64 now)
{
	sv->shift = nominal + sv->shift - ob_min(now, nominal + sv->shift);
}

/*
 * A job begins. One that comes when its reservation's cycle is over begins another. One that comes
 * before goes on in the present window, unless that is all but over and the last: then the next
 * cycle begins early, so that a periodic job which wakes a little too soon begins at home.
 */
OB_FN void ob_window_release(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 next = sv->cycle + sv->period, end = sv->cycle + (sv->leg + 1) * sv->window;
	u32 leg = sv->leg, unbegun = sv->unbegun;

	sv->unbegun = 0;
	if (!sv->s || now >= next) {
		if (sv->s)
			ob_window_anew(sv, next, now);
		ob_window_enter(ob, sv, now, 0, now);
		return;
	}
	if (ob_server_goes_on(sv, now) && sv->e > 0) {
		ob_window_watch(ob, sv);
		return;
	}
	/* A cycle that a mark began too early begins now that its job comes, its window whole. */
	if (unbegun && now > sv->cycle) {
		ob_window_anew(sv, sv->cycle, now);
		sv->cycle = now;
		ob_server_set(ob, sv, now, sv->e, ob_window_end(sv));
		ob_window_watch(ob, sv);
		return;
	}
	while (end <= now && leg < sv->legs && OB_LOOP) {
		end += sv->window;
		leg++;
	}
	/* Past the last window of a deadline shorter than the period there is nothing left either.
	 */
	if (leg == sv->legs ||
	    (leg + 1 == sv->legs && sv->cycle <= now && end - now < sv->window / 8)) {
		ob_window_enter(ob, sv, next, 0, now);
	} else if (leg > sv->leg) {
		ob_window_shift(sv, end - sv->window, now);
		ob_window_enter(ob, sv, sv->cycle, leg, now);
	} else {
		if (sv->e > 0) {
			ob_window_shift(sv, end - sv->window, now);
			ob_server_set(ob, sv, now, sv->e, ob_window_end(sv));
		}
		ob_window_watch(ob, sv);
	}
}

/* A reservation that has just been split, at its first leg's CPU, begins a cycle there. */
OB_FN void ob_window_restart(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	sv->has_saved = 0;
	sv->s = 0;
	sv->shift = 0;
	if (!sv->active)
		return;
	ob_window_enter(ob, sv, now, 0, now);
	if (!sv->throttled)
		ob_server_requeue(ob, sv);
}

/* The share is used up. */
OB_INLINE void ob_window_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	u64 end = ob_window_leave(sv);

	if (!sv->postponed || end <= now) {
		ob_window_next(ob, sv, now);
		return;
	}
	/* Section 5.2: a deadline one period later, beyond what it is owed: an overrun to FCBS. */
	sv->starved = 1;
	sv->s = end + sv->period;
	ob_emit(ob, now, OB_KC(OB_EV_THROTTLE, OB_NONE), OB_TS(OB_NONE, sv->id), 0, end);
}

/* A job begins: budget and deadline by the rule of windows, or by the CBS's. */
OB_FN void ob_server_take_up(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (sv->legs)
		ob_window_release(ob, sv, now);
	else
		ob_server_cbs_release(ob, sv, now);
}

/* The budget is used up: the next one, from the next window or period. */
OB_FN void ob_server_renew(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	while (sv->e <= 0 && !sv->starved && OB_LOOP) {
		if (sv->legs)
			ob_window_exhausted(ob, sv, now);
		else
			/* e += Q, not e = Q: what enforcement let through late is paid back. */
			ob_server_set(ob, sv, now, sv->e + (s64)sv->budget, sv->s + sv->period);
	}
}

#endif
