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

OB_FN void ob_stale_kick(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 prefer);

/* Whether it has used up its share of a window and been given nothing (EDF-WMR). */
OB_INLINE int ob_server_starves(ob_server_p sv)
{
	return ob_place_waits(sv) && sv->e <= 0;
}

/* Whether it may not run now, though its threads want to. */
OB_INLINE int ob_server_rests(ob_server_p sv)
{
	return sv->state == OB_RESTS || ob_server_starves(sv);
}

/* Whether `sv`, and each group that it is in, may run and has a CPU among these. */
OB_FN u64 ob_group_open(ob_server_p sv OB_ARG, u64 cpus)
{
	for (; sv && OB_LOOP; sv = sv->domain->up)
		if (ob_server_rests(sv) || !(sv->cpus & cpus))
			return 0;
	return 1;
}

/* Whether what `sv` serves may run on `cpus`. */
OB_INLINE u64 ob_server_open(ob_server_p sv, u64 cpus)
{
	return sv->domain->up ? ob_group_open(sv, cpus) : !ob_server_rests(sv) && (sv->cpus & cpus);
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

/* Where what waits in it may be served; without narrower affinities no list is walked. */
OB_FN u64 ob_server_mask(ob_server_p sv OB_ARG)
{
	u64 cpus = 0;
	ob_task_p t;

	if (sv->members)
		return sv->members->active.root ? sv->members->active.root->sub_mask & sv->cpus : 0;
	if (!sv->waiting || ob_server_starves(sv))
		return 0;
	if (!sv->pinned)
		return sv->cpus;
	for (t = sv->head; t && OB_LOOP; t = t->next)
		cpus |= ob_thread_cpus(sv, t);
	return cpus;
}

/* Whether a thread of it waits. */
OB_INLINE int ob_server_waits(ob_server_p sv)
{
	return sv->members ? !!sv->node.mask : !!sv->waiting;
}

/* CPUs that run threads of `sv`. */
OB_FN u64 ob_server_running_on(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 cpus = 0;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_runs(ob_cpu(ob, i), sv))
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

	if (!ob_order_laxity(sv))
		return;
	/* Windows that change at their ends see to it. */
	if (sv->state != OB_READY || !ob_server_waits(sv) || sv->urgent || sv->e <= 0 ||
	    ob_place_moves(sv) == 2 || ob_server_sees_to(ob, sv))
		end = 0;
	else
		end = sv->s > need ? sv->s - need : 1;
	ob_due_set(ob, &sv->due, OB_DUE_LAXITY, end);
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

/* The node of `sv`, a member, has changed: its groups stand in their queues for what waits in them.
 */
OB_FN void ob_group_sync(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 mask;

	for (sv = sv->domain->up; sv && sv->state == OB_READY && OB_LOOP; sv = sv->domain->up) {
		mask = ob_server_mask(sv);
		if (!sv->node.linked) {
			sv->node.key = ob_server_node_key(sv, sv->charged);
			sv->node.mask = mask;
			sv->node.over = ob_place_over(sv);
			ob_tree_insert(&sv->domain->active, &sv->node);
		} else if (sv->node.mask == mask) {
			return;
		} else {
			ob_tree_update(&sv->node, mask, sv->node.over);
		}
		ob_laxity_sync(ob, sv);
	}
}

/* Takes `sv` out of its queue. */
OB_INLINE void ob_server_unlink(ob_p ob, ob_server_p sv)
{
	ob_order_stale(sv);
	ob_tree_remove(&sv->domain->active, &sv->node);
	if (sv->domain->up)
		ob_group_sync(ob, sv);
}

/* Brings sv's nodes in line with its waiting threads and its deadline, key unchanged. */
OB_INLINE void ob_server_update(ob_p ob, ob_server_p sv)
{
	ob_tree_update(&sv->node, ob_server_mask(sv), ob_place_over(sv));
	if (sv->domain->up)
		ob_group_sync(ob, sv);
	ob_laxity_sync(ob, sv);
	ob_patience_sync(ob, sv);
}

/* A thread of `sv` that waits stands where those that run do: keys by the latest time to begin grow
 * while they run, and a thread is not to go before its own siblings by an older key. */
OB_FN void ob_server_restand(ob_server_p sv OB_ARG, u64 now)
{
	u64 key;

	if (!sv->node.linked)
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
	return sv->charged + 2 * (first->key - key) / ob_max(sv->running, 1) + 2;
}

/* How long the budget of `sv`, which runs, lasts, and its purse. */
OB_INLINE u64 ob_server_lasts(ob_server_p sv)
{
	u64 t = OB_NEVER;

	if (ob_server_rests(sv))
		return t;
	if (sv->purse)
		t = ob_purse_lasts(sv->purse);
	if (!ob_policy_enforces(sv) || sv->spent)
		return t;
	return ob_min(
	    t, sv->charged +
		   (sv->e > 0 ? ((u64)sv->e + sv->running - 1) / ob_max(sv->running, 1) : 0));
}

/* The same of the groups it is in. */
OB_FN u64 ob_group_lasts(ob_server_p sv OB_ARG)
{
	u64 t = OB_NEVER;

	for (sv = sv->domain->up; sv && OB_LOOP; sv = sv->domain->up)
		t = ob_min(t, ob_server_lasts(sv));
	return t;
}

/* Sets c->timer: when the dispatcher must look at what runs here again. The server has just been
 * charged. Who is to leave the CPU has been kicked for: looking again at once would change nothing,
 * and keep the kernel in the timer's interrupt. */
OB_FN void ob_arm(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_server_p sv = c->server;
	u64 t = OB_NEVER;

	if (sv) {
		ob_server_p top = sv;

		t = ob_server_lasts(sv);
		if (sv->domain->up) {
			top = ob_server_top(sv);
			t = ob_min(t, ob_group_lasts(sv));
		}
		/* Who has had its turn is told at the end of another: a sibling may have just come.
		 */
		if (sv->waiting)
			t = ob_min(t, sv->charged + (ob_turn_left(c, sv->charged) ?: OB_ROTATE));
		if (ob->share_quantum)
			t = ob_min(t, ob_share_next(ob, c));
		t = ob_min(t, ob_key_passes(top, c));
		if (ob_account_limits(top))
			t = ob_min(t, ob_account_next(ob, c, top));
	} else {
		if (c->share)
			t = c->since + (c->owed ?: OB_ROTATE);
		if (c->curr && ob_others_crowded(ob))
			t = ob_min(t, ob_max(c->started, c->since) + ob_others_turn(ob));
		if (c->other)
			t = ob_min(t, ob_max(ob_others_look(ob, c), c->since + OB_WAKE_GRAIN));
	}
	c->timer = t;
	ob->rearm |= OB_BIT(c->id);
}

/* Sets the timers of all CPUs that run `sv`. */
OB_FN void ob_server_rearm(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_runs(ob_cpu(ob, i), sv))
			ob_arm(ob, ob_cpu(ob, i));
}

/* `sv`, whose key is `key` now, runs on `c`: its timer depends on the budget, and somebody who
 * waits may now come first. */
OB_FN void ob_server_review(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_cpu_p c OB_ARG, u64 key)
{
	ob_domain_p queue = sv->domain->up ? sv->domain : c->domain;
	ob_node_p first;

	if (!c->share && !sv->domain->up)
		c->key = key;
	ob_arm(ob, c);
	first = ob_tree_first(&queue->active, OB_BIT(c->id));
	if (ob_server_rests(sv) || (first && ob_key_beats(first->key, key)) || sv->domain->stale ||
	    ob_share_calls(ob, c, sv->charged))
		ob->kick |= OB_BIT(c->id);
}

/* Puts `sv` where its key belongs, and has every CPU that runs it look again. */
OB_FN void ob_server_requeue(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 key = ob_server_key(sv, sv->charged), waits, cpus;

	if (sv->state == OB_READY) {
		waits = ob_server_node_key(sv, sv->charged);
		if (sv->node.linked && sv->node.key == waits) {
			ob_server_update(ob, sv);
		} else {
			ob_tree_remove(&sv->domain->active, &sv->node);
			sv->node.key = waits;
			sv->node.mask = ob_server_mask(sv);
			sv->node.over = ob_place_over(sv);
			ob_tree_insert(&sv->domain->active, &sv->node);
			if (sv->domain->up)
				ob_group_sync(ob, sv);
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
	u64 worst = OB_ZERO;
	u32 best = (u32)OB_ZERO + OB_MAX_CPUS, i;

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
			best = i + (u32)OB_ZERO;
			worst = key;
		}
	}
	return best;
}

/* Whether `sv`, a member that waits, comes before what runs on `c` under a group that they share.
 */
OB_FN u64 ob_group_beats(ob_cpu_p c OB_ARG, ob_server_p sv OB_ARG)
{
	ob_server_p has = c->server, of = sv;

	if (!has || ob_server_top(has) != ob_server_top(sv))
		return 0;
	/* Up to the queue in which both stand. */
	while (of && has->domain != of->domain && OB_LOOP) {
		if (has->level >= of->level)
			has = has->domain->up;
		else
			of = of->domain->up;
	}
	return of && has != of && ob_key_beats(of->node.key, ob_server_key(has, has->charged));
}

/* ob_preempt among those who run under one group with `sv`, or with the first that waits in it. */
OB_FN void ob_group_preempt(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 cpus = ob->online & ~ob->kick;
	u32 i;

	while (sv && sv->members && OB_LOOP)
		sv = (ob_server_p)ob_tree_first(&sv->members->active, ob->online);
	if (!sv || !ob_server_open(sv, ob->online))
		return;
	cpus = ob_server_allows(sv, cpus & sv->node.mask);
	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++) {
		if (!(cpus & OB_BIT(i)) || !ob_group_beats(ob_cpu(ob, i), sv))
			continue;
		ob->kick |= OB_BIT(i);
		return;
	}
}

/* If a waiting thread of `sv` comes before what some CPU runs, that CPU is kicked and counted as
 * taken, so that the next one to wake looks at another. */
OB_FN void ob_preempt(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 prefer)
{
	ob_server_p waits = sv;
	u64 cpus;
	u32 victim;

	if (sv->domain->stale || sv->domain->up)
		ob_stale_kick(ob, sv, prefer);
	if (sv->domain->up)
		sv = ob_server_top(sv);
	if (sv->domain->stale)
		return;
	cpus = sv->node.mask & ob->online;
	if (!sv->node.linked || !cpus)
		return;
	victim = ob_victim(ob, cpus, prefer);
	if (victim < OB_MAX_CPUS && ob_key_beats(sv->node.key, ob_cpu(ob, victim)->key)) {
		ob_cpu(ob, victim)->key = sv->node.key;
		ob_idle_clear(ob, OB_BIT(victim));
		ob->kick |= OB_BIT(victim);
	} else if (sv->members) {
		ob_group_preempt(ob, waits);
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
	ob_order_stale(sv);
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
	ob_order_stale(sv);
	ob_emit(ob, now, OB_KC(OB_EV_RESTORE, OB_NONE), OB_TS(OB_NONE, sv->id), (u64)sv->e, sv->s);
}

/* Takes `sv` out of the queue until time `until`; ob_alarm brings it back. */
OB_INLINE void ob_server_throttle(ob_p ob, ob_server_p sv, u64 now, u64 until)
{
	ob_server_unlink(ob, sv);
	sv->state = OB_RESTS;
	ob_due_set(ob, &sv->due, OB_DUE_REFILL, ob_max(until, 1));
	ob_emit(ob, now, OB_KC(OB_EV_THROTTLE, OB_NONE), OB_TS(OB_NONE, sv->id), 0, until);
}

/* If a purse of `sv`, which is ready, is empty, it rests until there is money. Whether so. */
OB_FN u64 ob_purse_stops(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 until = ob_purse_lacks(sv->purse, now);

	if (!until || sv->state != OB_READY)
		return 0;
	ob_server_charge(sv, now);
	sv->broke = 1;
	ob_server_throttle(ob, sv, now, until);
	ob_server_requeue(ob, sv);
	return 1;
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

#endif
