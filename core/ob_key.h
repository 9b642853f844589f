/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The keys that order servers in their domain, and the pledges behind them.
 *
 * A policy may *lend*: order its servers by another key than what is proved, and let one that has
 * used up its budget (spent) go on at its deadline, uncharged, while there is slack. How much slack
 * there is depends on what is pledged: the budgets left and their deadlines, of all servers of the
 * domain (ob_slack.h). When there is none the domain is *tight*: then every server stands where its
 * own pair of budget and deadline puts it, and the spent ones behind all others.
 */
#ifndef OB_KEY_H
#define OB_KEY_H

#include "ob_group.h"
#include "ob_others.h"
#include "orders/registry.h"

/* Spent servers of a tight domain come behind all others, by deadline. */
#define OB_KEY_SPENT (1ULL << 62)

/* Budget over period in 2^-20, rounded up; an early deadline counts in the period's place. */
#define OB_SHARE_BITS 20

/* How the policies order servers while there is slack: the registry's column. */
enum ob_lending {
	OB_LENDS_NOT = 0,
	OB_LENDS_DEADLINE = 1, /* by deadline; a late job keeps the one it missed */
	OB_LENDS_START = 2,    /* by the latest time to begin, by what jobs used to need */
};
OB_INLINE u32 ob_policy_lends(ob_server_p sv);

/* Of the placement (place/registry.h). */
OB_INLINE u64 ob_place_moves(ob_server_p sv);
OB_INLINE u64 ob_place_over(ob_server_p sv);
OB_INLINE u64 ob_place_waits(ob_server_p sv);
OB_FN void ob_place_count(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u32 by);

/* A lending server counts in its domain's slack, except where its demand is not known here: split
 * ones change domains; slack is reckoned for deadlines; a group's time is not its members' alone,
 * and beside a group there is no slack; who has a CPU apart leaves and takes none elsewhere. */
OB_INLINE int ob_pledges(ob_server_p sv)
{
	return ob_policy_lends(sv) && !ob_place_moves(sv) && ob_order_deadlines(sv) &&
	       !sv->domain->up && !sv->members && !sv->apart;
}

/* As ob_place_over, where budget is passed on: who is apart has no part in that. */
OB_INLINE u64 ob_server_over(ob_server_p sv)
{
	return sv->apart ? 0 : ob_place_over(sv);
}

/* Whether `sv` runs on what another left, until its own next budget comes (ob_cash.h). */
OB_INLINE int ob_borrows(ob_server_p sv)
{
	return sv->has_saved && sv->due.at[OB_DUE_SPENT];
}

/* The server whose `pledge` is at n. */
#define OB_SERVER_OF_PLEDGE(n) OB_OF(ob_server, pledge, n)

OB_FN void ob_unpledge(ob_server_p sv OB_ARG)
{
	ob_domain_p d = sv->domain;

	if (!sv->pledge.linked)
		return;
	d->pledged -= sv->share;
	ob_tree_remove(&d->pledges, &sv->pledge);
}

/* `sv` has a new deadline. */
OB_FN void ob_pledge(ob_server_p sv OB_ARG)
{
	ob_domain_p d = sv->domain;

	if (!sv->counted)
		return;
	ob_unpledge(sv);
	sv->pledge.key = sv->s;
	sv->pledge.mask = 0;
	d->pledged += sv->share;
	ob_tree_insert(&d->pledges, &sv->pledge);
}

/* `sv`, described and placed, is part of its domain from now on; of several if it is split. */
OB_FN void ob_server_admit(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u64 most = ob_min(sv->period, sv->deadline);

	ob_share_admit(ob, sv);
	sv->counted = !!ob_pledges(sv);
	if (sv->counted) {
		sv->share = (sv->budget << OB_SHARE_BITS) / ob_max(most, 1) + 1;
		if (!sv->domain->bandwidth || most < sv->domain->shortest)
			sv->domain->shortest = most;
		if (!sv->domain->bandwidth || sv->budget > sv->domain->largest)
			sv->domain->largest = sv->budget;
		if (!sv->domain->bandwidth || sv->share > sv->domain->densest)
			sv->domain->densest = sv->share;
		sv->domain->bandwidth += sv->share;
		ob_pledge(sv);
		return;
	}
	sv->share = 0;
	ob_place_count(ob, sv, 1);
}

/* It is no more. */
OB_FN void ob_server_dismiss(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	ob_share_dismiss(ob, sv);
	ob_unpledge(sv);
	if (sv->counted) {
		sv->domain->bandwidth -= sv->share;
		sv->counted = 0;
		return;
	}
	ob_place_count(ob, sv, (u32)-1);
}

/* Quarters of what a job will surely still need by which it goes before its deadline's place. */
#define OB_SURE 3

/* Who has not slept for that long since it became late, ns, does not catch up: it is not the first
 * of the late ones. */
#define OB_LATE_HOPELESS 10000000000ULL

/* The deadline that `sv` has while there is slack. A job that runs on the budget of a later period
 * keeps its own: among late ones who fell behind first catches up first, as under first come, first
 * served, whose greatest tardiness is hard to beat. */
OB_INLINE u64 ob_key_due(ob_server_p sv)
{
	u64 due = sv->release + sv->deadline;

	return sv->later && sv->s < due + OB_LATE_HOPELESS ? ob_min(due, sv->s) : sv->s;
}

/* While there is slack: what is likely to need longer begins sooner, as long as that can make it be
 * in time. What runs stays in front of what would hardly gain by its place. */
OB_INLINE u64 ob_key_lent(ob_server_p sv, u64 now)
{
	u64 key = ob_key_due(sv), used, left;

	if (ob_policy_lends(sv) != OB_LENDS_START)
		return key;
	if (!sv->late && !sv->spent) {
		/* Where jobs do not resemble each other nothing is sure, and deadlines say more. */
		used = sv->consumed - sv->begun + 2 * sv->miss;
		if (sv->running && now > sv->charged)
			used += (now - sv->charged) * sv->running;
		left = sv->wont ?: sv->budget;
		left = left > used ? (left - used) * OB_SURE / 4 : 0;
		key = key > left ? key - left : 0;
	}
	return sv->running ? key : key + sv->period / 16;
}

/* Whether key `a` takes the CPU from key `b`: best effort's equals take turns. */
OB_INLINE int ob_key_beats(u64 a, u64 b)
{
	return a < b && (a < OB_KEY_EQUAL || b == OB_KEY_IDLE);
}

/* The key of one that is ordered by `at`, a time: clear of those that mean something else. */
OB_INLINE u64 ob_key_plain(u64 at)
{
	return OB_KEY_PLAIN + ob_min(at + 1, OB_KEY_PLAIN - 1);
}

/* The key that orders `sv` in its domain. */
OB_FN u64 ob_server_key(ob_server_p sv OB_ARG, u64 now)
{
	if (sv->urgent)
		return ob_min(ob_max(sv->s, OB_KEY_URGENT), OB_KEY_SOON - 1);
	if (sv->demoted)
		return ob_min(OB_KEY_EQUAL + sv->vtime + 1, OB_KEY_BE - 1);
	if (sv->soon && !sv->domain->tight)
		return OB_KEY_SOON;
	if (sv->counted && !sv->domain->tight)
		return ob_key_plain(ob_key_lent(sv, now));
	return ob_key_plain(ob_order_key(sv)) | (sv->spent ? OB_KEY_SPENT : 0);
}

/* Keys of what runs on `d`'s CPUs and grows with the time it has run. */
OB_FN void ob_keys_refresh(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u64 now)
{
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++) {
		ob_cpu_p c = ob_cpu(ob, i);

		if (c->domain == d && c->server && !(ob->kick & OB_BIT(i)))
			c->key = ob_server_key(ob_server_top(c->server), now);
	}
}

#endif
