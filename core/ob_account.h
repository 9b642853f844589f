/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a user may take ahead of best effort. Every user who holds reservations has an account: a
 * token bucket that fills at the rate the user may take in all, and pays for everything the user's
 * reservations consume before best effort, budgets and overruns alike. An overrun may also use what
 * other users' reservations leave of what they were admitted with: that was theirs, not best
 * effort's.
 *
 * A server that is ahead of its reservation while its account is empty is *demoted*: best effort's
 * equal. It comes behind all reservations, and takes turns with best effort by virtual time, as one
 * thread of nice 0. The account fills meanwhile; with half of its depth, or as soon as the
 * server is not ahead any more, that ends. Budgets are never held back, save those whose deadline
 * is so far away that they would gather into an overrun of their own: there ahead means ahead of
 * Q/P.
 */
#ifndef OB_ACCOUNT_H
#define OB_ACCOUNT_H

#include "ob_key.h"

/* An account has at most what it is paid in so long left, ns: the bound is exceeded by no more,
 * once in any window. */
#define OB_ACCOUNT_DEPTH 10000000ULL
/* And owes at most what it is paid in so long, ns. */
#define OB_ACCOUNT_DEBT 1000000000ULL
/* What reservations leave is there for overruns of others for so long, ns. */
#define OB_ACCOUNT_LEFT 100000000ULL
/* Deadlines further away than that are far: within it budgets go first, whatever the account, ns.
 */
#define OB_ACCOUNT_FAR 1000000000ULL
/* There a server is as much ahead of Q/P at least when it is demoted: alarms can be late, ns. */
#define OB_ACCOUNT_EARLY 5000000ULL
/* For its account's sake a demoted server is looked at as often as that at least, and no more often
 * than that, ns. */
#define OB_ACCOUNT_LOOK 50000000ULL
#define OB_ACCOUNT_SOON 1000000ULL
/* And one that may be demoted no more often than that, ns. */
#define OB_ACCOUNT_WATCH 500000ULL

OB_FN u64 ob_server_spares(ob_server_p sv OB_ARG, u64 left, u64 e);

/* What `rate` (2^-OB_SHARE_BITS CPUs) comes to in `time` ns, at most 17 s of it. */
OB_INLINE s64 ob_account_worth(u64 rate, u64 time)
{
	return (s64)(rate * ob_min(time, 1ULL << 34) >> OB_SHARE_BITS);
}

/* What those who run now have had that is not charged yet, ns. */
OB_INLINE s64 ob_account_pending(ob_account_p a, u64 now)
{
	return (s64)(a->running * now - a->charged);
}

/* What is left in `a`, up to date, by what its threads have had, charged or not, ns. */
OB_INLINE s64 ob_account_left(ob_account_p a, u64 now)
{
	return a->has - ob_account_pending(a, now);
}

/* A thread of `sv`, just charged, begins to run (`by` is 1) or stops (-1). */
OB_INLINE void ob_account_run(ob_server_p sv, u32 by, u64 now)
{
	if (!sv->account)
		return;
	sv->account->running += by;
	sv->account->charged += (u64)(s64)(s32)by * now;
}

/* As ob_account_fill. */
OB_INLINE void ob_account_pay(ob_account_p a, u64 now)
{
	u64 time = now > a->since ? now - a->since : 0;
	s64 most;

	a->since = ob_max(a->since, now);
	a->has += ob_account_worth(a->rate, time);
	most = ob_account_worth(a->rate, OB_ACCOUNT_DEPTH) + ob_account_pending(a, now);
	if (a->has > most)
		a->has = most;
	a->unused += ob_account_worth(a->admitted, time);
	most = ob_account_worth(a->admitted, OB_ACCOUNT_LEFT);
	if (a->unused > most)
		a->unused = most;
}

/* Brings `a` up to `now`. What is full is full beyond what is yet to be charged: else the payments
 * of a whole stretch of running would be lost, and then its charge come at once. */
OB_FN void ob_account_fill(ob_account_p a OB_ARG, u64 now)
{
	ob_account_pay(a, now);
}

/* Takes a->bill, ns of an overrun, from what others left; the rest stays. Who is not limited uses
 * up its own as well. */
OB_FN void ob_account_draw(ob_account_p a OB_ARG, u64 now)
{
	ob_account_p first = a - (a->id & (OB_MAX_ACCOUNTS - 1)), o;
	u64 part;
	u32 i;

	for (i = OB_ZERO; i < first->count && a->bill && OB_LOOP; i++) {
		o = first + (i & (OB_MAX_ACCOUNTS - 1));
		if (o == a && a->rate)
			continue;
		ob_account_fill(o, now);
		if (o->unused <= 0)
			continue;
		part = ob_min((u64)o->unused, a->bill);
		o->unused -= (s64)part;
		a->bill -= part;
	}
}

/* Whether `sv` competes with best effort. Turns that patience gives it go before. */
OB_INLINE int ob_account_equal(ob_server_p sv)
{
	return sv->demoted && !sv->urgent;
}

/* Of what its reservations were admitted with they have used that. */
OB_INLINE void ob_account_use(ob_account_p a, u64 used)
{
	s64 least = -ob_account_worth(a->admitted, OB_ACCOUNT_LEFT);

	a->unused -= (s64)used;
	if (a->unused < least)
		a->unused = least;
}

/* The account of `sv` pays for the `used` ns that the server has had. */
OB_FN void ob_account_charge(ob_server_p sv OB_ARG, u64 used, u64 now)
{
	ob_account_p a = sv->account;
	s64 least;

	if (ob_account_equal(sv))
		sv->vtime += used;
	ob_account_pay(a, now);
	a->bill = used;
	/* A budget of a later period is as much its own, and will be missing there. */
	if (!sv->spent && !ob_borrows(sv))
		ob_account_use(a, used);
	if ((sv->spent || ob_borrows(sv) || ob_place_over(sv) > sv->charged) &&
	    !ob_account_equal(sv))
		ob_account_draw(a, now);
	if (!a->rate || ob_account_equal(sv))
		return;
	a->has -= (s64)a->bill;
	least = -ob_account_worth(a->rate, OB_ACCOUNT_DEBT);
	if (a->has < least)
		a->has = least;
}

OB_INLINE int ob_account_limits(ob_server_p sv)
{
	return sv->account && sv->account->rate;
}

/* Whether `sv` runs, or would run, ahead of its reservation: on no budget, on one of a later
 * period, or on one that is due so late that Q/P is ahead of it. */
OB_FN u64 ob_account_ahead(ob_server_p sv OB_ARG, u64 now)
{
	if (sv->state == OB_RESTS || sv->urgent)
		return 0;
	if (sv->spent || ob_borrows(sv) || sv->e <= 0 || ob_place_over(sv) > now)
		return 1;
	return sv->s > now + OB_ACCOUNT_FAR &&
	       !ob_server_spares(sv, sv->s - now - OB_ACCOUNT_EARLY, (u64)sv->e);
}

/* Where in virtual time best effort is on the CPUs of `sv`. */
OB_FN u64 ob_account_vtime(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	ob_node_p first = ob_tree_first(&ob->best_effort, sv->cpus);

	return first ? ob_min(ob->vtime, ob_others_where(first)) : ob->vtime;
}

/* How far a demoted server comes, in virtual time, until `n`, of best effort, is before it: it
 * stands as a thread does that is bound by the CPU. */
OB_INLINE u64 ob_account_until(ob_p ob, ob_node_p n)
{
	u64 where = ob_others_where(n);

	return where - ob_min(where, ob_among_bound(ob));
}

/* When a demoted server is not ahead any more if it does not run until then. */
OB_INLINE u64 ob_account_even(ob_server_p sv, u64 now)
{
	u64 over = ob_place_over(sv), density, need;

	/* Its next budget comes by another alarm. */
	if (sv->spent || ob_borrows(sv) || sv->e <= 0)
		return OB_NEVER;
	if (over > now)
		return over;
	density = (sv->budget << OB_SHARE_BITS) / ob_max(ob_min(sv->period, sv->deadline), 1);
	need = ((u64)sv->e << OB_SHARE_BITS) / ob_max(density, 1) + OB_ACCOUNT_EARLY;
	return sv->s > need ? sv->s - need : 0;
}

/* Sets when a demoted server is looked at again. */
OB_FN void ob_account_watch(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_account_p a = sv->account;
	s64 lack = ob_account_worth(a->rate, OB_ACCOUNT_DEPTH) / 2 - ob_account_left(a, now);
	u64 wait = OB_ACCOUNT_LOOK, even = ob_account_even(sv, now);

	if (lack < ob_account_worth(a->rate, OB_ACCOUNT_LOOK))
		wait = lack > 0 ? ((u64)lack << OB_SHARE_BITS) / a->rate : 0;
	wait = now + ob_max(wait, OB_ACCOUNT_SOON);
	/* Some moments late, what is due may be too much for the time that is left. Where that time
	 * has passed and it is still ahead, it is so by a rounding. */
	ob_due_set(ob, &sv->due, OB_DUE_REVIEW, even > now ? ob_min(wait, even) : wait);
}

/* What it is ahead of best effort or behind it outlives its being demoted, up to a slice. */
OB_FN void ob_account_demote(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 from = ob_account_vtime(ob, sv);

	sv->demoted = 1;
	sv->vtime = sv->lag < 0 && from < (u64)-sv->lag ? 0 : from + (u64)sv->lag;
	ob_account_watch(ob, sv, now);
}

OB_FN void ob_account_promote(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	s64 slice = (s64)ob->slice;

	if (!sv->demoted)
		return;
	sv->demoted = 0;
	ob_due_set(ob, &sv->due, OB_DUE_REVIEW, 0);
	sv->lag = (s64)(sv->vtime - ob_account_vtime(ob, sv));
	if (sv->lag > slice)
		sv->lag = slice;
	if (sv->lag < -slice)
		sv->lag = -slice;
}

/* Whether a demoted server is to be one no more. */
OB_FN u64 ob_account_restored(ob_server_p sv OB_ARG, u64 now)
{
	ob_account_p a = sv->account;

	ob_account_fill(a, now);
	return ob_account_left(a, now) >= ob_account_worth(a->rate, OB_ACCOUNT_DEPTH) / 2 ||
	       !ob_account_ahead(sv, now);
}

/* A demoted server has a new budget or deadline. */
OB_FN void ob_account_renewed(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (!ob_account_ahead(sv, now)) {
		ob_account_promote(ob, sv);
		return;
	}
	/* A budget that came early: that it is ahead no more when it is due may not be overlooked.
	 */
	ob_account_watch(ob, sv, now);
}

/* A demoted server begins to run: if it could not for long, it has no more than a slice of
 * advantage over best effort, which counts from where it is. */
OB_INLINE void ob_account_begin(ob_p ob, ob_server_p sv)
{
	if (!ob_account_equal(sv))
		return;
	if (sv->vtime + ob->slice < ob->vtime)
		sv->vtime = ob->vtime - ob->slice;
	ob_raise(&ob->vtime, sv->vtime);
}

/* Whether best effort, `prev` or who waits for `bit`, goes before the demoted `sv`. */
OB_FN u64 ob_account_yields(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_task_p prev OB_ARG, u64 bit,
			    u64 now)
{
	ob_node_p first;

	if (prev && !prev->server && ob_others_stands(ob, prev) < sv->vtime + ob_among_bound(ob))
		return 1;
	first = ob_tree_first(&ob->best_effort, bit);
	return (first && ob_account_until(ob, first) < sv->vtime) ||
	       ob_others_impatient(ob, bit, now);
}

/* What is left of the turn of the demoted server on `c`, ns of one CPU, at most a slice. */
OB_FN u64 ob_account_turn(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_server_p sv OB_ARG)
{
	ob_node_p n = ob_tree_first(&ob->best_effort, OB_BIT(c->id));
	u64 end = n ? ob_account_until(ob, n) : OB_NEVER;

	n = ob_tree_first(&sv->domain->active, OB_BIT(c->id));
	if (n && n != &sv->node && n->key > OB_KEY_EQUAL)
		end = ob_min(end, n->key - OB_KEY_EQUAL);
	if (end == OB_NEVER)
		return ob->slice;
	end += ob_others_turn(ob);
	return ob_min(end > sv->vtime ? end - sv->vtime : 0, ob->slice);
}

/* When what runs on `c` under `sv`, just charged, must be looked at for its account's sake. */
OB_FN u64 ob_account_next(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_server_p sv OB_ARG)
{
	s64 left;

	/* Who is to leave has been kicked for. */
	if (ob_account_equal(sv))
		return sv->charged + (ob_account_turn(ob, c, sv) ?: ob->slice);
	if (!sv->spent && !ob_borrows(sv) && sv->e > 0 && ob_place_over(sv) <= sv->charged &&
	    sv->s <= sv->charged + OB_ACCOUNT_FAR)
		return OB_NEVER;
	ob_account_fill(sv->account, sv->charged);
	left = ob_account_left(sv->account, sv->charged);
	return sv->charged +
	       ob_max(left > 0 ? (u64)left / (2 * ob_max(sv->account->running, 1)) : 0,
		      OB_ACCOUNT_WATCH);
}

/* Whether the demoted server on `c` makes room for best effort or another. */
OB_FN u64 ob_account_turn_over(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	return !ob_account_turn(ob, c, sv) || ob_others_impatient(ob, OB_BIT(c->id), now);
}

/* What `sv` is admitted with, 2^-OB_SHARE_BITS CPUs, rounded up. */
OB_INLINE u64 ob_account_share(ob_server_p sv)
{
	return (sv->budget << OB_SHARE_BITS) / ob_max(sv->period, 1) + 1;
}

/* `sv`, described, counts on account `id`, which may take `rate` ahead of best effort in units of
 * 2^-OB_SHARE_BITS CPUs; 0: as much as it gets. */
OB_FN void ob_account_join(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 id, u64 rate, u64 now)
{
	ob_account_p a = &ob->account[id & (OB_MAX_ACCOUNTS - 1)];

	ob->account[0].count = (u32)ob_max(ob->account[0].count, (id & (OB_MAX_ACCOUNTS - 1)) + 1);
	/* Who gives all back and reserves anew has paid no debts by it. */
	ob_account_fill(a, now);
	a->id = id & (OB_MAX_ACCOUNTS - 1);
	a->rate = rate;
	sv->account = a;
	sv->rate = ob_account_share(sv);
	a->admitted += sv->rate;
	sv->demoted = 0;
	sv->vtime = 0;
	sv->lag = 0;
}

/* `sv` has another budget or period from now on. */
OB_INLINE void ob_account_resize(ob_server_p sv, u64 now)
{
	if (!sv->account)
		return;
	ob_account_fill(sv->account, now);
	sv->account->admitted -= sv->rate;
	sv->rate = ob_account_share(sv);
	sv->account->admitted += sv->rate;
}

/* The user of `sv` may take another rate from now on. */
OB_INLINE void ob_account_set(ob_server_p sv, u64 rate, u64 now)
{
	if (!sv->account)
		return;
	ob_account_fill(sv->account, now);
	/* One that is demoted stays limited: 0 is for those who never are. */
	sv->account->rate = sv->account->rate ? ob_max(rate, 1) : 0;
}

/* `sv`, which has no job, is given back. */
OB_FN void ob_account_part(ob_server_p sv OB_ARG, u64 now)
{
	ob_account_p a = sv->account;

	if (!a)
		return;
	ob_account_fill(a, now);
	a->admitted -= sv->rate;
	/* None runs; but a count that were wrong would stay. */
	a->running -= sv->running;
	a->charged -= sv->running * sv->charged;
	sv->account = OB_NULL;
}

#endif
