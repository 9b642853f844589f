/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Capacities: what jobs that end early leave of their budgets, for servers that ran dry.
 *
 * What a job leaves at t0 by its deadline s is a capacity. Who runs dry takes the one with the
 * earliest deadline, and has that deadline meanwhile, its own pair of budget and deadline waiting
 * (Caccamo, Buttazzo and Sha, "Capacity sharing for overrun control", RTSS 2000; on several CPUs
 * Pellizzoni and Caccamo, "M-CASH"). It is served as the job that left it would have been if it had
 * gone on; so what waits for a taker melts, as if that job had run all the time since t0.
 *
 * Programs sleep in the middle of their jobs, too, and are owed what they have left when they wake
 * up: by the rule of a constant bandwidth server (whole.h) up to (s − t)·Q/D by s at time t, or
 * else a whole new budget by t + D, which is the same bandwidth. Only what is left beyond that at
 * t0 is a capacity (the bandwidth of inactive servers in Lipari and Baruah, "Greedy reclamation of
 * unused bandwidth", ECRTS 2000). So on one CPU nobody is late by it whose budget suffices.
 *
 * A hard one keeps all that it has left when it wakes (whole.h, sporadic), for its CPU was tested
 * so. It goes before those who take its capacities and loses nothing, and if it did wake before its
 * next budget, both would be had at the soft ones' expense. So it leaves capacities, all that it
 * has left, only once OB_CASH_STEADY budgets in a row were one job's each, and never again when one
 * was not.
 */
#ifndef OB_CASH_H
#define OB_CASH_H

#include "ob_lend.h"

/* Less is not worth a change of deadlines, ns. */
#define OB_CASH_LEAST 100000ULL
/* No deadline that counts is later, ns: products with a rate fit 64 bits. */
#define OB_CASH_FAR ((1ULL << 43) - 1)
/* Budgets of a hard one that must have been one job's each before it leaves any. */
#define OB_CASH_STEADY 16
#define OB_CASH_UNSTEADY 255
/* Capacities that one who runs dry looks at, and those who ran dry that one who leaves some does.
 */
#define OB_CASH_LOOKS 8

/* Whether `sv` is late, and no more than that, if it has no budget: groups and split ones wait, and
 * so do hard ones, whose overruns are mistakes. */
OB_INLINE int ob_cash_overruns(ob_server_p sv)
{
	return !sv->hard && !sv->members && !ob_place_moves(sv);
}

/* Whether capacities of its queue have deadlines that mean something there; beside split ones who
 * wakes early keeps all that it has left (whole.h), and nothing of it is others'. */
OB_INLINE int ob_cash_shares(ob_server_p sv)
{
	return !sv->members && !ob_place_moves(sv) && ob_order_deadlines(sv) && !sv->domain->split;
}

/* What `sv`, whose job has just ended, can spare of what it has left, ns. */
OB_INLINE u64 ob_cash_spare(ob_server_p sv, u64 now)
{
	u64 left = ob_min(sv->s - now, OB_CASH_FAR), has = (u64)sv->e, keeps;

	if (sv->hard)
		return sv->steady == OB_CASH_STEADY ? ob_min(has, left) : 0;
	keeps = (left * ((sv->budget << OB_SHARE_BITS) / ob_max(sv->deadline, 1) + 1) >>
		 OB_SHARE_BITS) +
		1;
	return has > keeps ? has - keeps : 0;
}

/* Whether `to` may have what `from` leaves: on CPUs that were tested for both. */
OB_INLINE int ob_cash_fits(ob_server_p from, ob_server_p to)
{
	return from->hard ? !(from->cpus & ~to->cpus) : from->cpus == to->cpus;
}

/* `to`, just charged, has `amount` ns by `deadline`, which `from` had: its own pair waits. */
OB_INLINE void ob_cash_give(ob_p ob, ob_server_p to, ob_server_p from, u64 amount, u64 deadline,
			    u64 now)
{
	from->donated += amount;
	to->received += amount;
	to->saved_e = to->e;
	to->saved_s = to->s;
	to->has_saved = 1;
	to->urgent = 0;
	to->e = (s64)amount;
	to->s = deadline;
	ob_order_stale(to);
	ob_emit(ob, now, OB_KC(OB_EV_DONATE, OB_NONE), OB_TS(OB_NONE, from->id), amount, to->id);
}

/* `sv`, which has used up its budget, takes what another leaves by the earliest deadline. Whether
 * there was any. */
OB_FN u64 ob_cash_take(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_node_p n = ob_tree_first(&sv->domain->pledges, sv->cpus), next;
	ob_server_p from;
	u64 spare;
	u32 i;

	for (i = OB_ZERO; n && i < OB_CASH_LOOKS && OB_LOOP; i++, n = next) {
		next = ob_tree_next(n);
		from = OB_SERVER_OF_PLEDGE(n);
		spare = from->lends > now ? from->lends - now : 0;
		if (from->counted || (spare >= OB_CASH_LEAST && !ob_cash_fits(from, sv)))
			continue;
		ob_unpledge(from);
		if (spare < OB_CASH_LEAST)
			continue;
		if (!from->hard)
			from->e -= (s64)spare;
		ob_cash_give(ob, sv, from, spare, from->s, now);
		return 1;
	}
	return 0;
}

/* Who is to be served first with what `from` leaves: the first that ran dry, likely late, else best
 * effort, if it waits for a server that did (which a group is not told of); or null. */
OB_FN u64 ob_cash_taker(ob_p ob OB_ARG, ob_server_p from OB_ARG)
{
	ob_domain_p d = from->domain;
	ob_node_p n = (ob_node_p)ob_tree_from(&d->active, OB_KEY_SPENT);
	u32 i;

	for (i = OB_ZERO; n && n->key < OB_KEY_EQUAL && i < OB_CASH_LOOKS && OB_LOOP; i++) {
		if (ob_cash_fits(from, (ob_server_p)n))
			return (u64)n;
		n = ob_tree_next(n);
	}
	if (!ob->nr_draws || ob->draws[0]->domain != d || d->up || !d->others)
		return 0;
	for (i = OB_ZERO; i < ob->nr_draws && OB_LOOP; i++) {
		ob_server_p sv = ob->draws[i & (OB_MAX_CPUS - 1)];

		if (sv->state == OB_RESTS && !sv->broke && ob_cash_fits(from, sv))
			return (u64)sv;
	}
	return 0;
}

/* `to`, which ran dry, has got a capacity. */
OB_FN void ob_cash_serve(ob_p ob OB_ARG, ob_server_p to OB_ARG, u64 now)
{
	u64 until = to->due.at[OB_DUE_REFILL];

	ob_lent(ob, to, now);
	to->spent = 0;
	if (to->state == OB_RESTS) {
		to->state = OB_READY;
		ob_due_set(ob, &to->due, OB_DUE_REFILL, 0);
		ob_due_set(ob, &to->due, OB_DUE_SPENT, until);
	}
	ob_server_requeue(ob, to);
	ob_preempt(ob, to, to->head ? to->head->cpu : 0);
}

/* `sv` has its own pair again. What is left of a capacity goes to the next who ran dry. */
OB_FN void ob_cash_return(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 left = sv->e > 0 ? (u64)sv->e : 0, deadline = sv->s;
	ob_server_p to;

	if (!sv->has_saved)
		return;
	sv->e -= (s64)left;
	sv->urgent = 0;
	ob_server_restore(ob, sv, now);
	if (left < OB_CASH_LEAST || deadline <= now)
		return;
	to = (ob_server_p)ob_cash_taker(ob, sv);
	if (!to || to == sv)
		return;
	ob_server_charge(to, now);
	ob_cash_give(ob, to, sv, left, deadline, now);
	ob_cash_serve(ob, to, now);
}

/* `sv` has used up its budget, or a capacity. */
OB_FN void ob_cash_dry(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 until;

	ob_cash_return(ob, sv, now);
	until = ob_place_rests_until(sv);
	if (!ob_cash_overruns(sv) || until <= now) {
		ob_cbs_hard_exhausted(ob, sv, now);
		return;
	}
	sv->soon = 0;
	if (!ob_cash_shares(sv) || !ob_cash_take(ob, sv, now)) {
		if (sv->draws) {
			ob_server_throttle(ob, sv, now, until);
			return;
		}
		sv->spent = 1;
	}
	ob_due_set(ob, &sv->due, OB_DUE_LAXITY, 0);
	ob_due_set(ob, &sv->due, OB_DUE_SPENT, ob_max(until, 1));
}

/* A job of `sv` begins: what it has left is its own again. */
OB_INLINE void ob_cash_begin(ob_p ob, ob_server_p sv, u64 now)
{
	s64 had = sv->e;
	u32 again = sv->s > now;

	ob_unpledge(sv);
	ob_place_take_up(ob, sv, now);
	if (again && sv->e == had)
		sv->steady = OB_CASH_UNSTEADY;
	else if (sv->steady < OB_CASH_STEADY)
		sv->steady++;
}

/* The job of `sv` has ended. After a mark the next one, which goes on with what is left, may have
 * begun: it is seen then whether threads sleep (ob_server_unbegin). */
OB_FN void ob_cash_leave(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_p to;
	u64 spare;

	ob_cash_return(ob, sv, now);
	if (sv->awake)
		return;
	spare = sv->e > 0 && sv->s > now && ob_cash_shares(sv) ? ob_cash_spare(sv, now) : 0;
	if (spare >= OB_CASH_LEAST) {
		sv->lends = now + spare;
		sv->pledge.key = sv->s;
		sv->pledge.mask = sv->cpus;
		ob_tree_insert(&sv->domain->pledges, &sv->pledge);
		to = (ob_server_p)ob_cash_taker(ob, sv);
		if (!to)
			return;
		ob_server_charge(to, now);
		if (ob_cash_take(ob, to, now))
			ob_cash_serve(ob, to, now);
	}
}

#endif
