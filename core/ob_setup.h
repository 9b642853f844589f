/* SPDX-License-Identifier: GPL-2.0-only */
/* Making the model: run natively in both worlds, before the first event. */
#ifndef OB_SETUP_H
#define OB_SETUP_H

#include "ob_types.h"

/* `ob` is zeroed memory; one domain over all CPUs, no trace, a best-effort share of
 * `share_permille` served in turns of `quantum` ns. Returns 0, or -1 for a wrong number. */
OB_INLINE int ob_init(ob_p ob, u32 nr_cpus, u32 nr_domains, u32 share_permille, u64 quantum)
{
	u32 i;

	if (!nr_cpus || nr_cpus > OB_MAX_CPUS || !nr_domains || nr_domains > nr_cpus ||
	    share_permille > 900)
		return -1;
	ob->nr_cpus = nr_cpus;
	ob->nr_domains = nr_domains;
	ob->alarm_at = OB_NEVER;
	ob->share_permille = share_permille;
	ob->share_quantum = share_permille ? quantum : 0;
	ob->share_period = share_permille ? quantum * 1000 / share_permille : 0;
	ob->slice = 4000000;
	ob->best_effort.random = 0x9E3779B9u;
	ob->throttled.random = 0x7F4A7C15u;
	ob->laxity.random = 0xC2B2AE35u;
	ob->patience.random = 0x2545F491u;
	ob->impatient.random = 0x6C62272Eu;
	ob->windows.random = 0x27D4EB2Fu;
	ob->demoted.random = 0x9C0F4A5Du;
	ob->account[0].count = 1;
	for (i = 0; i < nr_domains; i++) {
		ob->domain[i].active.random = 0x85EBCA6Bu + i;
		ob->domain[i].pledges.random = 0x165667B1u + i;
		ob->domain[i].look_at = OB_NEVER;
		ob->domain[i].tight = 1;
	}
	for (i = 0; i < nr_cpus; i++) {
		/* Equal clusters of neighbours; the last one takes what is left over. */
		u32 d = (u32)((u64)i * nr_domains / nr_cpus);

		ob->cpu[i].id = i;
		ob->cpu[i].key = OB_KEY_IDLE;
		ob->cpu[i].timer = OB_NEVER;
		ob->cpu[i].domain = &ob->domain[d];
		ob->domain[d].cpus |= OB_BIT(i);
		ob->online |= OB_BIT(i);
		ob->idle |= OB_BIT(i);
	}
	return 0;
}

/* Describes a reservation in zeroed `sv`. Times in ns, 0 < budget ≤ deadline, budget ≤ period. */
OB_INLINE void ob_server_init(ob_p ob, ob_server_p sv, u32 id, u32 domain, u64 cpus)
{
	sv->id = id;
	sv->domain = &ob->domain[domain % OB_MAX_DOMAINS];
	sv->cpus = cpus & sv->domain->cpus;
	if (!sv->cpus)
		sv->cpus = sv->domain->cpus;
	sv->used = 1;
}

OB_INLINE void ob_task_init(ob_task_p t, u32 tid, u64 cpus, u64 weight)
{
	t->tid = tid;
	t->cpus = cpus;
	t->weight = weight;
}

#endif
