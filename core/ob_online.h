/* SPDX-License-Identifier: GPL-2.0-only */
/* CPUs come and go, and reservations are placed anew. */
#ifndef OB_ONLINE_H
#define OB_ONLINE_H

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
	if (sv->state)
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
	ob_others_online(ob);
	ob_draw_forget(ob, ob_cpu(ob, cpu));
	ob_cpu(ob, cpu)->key = OB_KEY_IDLE;
	ob_cpu(ob, cpu)->debt = 0;
	ob_cpu(ob, cpu)->owed = 0;
	/* Where each waits, and what waits for a CPU that has claimed it, is to be seen anew. */
	ob->kick |= ob->online;
	ob_emit(ob, now, OB_KC(OB_EV_ONLINE, cpu), OB_TS(OB_NONE, OB_NONE), on, 0);
}

/* Takes `sv` to where `terms` say, in no queue yet. */
OB_FN void ob_server_take(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_terms_p terms OB_ARG, u64 now)
{
	ob_server_dismiss(ob, sv);
	ob_order_stale(sv);
	ob_tree_remove(&sv->domain->active, &sv->node);
	if (ob_place_moves(sv)) {
		ob_due_set(ob, &sv->due, OB_DUE_WINDOW, 0);
		sv->shift = 0;
	}
	ob_server_rehome(ob, sv, &ob->domain[terms->domain & (OB_MAX_DOMAINS - 1)], terms->cpus);
	sv->apart = !!terms->apart && !sv->domain->up;
	ob_order_stale(sv);
	ob_windows_describe(sv, terms);
	if (ob_place_moves(sv)) {
		ob_unspend(ob, sv, now);
		sv->urgent = 0;
	}
	ob_server_admit(ob, sv);
}

/* `sv` has been taken somewhere, and goes on there. */
OB_FN void ob_server_go_on(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_expel(ob, sv, now);
	ob_place_begin(ob, sv, now);
	ob_server_requeue(ob, sv);
	if (sv->state == OB_READY)
		ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* Places `sv` anew, as `terms` say, after CPUs came or went. */
OB_INLINE void ob_server_place(ob_p ob, ob_server_p sv, ob_terms_p terms, u64 now)
{
	ob_server_take(ob, sv, terms, now);
	ob_server_go_on(ob, sv, now);
}

#endif
