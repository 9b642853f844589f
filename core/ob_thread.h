/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads and the reservations they run under: which of them wait, and which are awake. */
#ifndef OB_THREAD_H
#define OB_THREAD_H

#include "ob_budget.h"
#include "ob_draw.h"

/* Who has so much more to do than can be in time, ns, has been held. */
#define OB_HELD_BEHIND 2000000ULL

/* Links a ready thread into its server's list, at the head if it was interrupted. */
OB_INLINE void ob_thread_link(ob_p ob, ob_server_p sv, ob_task_p t, int at_head)
{
	t->waiting = 1;
	t->next = OB_NULL;
	t->prev = OB_NULL;
	if (!sv->head) {
		sv->head = t;
		sv->tail = t;
	} else if (at_head) {
		t->next = sv->head;
		sv->head->prev = t;
		sv->head = t;
	} else {
		t->prev = sv->tail;
		sv->tail->next = t;
		sv->tail = t;
	}
	sv->waiting++;
	t->picked = 0;
	if (sv->cpus & ~t->cpus)
		sv->pinned++;
}

OB_INLINE void ob_thread_unlink(ob_server_p sv, ob_task_p t)
{
	if (t->prev)
		t->prev->next = t->next;
	else
		sv->head = t->next;
	if (t->next)
		t->next->prev = t->prev;
	else
		sv->tail = t->prev;
	t->next = OB_NULL;
	t->prev = OB_NULL;
	t->waiting = 0;
	sv->waiting--;
	if (sv->cpus & ~t->cpus)
		sv->pinned--;
}

/* Takes `t` out of whatever queue holds it. Idempotent. */
OB_FN void ob_unqueue(ob_p ob OB_ARG, ob_task_p t OB_ARG)
{
	ob_server_p sv = t->server;

	t->picked = 0;
	if (!t->waiting)
		return;
	if (!sv) {
		ob_others_subtract(ob, t);
		return;
	}
	ob_thread_unlink(sv, t);
	ob_server_masks(ob, sv, sv->node.over);
}

/* `t`, stopped and unqueued, sleeps: if it is the last thread of its server, the job is done. */
OB_FN void ob_sleep(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	ob_server_p sv = t->server;

	ob_unqueue(ob, t);
	if (!t->awake)
		return;
	t->awake = 0;
	if (!sv) {
		ob_among_slept(ob, t);
		if (!t->away)
			return;
		t->away = 0;
		sv = t->home;
	}
	sv->awake--;
	if (sv->awake || !sv->state)
		return;
	ob_order_stale(sv);
	if (sv->marks)
		ob_server_unbegin(ob, sv, now);
	else
		ob_server_end(ob, sv, now);
	ob_want(ob, sv, now);
}

/* Puts `t`, neither running nor queued, under `sv` (null: best effort). */
OB_FN void ob_move(ob_p ob OB_ARG, ob_task_p t OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u32 awake = t->awake;

	ob_sleep(ob, t, now);
	t->server = sv;
	if (!awake)
		return;
	t->awake = 1;
	if (sv && !sv->awake++)
		ob_server_rouse(ob, sv, now);
}

/* Puts `t` under reservation `sv` (null: back to best effort). `t` must not be running or queued:
 * the shell unqueues it before and calls ob_ready after. */
OB_FN void ob_attach(ob_p ob OB_ARG, ob_task_p t OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_p old = t->server ? t->server : t->home;

	if (old == sv)
		return;
	if (sv && !sv->threads++)
		ob->engaged++;
	ob_move(ob, t, sv, now);
	t->home = OB_NULL;
	if (old && !--old->threads)
		ob->engaged--;
}

/* `t`, which sleeps, is no more. */
OB_INLINE void ob_forget(ob_p ob, ob_task_p t)
{
	ob_server_p sv = t->server ? t->server : t->home;

	t->server = OB_NULL;
	t->home = OB_NULL;
	if (sv && !--sv->threads)
		ob->engaged--;
}

/* Whether `t` may not run wherever `sv`, or the outermost of its groups, is served, now or in one
 * of its windows. */
OB_FN u64 ob_thread_shut_out(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_task_p t OB_ARG)
{
	u64 cpus = t->cpus, narrow = ~t->may, online = ob->online;

	for (; sv->domain->up && OB_LOOP; sv = sv->domain->up) {
		cpus &= sv->cpus;
		narrow |= ~sv->cpus;
	}
	return ob_place_shuts_out(sv, cpus & online, narrow & online);
}

/* Whether `t` is best effort and has a reservation to go back to. */
OB_INLINE int ob_thread_returns(ob_p ob, ob_task_p t)
{
	return !t->server && t->home && !ob_thread_shut_out(ob, t->home, t);
}

/*
 * A thread that its affinity, or a CPU's going, shuts out of its reservation's CPUs is best effort
 * until it may return: elsewhere the reservation was not admitted, and it must run somewhere.
 */
OB_FN void ob_settle(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	ob_server_p sv = t->server ? t->server : t->home;
	int out;

	if (!t->server && sv->used == 2) {
		ob_attach(ob, t, OB_NULL, now);
		return;
	}
	out = (int)ob_thread_shut_out(ob, sv, t);
	if (out == !t->server && !t->away)
		return;
	if (t->away && !out) {
		t->away = 0;
		t->server = sv;
		ob_among_slept(ob, t);
	} else {
		ob_move(ob, t, out ? OB_NULL : sv, now);
	}
	t->home = out ? sv : OB_NULL;
	/* Behind its siblings. */
	t->turn = OB_ROTATE;
}

/* `t`, of best effort, waits from now on: it `woke`, or was interrupted. Whether a CPU that idles,
 * or one that owes best effort time, is to have it. */
OB_INLINE int ob_other_waits(ob_p ob, ob_task_p t, u32 woke, u64 now)
{
	u64 cpus = ob->best_effort.root ? ob->best_effort.root->sub_mask : 0;

	if (ob->share_ready)
		ob_share_arrive(ob, t->cpus & ~cpus, now);
	ob_others_enqueue(ob, t, woke, now);
	if (!(t->cpus & ob->online))
		ob->kick |= ob->online & -ob->online;
	cpus = t->cpus & ob->idle;
	if (cpus) {
		cpus = (cpus & OB_BIT(t->cpu)) ? OB_BIT(t->cpu) : cpus & -cpus;
		ob_idle_clear(ob, cpus);
		ob->kick |= cpus;
		return 1;
	}
	return ob->share_ready && ob_share_claim(ob, t->cpus, now);
}

/* `t`, of best effort, wants to run. */
OB_INLINE void ob_ready_other(ob_p ob, ob_task_p t, u32 woke, u64 now)
{
	if (!woke && ob_cpu(ob, t->cpu)->stopped)
		ob_draw_stopped(ob, ob_cpu(ob, t->cpu), now);
	if (ob->nr_draws)
		ob_draw_arrives(ob, woke, now);
	if (ob_other_waits(ob, t, woke, now))
		return;
	if (ob->nr_draws && ob_draw_claim(ob, t, now))
		return;
	if (woke)
		ob_others_wake(ob, t, now);
}

/* `t`, of best effort, has woken, and went round the core: it is about to run, so no server need
 * draw it. */
OB_FN void ob_wake_other(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	t->awake = 1;
	if (!ob_other_waits(ob, t, 1, now))
		ob_others_wake(ob, t, now);
}

/* `t` of `sv` waits. If `sv` was held where its CPUs could not do what it asks, and is free again,
 * it begins anew where it has fallen behind: nobody shared that lateness, and to make up for it
 * would make others late. (The kernel holds threads for moments, too: that is no reason.) */
OB_INLINE void ob_thread_freed(ob_p ob, ob_server_p sv, ob_task_p t, u64 now)
{
	if (sv->cpus & ~t->cpus) {
		sv->held = 1;
		return;
	}
	if (!sv->held)
		return;
	sv->held = 0;
	if (sv->state == OB_READY && sv->e > 0 && !ob_place_moves(sv) &&
	    sv->s + OB_HELD_BEHIND <= now + (u64)sv->e && ob_place_keeps(sv) == OB_LATE_ISOLATED) {
		sv->shift = 0;
		ob_place_fresh(ob, sv, now);
		ob_server_requeue(ob, sv);
	}
}

/*
 * Thread `t` wants to run: it woke, or was interrupted; then it goes before its siblings, unless
 * its turn is over. Idempotent.
 */
OB_FN void ob_ready(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	u32 woke = !t->awake, at_head;
	ob_server_p sv;

	if (t->waiting)
		return;
	if (t->server || t->home)
		ob_settle(ob, t, now);
	sv = t->server;
	t->awake = 1;
	t->picked = 0;
	at_head = !woke && sv && t->turn < ob_turn(sv);
	if (!at_head)
		t->turn = 0;
	if (!sv) {
		ob_ready_other(ob, t, woke, now);
		return;
	}
	if (!woke)
		ob_budget_look(ob, sv, now);
	else if (!sv->awake++)
		ob_server_rouse(ob, sv, now);
	/* Who sleeps now and then would not be looked at otherwise. */
	if (woke && ob_server_top(sv)->account)
		ob_account_check(ob, ob_server_top(sv), now);
	ob_thread_freed(ob, sv, t, now);
	ob_thread_link(ob, sv, t, at_head);
	if (sv->state == OB_RESTS) {
		ob_patience_sync(ob, sv);
		return;
	}
	if (ob_policy_lends(sv) == OB_LENDS_START) {
		/* Keys change with what has run. */
		ob_server_charge(sv, now);
		ob_server_requeue(ob, sv);
		ob_keys_refresh(ob, sv->domain, now);
	} else if (sv->node.linked) {
		ob_server_update(ob, sv);
	} else {
		ob_server_requeue(ob, sv);
	}
	ob_preempt(ob, sv, t->cpu);
	/* A sibling that runs has no turn to end while alone: it has now. */
	if (sv->running) {
		ob_server_charge(sv, now);
		ob_server_rearm(ob, sv);
	}
}

/* Threads that wait where `sv` serves them no more become best effort until they may return. The
 * caller requeues. */
OB_FN void ob_server_expel(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_task_p t, next;

	for (t = sv->head; t && OB_LOOP; t = next) {
		next = t->next;
		if (!ob_thread_shut_out(ob, sv, t))
			continue;
		ob_thread_unlink(sv, t);
		ob_ready(ob, t, now);
	}
}

/* The program says that the job of t's server is complete; the next begins at once, unless it
 * sleeps first. */
OB_FN void ob_mark(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	ob_server_p sv = t->server;

	if (!sv || !sv->marks || !sv->state)
		return;
	ob_server_end(ob, sv, now);
	sv->marked_consumed = sv->consumed;
	sv->marked = 1;
	ob_server_begin(ob, sv, now);
	ob_want(ob, sv, now);
	ob_server_requeue(ob, sv);
}

#endif
