/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the policies may do to a server: charge it, give it a new deadline, throttle it, move it in
 * its domain's queue. Policies call these and nothing else.
 */
#ifndef OB_SERVER_H
#define OB_SERVER_H

#include "ob_account.h"
#include "ob_patience.h"

/* Threads of one server take turns of this length at most, ns, and of the other at least. */
#define OB_ROTATE 4000000ULL
#define OB_ROTATE_LEAST 50000ULL
/* All of them have a turn within this time, ns, as long as turns need not be shorter than that. */
#define OB_ROUND 6000000000ULL

/* Whether its budget is enforced: the registry says so. */
OB_INLINE int ob_policy_enforces(ob_server_p sv);

/* Whether it has used up its share of a window and been given nothing (EDF-WMR). */
OB_INLINE int ob_server_starves(ob_server_p sv)
{
	return sv->starved && sv->e <= 0;
}

/* Whether its `lax` is for ob->windows. */
OB_INLINE int ob_server_windowed(ob_server_p sv)
{
	return (sv->legs && sv->postponed) || sv->spent;
}

/* Whether it may not run now, though its threads want to. */
OB_INLINE int ob_server_rests(ob_server_p sv)
{
	return sv->throttled || ob_server_starves(sv);
}

/* How far the server has run ahead of its bandwidth: s − P; above `now` it has overrun. A split one
 * has when its cycle lies ahead or its share is used up. */
OB_INLINE u64 ob_server_over(ob_server_p sv)
{
	if (sv->legs && !sv->starved)
		return sv->cycle;
	return sv->s > sv->period ? sv->s - sv->period : 0;
}

/* Whether it is served before others for want of laxity, and a thread of it runs. */
OB_INLINE int ob_server_attended(ob_server_p sv)
{
	return sv->running && (sv->urgent || sv->soon);
}

/* How long a turn is: a crowd in a small reservation takes short ones, for Q/P of a CPU is all it
 * can count on. */
OB_INLINE u64 ob_turn(ob_server_p sv)
{
	u64 share = sv->period / ob_max(sv->budget, 1) + 1;
	u64 turn = OB_ROUND / ob_max(share * (sv->waiting + 1), 1);

	return ob_max(ob_min(turn, OB_ROTATE), OB_ROTATE_LEAST);
}

/* What is left at `now` of the turn of what runs on `c`, ns. It goes on with the same turn after
 * others have interrupted it: who is always interrupted soon must not keep its siblings waiting. */
OB_INLINE u64 ob_turn_left(ob_cpu_p c, u64 now)
{
	u64 had = c->curr->turn + (now > c->started ? now - c->started : 0);

	u64 turn = ob_turn(c->server);

	return had < turn ? turn - had : 0;
}

/* CPUs on which `t` may run under `sv`. */
OB_INLINE u64 ob_thread_cpus(ob_server_p sv, ob_task_p t)
{
	return t->cpus & sv->cpus;
}

/* Union over the waiting threads; without narrower affinities no list is walked. */
OB_FN u64 ob_server_mask(ob_server_p sv OB_ARG)
{
	u64 cpus = 0;
	ob_task_p t;

	if (!sv->waiting || ob_server_starves(sv))
		return 0;
	if (!sv->pinned)
		return sv->cpus;
	for (t = sv->head; t && OB_LOOP; t = t->next)
		cpus |= ob_thread_cpus(sv, t);
	return cpus;
}

/* CPUs that run threads of `sv`. */
OB_FN u64 ob_server_running_on(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 cpus = 0;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_cpu(ob, i)->server == sv)
			cpus |= OB_BIT(i);
	return cpus;
}

/* Whether a thread of `sv` runs where those that wait can take turns with it. */
OB_INLINE int ob_server_sees_to(ob_p ob, ob_server_p sv)
{
	if (!sv->running)
		return 0;
	return !sv->pinned || (sv->node.mask & ob_server_running_on(ob, sv));
}

/*
 * EDZL (Lee 1994; Cho, Lee, Ahn, Lin 2002): earliest deadline first, save that a server that would
 * miss its deadline if it waited any longer goes before all others. Here the laxity is the
 * reservation's, s − now − e: what it is owed, not what its job may need. While no thread of it
 * runs e stands still, so laxity ends at the fixed time s − e. Whatever G-EDF schedules in time,
 * EDZL does too (Park et al. 2005), and six reservations of 25 ms in 41 ms fit four CPUs.
 */
OB_FN void ob_laxity_sync(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 need = (u64)sv->e + (sv->counted && !sv->soon ? OB_MARGIN : 0), end;

	/* Windows that change at their ends turn up elsewhere. */
	if (!ob_order_laxity(sv) || ob_server_windowed(sv))
		return;
	if (!sv->active || sv->throttled || !sv->waiting || sv->urgent || sv->e <= 0 ||
	    ob_server_sees_to(ob, sv)) {
		ob_tree_remove(&ob->laxity, &sv->lax);
		return;
	}
	end = sv->s > need ? sv->s - need : 0;
	if (sv->lax.linked) {
		if (sv->lax.key == end)
			return;
		ob_tree_remove(&ob->laxity, &sv->lax);
	}
	sv->lax.key = end;
	ob_tree_insert(&ob->laxity, &sv->lax);
	ob->alarm_at = ob_min(ob->alarm_at, end);
}

/* The key of those of sv's threads that wait. Without laxity a server needs one CPU, and has it if
 * one of its threads runs: the siblings are not to take those of others. */
OB_FN u64 ob_server_node_key(ob_server_p sv OB_ARG, u64 now)
{
	u64 key = ob_server_key(sv, now), urgent = sv->urgent, soon = sv->soon;

	if (!ob_server_attended(sv))
		return key;
	sv->urgent = 0;
	sv->soon = 0;
	key = ob_server_key(sv, now);
	sv->urgent = (u8)urgent;
	sv->soon = (u8)soon;
	return key;
}

/* Brings sv's nodes in line with its waiting threads and its deadline, key unchanged. */
OB_INLINE void ob_server_update(ob_p ob, ob_server_p sv)
{
	ob_tree_update(&sv->node, ob_server_mask(sv), ob_server_over(sv));
	ob_laxity_sync(ob, sv);
	ob_patience_sync(ob, sv);
}

/* A thread of `sv` that waits stands where those that run do: keys by the latest time to begin grow
 * while they run, and a thread is not to go before its own siblings by an older key. */
OB_FN void ob_server_restand(ob_server_p sv OB_ARG, u64 now)
{
	u64 key;

	/* A throttled one's node is elsewhere. */
	if (!sv->node.linked || sv->throttled)
		return;
	if (ob_policy_lends(sv) != OB_LENDS_START && !sv->urgent && !sv->soon)
		return;
	key = ob_server_node_key(sv, now);
	if (sv->node.key == key)
		return;
	ob_tree_remove(&sv->domain->active, &sv->node);
	sv->node.key = key;
	ob_tree_insert(&sv->domain->active, &sv->node);
}

/* After so long one that runs looks again who waits behind its sibling, ns. */
#define OB_AGAIN 500000ULL

/* When what runs on `c` has run for so long that somebody who waits comes first: keys by the latest
 * time to begin grow while their servers run. */
OB_INLINE u64 ob_key_passes(ob_server_p sv, ob_cpu_p c)
{
	u64 key = ob_server_key(sv, sv->charged);
	ob_node_p first;

	if (!sv->counted || sv->domain->tight || key <= OB_KEY_SOON || key >= OB_KEY_EQUAL ||
	    ob_policy_lends(sv) != OB_LENDS_START)
		return OB_NEVER;
	first = ob_tree_first(&sv->domain->active, OB_BIT(c->id));
	/* Behind a sibling that waits there may be others: look again in a while. */
	if (first == &sv->node)
		return sv->charged + OB_AGAIN;
	if (!first || first->key < key || first->key >= ob_key_plain(ob_key_due(sv)))
		return OB_NEVER;
	/* Half as long again as it takes (4 / OB_SURE), for to be passed is a preemption. */
	return sv->charged + 2 * (first->key - key) / sv->running + 2;
}

/* Sets c->timer: when the dispatcher must look at what runs here again. The server has just been
 * charged. Who is to leave the CPU has been kicked for: looking again at once would change nothing,
 * and keep the kernel in the timer's interrupt. */
OB_FN void ob_arm(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_server_p sv = c->server;
	u64 t = OB_NEVER;

	if (sv) {
		if (ob_policy_enforces(sv) && !ob_server_rests(sv) && !sv->spent)
			t = sv->charged +
			    (sv->e > 0 ? ((u64)sv->e + sv->running - 1) / ob_max(sv->running, 1)
				       : 0);
		/* Who has had its turn is told at the end of another: a sibling may have just come.
		 */
		if (sv->waiting)
			t = ob_min(t, sv->charged + (ob_turn_left(c, sv->charged) ?: OB_ROTATE));
		if (ob->share_quantum)
			t = ob_min(t, ob_share_next(ob, c));
		t = ob_min(t, ob_key_passes(sv, c));
		if (ob_account_limits(sv))
			t = ob_min(t, ob_account_next(ob, c, sv));
	} else {
		if (c->share)
			t = c->since + (c->owed ?: OB_ROTATE);
		if (c->curr && ob_fair_crowded(ob))
			t = ob_min(t, ob_max(c->started, c->since) + ob_fair_turn(ob));
		if (c->other)
			t = ob_min(t, ob_max(ob_fair_look(ob, c), c->since + OB_WAKE_GRAIN));
	}
	c->timer = t;
	ob->rearm |= OB_BIT(c->id);
}

/* Sets the timers of all CPUs that run `sv`. */
OB_FN void ob_server_rearm(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_cpu(ob, i)->server == sv)
			ob_arm(ob, ob_cpu(ob, i));
}

/* `sv`, whose key is `key` now, runs on `c`: its timer depends on the budget, and somebody who
 * waits may now come first. */
OB_FN void ob_server_review(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_cpu_p c OB_ARG, u64 key)
{
	ob_node_p first;

	if (!c->share)
		c->key = key;
	ob_arm(ob, c);
	first = ob_tree_first(&c->domain->active, OB_BIT(c->id));
	if (ob_server_rests(sv) || (first && ob_key_beats(first->key, key)) ||
	    ob_share_calls(ob, c, sv->charged))
		ob->kick |= OB_BIT(c->id);
}

/* Puts `sv` where its key belongs, and has every CPU that runs it look again. */
OB_FN void ob_server_requeue(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 key = ob_server_key(sv, sv->charged), waits, cpus;

	if (sv->active && !sv->throttled) {
		waits = ob_server_node_key(sv, sv->charged);
		if (sv->node.linked && sv->node.key == waits) {
			ob_server_update(ob, sv);
		} else {
			ob_tree_remove(&sv->domain->active, &sv->node);
			sv->node.key = waits;
			sv->node.mask = ob_server_mask(sv);
			sv->node.over = ob_server_over(sv);
			ob_tree_insert(&sv->domain->active, &sv->node);
		}
	}
	ob_laxity_sync(ob, sv);
	ob_patience_sync(ob, sv);
	if (!sv->running)
		return;
	cpus = ob_server_running_on(ob, sv);
	for (; cpus && OB_LOOP; cpus &= cpus - 1)
		ob_server_review(ob, sv, ob_cpu(ob, ob_lowest(cpus)), key);
}

/* The CPU among `cpus` that runs what matters least, `prefer` first among equals. */
OB_FN u32 ob_victim(ob_p ob OB_ARG, u64 cpus, u32 prefer)
{
	u64 worst = 0;
	u32 best = OB_MAX_CPUS, i;

	if (cpus & OB_BIT(prefer)) {
		best = prefer;
		worst = ob_cpu(ob, prefer)->key;
		if (worst == OB_KEY_IDLE)
			return best;
	}
	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++) {
		u64 key;

		if (!(cpus & OB_BIT(i)))
			continue;
		key = ob_cpu(ob, i)->key;
		if (best == OB_MAX_CPUS || key > worst) {
			best = i;
			worst = key;
		}
	}
	return best;
}

/* If a waiting thread of `sv` comes before what some CPU runs, that CPU is kicked and counted as
 * taken, so that the next one to wake looks at another. */
OB_FN void ob_preempt(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 prefer)
{
	u64 cpus = sv->node.mask & ob->online;
	u32 victim;

	if (!sv->node.linked || !cpus)
		return;
	victim = ob_victim(ob, cpus, prefer);
	if (victim < OB_MAX_CPUS && ob_key_beats(sv->node.key, ob_cpu(ob, victim)->key)) {
		ob_cpu(ob, victim)->key = sv->node.key;
		ob_idle_clear(ob, OB_BIT(victim));
		ob->kick |= OB_BIT(victim);
	}
}

/* Takes the time since the last charge off the budget, once for each running thread. */
OB_FN void ob_server_charge(ob_server_p sv OB_ARG, u64 now)
{
	u64 used;

	if (sv->running && now > sv->charged) {
		used = (now - sv->charged) * sv->running;
		sv->consumed += used;
		sv->served = now;
		/* Slack is nobody's budget. */
		if (!sv->spent)
			sv->e -= (s64)used;
		if (sv->account)
			ob_account_charge(sv, used, now);
	}
	sv->charged = now;
}

/* New budget and deadline; the caller requeues. */
OB_FN void ob_server_set(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now, s64 e, u64 s)
{
	sv->e = e;
	sv->s = s;
	ob_pledge(sv);
	if (sv->demoted)
		ob_account_renewed(ob, sv, now);
	ob_emit(ob, now, OB_KC(OB_EV_REPLENISH, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)e, s);
}

/* A server that runs on a borrowed pair gets its own back, with what is left of the other. */
OB_FN void ob_server_restore(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (!sv->has_saved)
		return;
	sv->has_saved = 0;
	sv->e += sv->saved_e;
	sv->s = sv->saved_s;
	ob_emit(ob, now, OB_KC(OB_EV_RESTORE, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)sv->e, sv->s);
}

/* Takes `sv` out of the queue until time `until`; ob_alarm brings it back. */
OB_INLINE void ob_server_throttle(ob_p ob, ob_server_p sv, u64 now, u64 until)
{
	ob_tree_remove(&sv->domain->active, &sv->node);
	sv->throttled = ob_max(until, 1);
	sv->node.key = sv->throttled;
	sv->node.mask = 0;
	sv->node.over = 0;
	ob_tree_insert(&ob->throttled, &sv->node);
	ob->alarm_at = ob_min(ob->alarm_at, sv->throttled);
	ob_emit(ob, now, OB_KC(OB_EV_THROTTLE, OB_NONE), OB_TS(OB_NONE, sv->id), 0, until);
}

/*
 * The rule by which a constant bandwidth server takes up a new job at time t: if
 * e ≥ (s − t)·Q/P then s = t + P and e = Q, else both are kept (Abeni and Buttazzo 1998; paper
 * 000, section 4.1). With a relative deadline D below P the density Q/D decides, as deadlines are
 * t + D then. Compared as products, without division; above 2 s the low bits are dropped alike on
 * both sides so that the products fit 64 bits.
 */
OB_FN u64 ob_server_spares(ob_server_p sv OB_ARG, u64 left, u64 e)
{
	u64 d = sv->deadline, q = sv->budget;

	/* Products of two 42-bit numbers do not fit: drop low bits of all four alike. */
	while ((d >> 31 || left >> 31) && OB_LOOP) {
		d >>= 1;
		left >>= 1;
	}
	while ((q >> 31 || e >> 31) && OB_LOOP) {
		q >>= 1;
		e >>= 1;
	}
	return e * d >= left * q;
}

/* Whether the job that begins follows a mark: no sleep came before it, so its server goes on with
 * what it has. */
OB_INLINE int ob_server_goes_on(ob_server_p sv, u64 now)
{
	return sv->marked && sv->release == now;
}

/*
 * The same beside split servers, while s lies ahead. Their CPU was tested for sporadic tasks,
 * exactly (Baruah, Rosier and Howell 1990), and the rule above asks for more in intervals below P.
 * So what is left after a sleep is due P later, and a new budget s + P: each part of a budget has P
 * of time, and no two whole ones begin within P. What is taken early at a deadline that is due
 * later harms nobody, so budgets come no later for that: `shift` is by how much s is.
 */
OB_FN void ob_server_sporadic_release(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 next = sv->s - ob_min(sv->deadline + sv->shift, sv->s) + sv->period;

	if (ob_server_goes_on(sv, now))
		return;
	/* Who wakes a little too soon begins anew. */
	if (now + sv->period / 8 >= next) {
		next = ob_max(now, next) + sv->deadline;
		sv->shift = sv->s + sv->period - ob_min(next, sv->s + sv->period);
		ob_server_set(ob, sv, now, (s64)sv->budget + (sv->e < 0 ? sv->e : 0),
			      sv->s + sv->period);
	} else if (sv->e > 0 && sv->s < now + sv->deadline) {
		sv->shift += now + sv->deadline - sv->s;
		ob_server_set(ob, sv, now, sv->e, now + sv->deadline);
	}
}

OB_INLINE void ob_server_cbs_release(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->s > now && sv->domain->split) {
		ob_server_sporadic_release(ob, sv, now);
	} else if (sv->s <= now || (sv->e >= 0 && ob_server_spares(sv, sv->s - now, (u64)sv->e))) {
		sv->shift = 0;
		ob_server_set(ob, sv, now, (s64)sv->budget, now + sv->deadline);
	}
}

/* Takes `sv`, which no queue of a domain holds, to `cpus` of domain `to`. Who runs elsewhere stops.
 */
OB_FN void ob_server_rehome(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_domain_p to OB_ARG, u64 cpus)
{
	ob_task_p t;

	sv->domain = to;
	sv->cpus = cpus;
	sv->pinned = 0;
	for (t = sv->head; t && OB_LOOP; t = t->next)
		if (cpus & ~t->cpus)
			sv->pinned++;
	/* Where it runs now another may come first, and where it goes it may. */
	ob->kick |= ob_server_running_on(ob, sv);
}

/* The next server deadline after an exhausted one, and where a hard reservation waits until. */
OB_INLINE u64 ob_server_next_period(ob_server_p sv)
{
	if (sv->legs)
		return sv->cycle + sv->period;
	return sv->s - sv->deadline - sv->shift + sv->period;
}

#endif
