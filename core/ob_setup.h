/* SPDX-License-Identifier: GPL-2.0-only */
/* Making the model, natively in both worlds, before the first event; and reservations and threads.
 */
#ifndef OB_SETUP_H
#define OB_SETUP_H

#include "ob_dispatch.h"

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
	ob->share_whole = share_permille ? quantum : 0;
	if (share_permille)
		ob_share_divide(ob, quantum);
	ob->slice = OB_SLICE;
	ob->vtime = OB_OTHERS_BEGIN;
	ob->best_effort.random = 0x9E3779B9u;
	ob->impatient.random = 0x6C62272Eu;
	ob->due.random = 0x9C0F4A5Du;
	ob->account[0].count = 1;
	/* Later regrouping (ob_swap.h) may use any slot. */
	for (i = 0; i < nr_cpus; i++) {
		ob->domain[i].active.random = 0x85EBCA6Bu + i;
		ob->domain[i].pledges.random = 0x165667B1u + i;
		ob->domain[i].tight = 1;
	}
	for (i = 0; i < nr_cpus; i++) {
		/* Equal clusters of neighbours; the last one takes what is left over. */
		u32 d = (u32)((u64)i * nr_domains / nr_cpus);

		ob->cpu[i].id = i;
		ob->cpu[i].key = OB_KEY_IDLE;
		ob->cpu[i].timer = OB_NEVER;
		ob->cpu[i].vtime = OB_OTHERS_BEGIN;
		ob->cpu[i].domain = &ob->domain[d];
		ob->domain[d].cpus |= OB_BIT(i);
		ob->online |= OB_BIT(i);
		ob->idle |= OB_BIT(i);
	}
	return 0;
}

/* Of whatever type's memory: a compiler may not put what is written there before this. */
typedef u64 __attribute__((may_alias)) ob_word;

/* Fills `bytes` at `at` with zeros; both are multiples of 8. */
OB_FN void ob_clear(u64 OB_ARENA *at OB_ARG, u64 bytes)
{
	ob_word OB_ARENA *word = (ob_word OB_ARENA *)at;
	u64 i;

	for (i = OB_ZERO; i < bytes / 8 && OB_LOOP; i++)
		word[i] = 0;
}

/* Makes a reservation of the free slot `sv`, whose id stays and whose generation is the next; a
 * member of group `up`, if that is not null, to which the terms' domain means nothing. Whether
 * there was room; one at level OB_DEPTH is no group. */
OB_FN u64 ob_server_make(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_terms_p terms OB_ARG,
			 ob_server_p up OB_ARG, u64 now)
{
	u32 id = sv->id, generation = sv->generation;

	ob_clear((u64 OB_ARENA *)sv, sizeof(*sv));
	sv->id = id;
	sv->generation = generation + 1;
	sv->used = 1;
	sv->budget = terms->budget;
	sv->period = terms->period;
	sv->deadline = terms->deadline;
	sv->domain = up ? up->members : &ob->domain[terms->domain & (OB_MAX_DOMAINS - 1)];
	sv->level = up ? up->level + 1 : 0;
	sv->cpus = terms->cpus & sv->domain->cpus;
	if (!sv->cpus)
		sv->cpus = sv->domain->cpus;
	sv->kind = terms->kind;
	sv->order = terms->order;
	sv->value = terms->value ?: terms->budget;
	sv->marks = !!terms->marks;
	sv->hard = !!terms->hard;
	sv->apart = !!terms->apart && !up;
	ob_windows_describe(sv, terms);
	if (terms->purse)
		sv->purse = &ob->purse[(terms->purse - 1) & (OB_MAX_PURSES - 1)];
	if (terms->group && (sv->level >= OB_DEPTH || !ob_group_make(ob, sv)))
		return 0;
	if (terms->draws && !ob_draw_make(ob, sv))
		return 0;
	if (up)
		up->threads++;
	if (terms->account != OB_NO_ACCOUNT)
		ob_account_join(ob, sv, terms->account, terms->rate, now);
	ob_server_admit(ob, sv);
	return 1;
}

/* Whether `sv` has used up its budget and is to have the next one at a time that is set. */
OB_INLINE int ob_server_awaits(ob_server_p sv)
{
	if (sv->due.at[OB_DUE_SPENT])
		return !ob_policy_lends(sv);
	return sv->due.at[OB_DUE_REFILL] && !sv->broke;
}

/* Reservation `sv`, which is not split, has `budget` ns in each `period` ns from its next one on:
 * what it has in the present one stays, so that no timer is void. A deadline that is the period
 * goes with it. */
OB_FN void ob_server_resize(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 budget, u64 period, u64 now)
{
	ob_server_dismiss(ob, sv);
	/* Who waits for its next budget gets that when it would have, and D before its deadline. */
	if (sv->deadline != sv->period && period < sv->period && ob_server_awaits(sv)) {
		sv->s += sv->period - period;
		sv->saved_s += sv->period - period;
	}
	if (sv->value == sv->budget)
		sv->value = budget;
	sv->budget = budget;
	if (sv->deadline == sv->period)
		sv->deadline = period;
	sv->period = period;
	ob_account_resize(sv, now);
	ob_order_stale(sv);
	ob_server_admit(ob, sv);
}

/* Makes a thread of the free slot `t`: asleep, without reservation. */
OB_FN void ob_task_make(ob_task_p t OB_ARG, u32 tid, u64 cpus, u64 weight)
{
	ob_clear((u64 OB_ARENA *)t, sizeof(*t));
	t->tid = tid;
	t->cpus = cpus;
	t->may = cpus;
	t->weight = weight;
}

/* `t`, just made, comes to be: nobody knows yet what it uses. It goes on where its parent is (null:
 * that is not known), which has used `ran` ns of which its virtual time does not know: else a chain
 * of forks would go before everybody. */
OB_INLINE void ob_task_begin(ob_p ob, ob_task_p t, ob_task_p parent, u64 ran)
{
	t->burst = ob->slice;
	t->vtime = ob->vtime;
	if (parent && !parent->server)
		t->vtime = ob_max(t->vtime, parent->vtime + ob_virtual(parent, ran));
}

/* A thread of that weight ends that was at `vtime`. Who comes after it begins no earlier: else what
 * children have had would be forgotten with each of them. Time passes faster for those of little
 * weight: of theirs only what they had of the clock counts, for others come after them, too. */
OB_INLINE void ob_task_end(ob_p ob, u64 vtime, u64 weight)
{
	u64 now = OB_READ(ob->vtime), ahead = vtime - ob_min(now, vtime);

	ob_raise(&ob->vtime, now + ahead * ob_min(weight, OB_WEIGHT) / OB_WEIGHT);
}

#endif
