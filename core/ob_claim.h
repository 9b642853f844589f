/* SPDX-License-Identifier: GPL-2.0-only */
/* A server's place has changed: who runs it looks again, or a CPU is claimed for what waits in it.
 */
#ifndef OB_CLAIM_H
#define OB_CLAIM_H

#include "ob_timer.h"

OB_FN void ob_stale_kick(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 prefer);

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
			sv->node.over = ob_server_over(sv);
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

/*
 * If a waiting thread of `sv` comes before what some CPU runs, that CPU is kicked, and counted as
 * taken, so that the next one to wake looks at another. It is claimed for `sv`: if one that goes
 * first claims it in turn, or it picks another (ob_pick), `sv` looks at the others again.
 */
OB_FN void ob_preempt(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 prefer)
{
	ob_server_p waits = sv, lost;
	ob_cpu_p c;
	u64 cpus;
	u32 victim;

	if (sv->domain->stale || sv->domain->up)
		ob_stale_kick(ob, sv, prefer);
	if (sv->domain->up)
		sv = ob_server_top(sv);
	/* Each that is displaced has a greater key than who displaces it. */
	while (sv && sv->node.linked && !sv->domain->stale && OB_LOOP) {
		cpus = sv->node.mask & ob->online;
		if (!cpus)
			return;
		victim = ob_victim(ob, cpus, prefer);
		c = ob_cpu(ob, victim);
		if (victim >= OB_MAX_CPUS || !ob_key_beats(sv->node.key, c->key)) {
			if (sv->members)
				ob_group_preempt(ob, waits);
			return;
		}
		lost = c->claim;
		c->claim = sv;
		c->key = sv->node.key;
		ob_idle_clear(ob, OB_BIT(victim));
		ob->kick |= OB_BIT(victim);
		if (lost == sv)
			return;
		sv = lost;
		waits = lost;
		if (lost && lost->head)
			prefer = lost->head->cpu;
	}
}

#endif
