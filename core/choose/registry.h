/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The registry of choosers: X(NAME, function prefix), one line for each order (orders/registry.h)
 * that chooses a set of jobs rather than compare two of them. A chooser in file
 * `choose/<prefix>.h`, which is included below, defines
 *
 *   ob_<prefix>_choose(ob, now)   gives those jobs of ob->plan a rank that are to have a better one
 *                                 than OB_RANK_LEFT
 *
 * and its order's key is ob_rank_key. A queue is *stale* when a job in it has become ready or
 * ended, or its budget or deadline has changed (ob_order_stale). Some CPU is then told to pick
 * again, and the first to do so has the chooser look at the queue. Thus ranks become keys, and
 * whose turn it is, where, is seen to as in every order: who runs stays, for those that are to run
 * have one key; others go to the CPU they ran on last, if that has nothing better; or anywhere.
 *
 * A job is a server that wants to run: its deadline is the server's, what it still needs is the
 * budget that is left. A server whose budget is used up, and goes on, counts with the next one. A
 * queue of more than OB_CHOOSE_MOST servers is not looked at: it goes by deadline.
 */
#ifndef OB_CHOOSERS_H
#define OB_CHOOSERS_H

#include "../ob_server.h"
#include "lane.h"

#define OB_CHOOSERS(X) X(DASA, dasa)

#include "dasa.h"

/* Each order that says it chooses has a line, and no other has. */
#define X(NAME, prefix) | 1U << OB_ORDER_##NAME
_Static_assert(OB_ORDERS_CHOOSE == (0 OB_CHOOSERS(X)), "core/choose/registry.h");
#undef X

/* Of the queues in which `sv` and its groups stand some are perhaps stale: of the CPUs that serve
 * such a one, that which runs what matters least picks again. */
OB_FN void ob_stale_kick(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 prefer)
{
	for (; sv && OB_LOOP; sv = sv->domain->up) {
		ob_server_p up = sv->domain->up;
		u32 victim;

		if (!sv->domain->stale)
			continue;
		victim = ob_victim(
		    ob, ob->online & (up ? ob_server_running_on(ob, up) : sv->node.mask), prefer);
		if (victim >= OB_MAX_CPUS)
			continue;
		ob_idle_clear(ob, OB_BIT(victim));
		ob->kick |= OB_BIT(victim);
	}
}

/* What the job of `sv` still needs, ns: at least 1. */
OB_INLINE u64 ob_choice_left(ob_server_p sv, u64 now)
{
	s64 left = sv->e;

	if (sv->running && now > sv->charged)
		left -= (s64)((now - sv->charged) * sv->running);
	return left > 0 ? (u64)left : sv->budget;
}

/* Whether `sv`, which is ready, has a job that is to be served in its order. */
OB_INLINE int ob_choice_counts(ob_server_p sv)
{
	return (ob_server_waits(sv) || sv->running || sv->drawn) && !sv->demoted && !sv->spent &&
	       !ob_server_starves(sv);
}

/* How much of its value the job of `sv` yields for each ns that it still needs, in 2^-20. */
OB_INLINE u64 ob_choice_density(ob_server_p sv, u64 left)
{
	return (ob_min(sv->value, OB_VALUE_MOST) << 20) / ob_max(left, 1);
}

/* Notes `sv`, which is ready in a queue that is to be chosen from, as job number `at` of ob->plan.
 */
OB_FN void ob_choice_note(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 at, u64 now)
{
	ob_choice_p job = &ob->plan.job[at & (OB_CHOOSE_MOST - 1)];

	job->server = sv;
	job->rank = OB_RANK_LEFT;
	job->left = ob_choice_left(sv, now);
	job->due = sv->s;
	if (!ob_choice_counts(sv))
		return;
	ob->plan.order = sv->order;
	job->node.key = ~ob_choice_density(sv, job->left);
	ob_tree_insert(&ob->plan.dense, &job->node);
}

/* Fills ob->plan with the jobs of `d`, which has not too many, sorted by density. */
OB_FN void ob_choose_gather(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	ob_node_p n = ob_tree_head(&d->active);
	u64 count = OB_ZERO;

	ob->plan.dense.root = OB_NULL;
	ob->plan.dense.head = OB_NULL;
	ob->plan.dense.random = 0x2545F491u;
	for (; n && OB_LOOP; n = (ob_node_p)ob_choice_next(n)) {
		if (!ob_order_chooses((ob_server_p)n) || count >= OB_CHOOSE_MOST)
			continue;
		ob_choice_note(ob, (ob_server_p)n, count, now);
		count++;
	}
	ob->plan.jobs = count;
}

/* Lanes for the CPUs that serve `d`, all of them empty. */
OB_FN void ob_choose_lanes(ob_p ob OB_ARG, ob_domain_p d OB_ARG)
{
	u64 cpus = ob_group_allows(d->up, d->cpus & ob->online), lanes = OB_ZERO;

	for (; cpus && OB_LOOP; cpus &= cpus - 1) {
		ob->plan.lane[lanes & (OB_MAX_CPUS - 1)] = OB_NULL;
		lanes++;
	}
	ob->plan.lanes = lanes;
}

/* Has the chooser of the queue's order fill the plan. */
OB_INLINE void ob_choose_ask(ob_p ob, u64 now)
{
	switch (ob->plan.order) {
#define X(NAME, prefix)                        \
	case OB_ORDER_##NAME:                  \
		ob_##prefix##_choose(ob, now); \
		break;
		OB_CHOOSERS(X)
#undef X
	}
}

/* `sv`, which is ready, has this rank from now on. */
OB_FN void ob_server_rank(ob_server_p sv OB_ARG, u64 rank, u64 now)
{
	u64 key;

	sv->rank = (u8)rank;
	key = ob_server_key(sv, now);
	if (!sv->node.linked || sv->node.key == key)
		return;
	ob_tree_remove(&sv->domain->active, &sv->node);
	sv->node.key = key;
	ob_tree_insert(&sv->domain->active, &sv->node);
}

/* The queue holds too many: who has a rank of the last plan, and so is in front, loses it. */
OB_FN void ob_choose_none(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	u64 left = ob_key_plain((u64)OB_RANK_LEFT << OB_RANK_SHIFT);
	ob_node_p n = ob_tree_head(&d->active), next;

	ob->crowded++;
	for (; n && n->key < left && OB_LOOP; n = next) {
		next = (ob_node_p)ob_choice_next(n);
		if (ob_order_chooses((ob_server_p)n))
			ob_server_rank((ob_server_p)n, OB_RANK_LEFT, now);
	}
}

/* Tells the trace how many jobs of `d` are in the plan, and how many that want to be are not. */
OB_FN void ob_choose_tell(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	u64 chosen = OB_ZERO, left = OB_ZERO;
	u32 i;

	for (i = OB_ZERO; i < ob->plan.jobs && OB_LOOP; i++) {
		ob_choice_p job = &ob->plan.job[i & (OB_CHOOSE_MOST - 1)];

		if (job->rank != OB_RANK_LEFT)
			chosen++;
		else if (ob_choice_counts(job->server))
			left++;
	}
	if (chosen + left)
		ob_emit(ob, now, OB_KC(OB_EV_PLAN, ob_named(d)),
			OB_TS(OB_NONE, d->up ? d->up->id : OB_NONE), chosen, left);
}

/* Who waits in `d`, which holds too many, claims CPUs: each the first that may run there. */
OB_FN void ob_choose_claims(ob_p ob OB_ARG, ob_domain_p d OB_ARG)
{
	u64 cpus = d->cpus & ob->online;

	for (; cpus && OB_LOOP; cpus &= cpus - 1) {
		ob_server_p sv = (ob_server_p)ob_tree_first(&d->active, cpus & -cpus);

		if (sv)
			ob_preempt(ob, sv, ob_lowest(cpus));
	}
}

/* Chooses from `d`, which is stale. CPUs whose turn that changes are kicked. */
OB_FN void ob_choose(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	u32 i;

	d->stale = 0;
	ob->plan.jobs = 0;
	if (d->active.count > OB_CHOOSE_MOST) {
		ob_choose_none(ob, d, now);
	} else {
		ob_choose_gather(ob, d, now);
		ob_choose_lanes(ob, d);
		ob_choose_ask(ob, now);
		if (ob->ring_size)
			ob_choose_tell(ob, d, now);
	}
	for (i = OB_ZERO; i < ob->plan.jobs && OB_LOOP; i++) {
		ob_choice_p job = &ob->plan.job[i & (OB_CHOOSE_MOST - 1)];

		ob_server_rank(job->server, job->rank, now);
	}
	ob_keys_refresh(ob, d, now);
	/* While a queue is stale nobody in it claims a CPU. */
	for (i = OB_ZERO; i < ob->plan.jobs && OB_LOOP; i++) {
		ob_server_p sv = ob->plan.job[i & (OB_CHOOSE_MOST - 1)].server;

		if (sv->node.mask)
			ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
	}
	if (!ob->plan.jobs)
		ob_choose_claims(ob, d);
}

#endif
