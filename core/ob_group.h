/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups: reservations that serve reservations.
 *
 * A group is a server like others: it has a budget, a rule for it and a place in the queue of its
 * domain, or of the group that it is a member of. What it serves is a queue of servers in place of
 * a list of threads. Its job begins when the first member wants service and ends when none does
 * (ob_want, in ob_job.h): members that wait for their own next budget do not, so a group puts no
 * budget by for them, which the constant bandwidth server's rule forbids. All that runs under it
 * charges it, on each CPU, as the threads of one reservation do.
 *
 * What a CPU should run is decided from the top down: the first of the domain's queue, then the
 * first of that one's, and so on. So whose turn it is between two threads depends on the two
 * ancestors of theirs that stand in the same queue, and on nothing below.
 */
#ifndef OB_GROUP_H
#define OB_GROUP_H

#include "ob_purse.h"

/* `sv`, or the group at `level` that it is in. */
OB_FN u64 ob_server_at(ob_server_p sv OB_ARG, u32 level)
{
	while (sv->level > level && OB_LOOP)
		sv = sv->domain->up;
	return (u64)sv;
}

/* The one that stands in the queue of CPUs. */
OB_INLINE ob_server_p ob_server_top(ob_server_p sv)
{
	return sv->domain->up ? (ob_server_p)ob_server_at(sv, 0) : sv;
}

/* The first CPU of `d`, or of the domain that its group is in: by it events name a domain. */
OB_INLINE u32 ob_named(ob_domain_p d)
{
	u64 cpus = d->up ? ob_server_top(d->up)->domain->cpus : d->cpus;

	return cpus ? ob_lowest(cpus) : (u32)OB_NONE;
}

/* Whether what runs on `c` runs under `sv`. */
OB_INLINE int ob_runs(ob_cpu_p c, ob_server_p sv)
{
	ob_server_p has = c->server;

	return has == sv || (has && sv->members && ob_server_at(has, sv->level) == (u64)sv);
}

/* Those of `cpus` that `sv`, which may be null, and all groups that it is in have. */
OB_FN u64 ob_group_allows(ob_server_p sv OB_ARG, u64 cpus)
{
	for (; sv && OB_LOOP; sv = sv->domain->up)
		cpus &= sv->cpus;
	return cpus;
}

/* CPUs among `cpus` on which `sv` may be served. */
OB_INLINE u64 ob_server_allows(ob_server_p sv, u64 cpus)
{
	return sv->domain->up ? ob_group_allows(sv, cpus) : sv->cpus & cpus;
}

/* Makes a queue for the members of `sv`, described and placed. Whether there was one left. */
OB_FN u64 ob_group_make(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	u32 slot = ob_lowest(~ob->groups) & (OB_MAX_GROUPS - 1);
	ob_domain_p d = &ob->group[slot];

	if (!~ob->groups)
		return 0;
	ob->groups |= OB_BIT(slot);
	d->up = sv;
	d->tight = 1;
	d->bonus = 0;
	d->uncounted = 0;
	d->cpus = ~0ULL >> (64 - ob->nr_cpus);
	d->active.random = 0x27D4EB2Fu + slot;
	d->pledges.random = 0x94D049BBu + slot;
	sv->members = d;
	return 1;
}

/* `sv`, which has no members any more, is given back. */
OB_INLINE void ob_group_drop(ob_p ob, ob_server_p sv)
{
	if (sv->domain->up)
		sv->domain->up->threads--;
	if (!sv->members)
		return;
	ob->groups &= ~OB_BIT(sv->members - ob->group);
	sv->members = OB_NULL;
}

#endif
