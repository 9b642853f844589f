/* SPDX-License-Identifier: GPL-2.0-only */
/* CPUs come and go, and reservations are placed anew. */
#ifndef OB_PLACE_H
#define OB_PLACE_H

#include "ob_thread.h"

/* A CPU has gone: threads that wait in `sv` and may run on that one alone become best effort. The
 * others wait for `sv` to be placed anew. */
OB_FN void ob_server_strand(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_task_p t, next;

	for (t = sv->head; t && OB_LOOP; t = next) {
		next = t->next;
		if (t->cpus & ob->online)
			continue;
		ob_thread_unlink(sv, t);
		ob_ready(ob, t, now);
	}
	if (sv->active && !sv->throttled)
		ob_server_requeue(ob, sv);
}

/* `cpu` came or went. The shell looks at every server when it went (ob_server_strand), and has each
 * placed anew (ob_server_place). */
OB_FN void ob_online(ob_p ob OB_ARG, u32 cpu, u32 on, u64 now)
{
	u64 bit = OB_BIT(cpu);

	if (on)
		ob->online |= bit;
	else
		ob->online &= ~bit;
	ob_idle_clear(ob, ~ob->online);
	ob->share_ready &= ob->online;
	ob_fair_online(ob);
	ob_cpu(ob, cpu)->key = OB_KEY_IDLE;
	ob_cpu(ob, cpu)->debt = 0;
	ob_cpu(ob, cpu)->owed = 0;
	/* Where each waits, and what waits for a CPU that has claimed it, is to be seen anew. */
	ob->kick |= ob->online;
	ob_emit(ob, now, OB_KC(OB_EV_ONLINE, cpu), OB_TS(OB_NONE, OB_NONE), on, 0);
}

/* Moves `sv` to `cpus` of another domain, after CPUs came or went. It is split no more. */
OB_FN void ob_server_place(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 domain, u64 cpus, u64 now)
{
	ob_server_dismiss(ob, sv);
	if (!sv->throttled)
		ob_tree_remove(&sv->domain->active, &sv->node);
	if (sv->legs) {
		ob_tree_remove(ob_server_windowed(sv) ? &ob->windows : &ob->laxity, &sv->lax);
		sv->legs = 0;
		sv->shift = 0;
		sv->starved = 0;
		sv->unbegun = 0;
	}
	ob_server_rehome(ob, sv, &ob->domain[domain % OB_MAX_DOMAINS], cpus);
	ob_server_admit(ob, sv);
	ob_server_expel(ob, sv, now);
	if (sv->throttled) {
		ob_patience_sync(ob, sv);
		return;
	}
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* `sv`, placed at its first leg's CPU, has just been split (its plan is filled in). */
OB_FN void ob_server_split(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u32 legs = sv->legs;

	sv->legs = 0;
	ob_server_dismiss(ob, sv);
	ob_unspend(ob, sv);
	sv->legs = legs;
	ob_server_admit(ob, sv);
	/* Unsplit it may have been linked there; split it is not yet in the other. */
	ob_tree_remove(&ob->laxity, &sv->lax);
	sv->urgent = 0;
	ob_server_expel(ob, sv, now);
	ob_window_restart(ob, sv, now);
	if (!sv->throttled)
		ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

#endif
