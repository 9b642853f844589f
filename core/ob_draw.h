/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Servers that draw: they serve best effort in place of threads of their own.
 *
 * EDF-HSB gives best effort a guaranteed rate by sporadic servers that stand among the soft ones
 * (Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors: are
 * analysis-based schedulers really worth it?", section 3). All of them draw from one queue, that of
 * best effort, whose own order says which thread is next; the thread stays best effort, and the
 * server is charged for the CPU (c->server). A server has one CPU at a time.
 *
 * What is wanted of them is who waits: as many of those without a CPU have a job as threads of best
 * effort wait (ob_draw_sync). A CPU that would idle runs best effort without any of them. In their
 * queue they stand for the CPUs on which somebody waits (ob_draw_remask), so that who picks one
 * finds a thread.
 */
#ifndef OB_DRAW_H
#define OB_DRAW_H

#include "ob_budget.h"

/* Whether `sv`, which draws, has a job and no CPU. */
OB_INLINE int ob_draw_waits(ob_server_p sv)
{
	return sv->state == OB_READY && !sv->running && !sv->drawn;
}

/* `sv` draws from now on. Whether there was room for one more. */
OB_FN u64 ob_draw_make(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	if (ob->nr_draws >= OB_MAX_CPUS)
		return 0;
	ob->draws[ob->nr_draws & (OB_MAX_CPUS - 1)] = sv;
	ob->nr_draws++;
	sv->draws = 1;
	sv->domain->others = ob->best_effort.root ? ob->best_effort.root->sub_mask : 0;
	return 1;
}

/* `sv` stands where it is to be had. */
OB_INLINE void ob_draw_stand(ob_server_p sv)
{
	if (sv->node.linked)
		ob_tree_update(&sv->node, ob_server_mask(sv), sv->node.over);
}

/* Best effort waits for other CPUs than before. */
OB_FN void ob_draw_remask(ob_p ob OB_ARG)
{
	u64 cpus = ob->best_effort.root ? ob->best_effort.root->sub_mask : 0;
	u32 i;

	if (ob->draws[0]->domain->others == cpus)
		return;
	ob->draws[0]->domain->others = cpus;
	for (i = OB_ZERO; i < ob->nr_draws && OB_LOOP; i++)
		ob_draw_stand(ob->draws[i & (OB_MAX_CPUS - 1)]);
}

/* How many have a job and no CPU. */
OB_FN u64 ob_draw_count(ob_p ob OB_ARG)
{
	u64 count = OB_ZERO;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_draws && OB_LOOP; i++)
		count += !!ob_draw_waits(ob->draws[i & (OB_MAX_CPUS - 1)]);
	return count;
}

/* The last of those by deadline has nobody to serve: its job ends. */
OB_FN void ob_draw_dismiss(ob_p ob OB_ARG, u64 now)
{
	ob_server_p last = OB_NULL;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_draws && OB_LOOP; i++) {
		ob_server_p sv = ob->draws[i & (OB_MAX_CPUS - 1)];

		if (ob_draw_waits(sv) && (!last || sv->s > last->s))
			last = sv;
	}
	if (last)
		ob_server_end(ob, last, now);
}

/* One without a job gets one, if there is any; of what it has left the rule of a constant bandwidth
 * server says what it may keep. Whether one is to be had now. */
OB_FN u64 ob_draw_rouse(ob_p ob OB_ARG, u32 prefer, u64 now)
{
	u32 i;

	for (i = OB_ZERO; i < ob->nr_draws && OB_LOOP; i++) {
		ob_server_p sv = ob->draws[i & (OB_MAX_CPUS - 1)];

		if (sv->state || sv->running || sv->drawn)
			continue;
		ob_server_begin(ob, sv, now);
		if (sv->state != OB_READY)
			continue;
		ob_server_requeue(ob, sv);
		ob_preempt(ob, sv, prefer);
		return 1;
	}
	return 0;
}

/* As many have a job and no CPU as threads of best effort wait; none where nothing is reserved. */
OB_FN void ob_draw_sync(ob_p ob OB_ARG, u32 prefer, u64 now)
{
	u64 wait = ob->engaged ? ob->best_effort.count : 0, have = ob_draw_count(ob);

	for (; have > wait && OB_LOOP; have--)
		ob_draw_dismiss(ob, now);
	for (; have < wait && OB_LOOP; have++)
		if (!ob_draw_rouse(ob, prefer, now))
			return;
}

/* What drew for `c` was interrupted there: its budget may be used up. Seen to when its thread
 * queues, or by the CPU's next pick, where the kernel goes through all that follows anyway. */
OB_FN void ob_draw_stopped(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_server_p sv = c->stopped;

	c->stopped = OB_NULL;
	ob_budget_check(ob, sv, now);
}

/* `t`, of best effort, has come, and no CPU idles: a server may have one for it. Whether so. */
OB_FN u64 ob_draw_claim(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	u64 kicked = ob->kick;
	ob_server_p first;

	ob_draw_sync(ob, t->cpu, now);
	first = (ob_server_p)ob_tree_first(&ob->draws[0]->domain->active, t->cpus & ob->online);
	if (first && first->draws)
		ob_preempt(ob, first, t->cpu);
	return ob->kick != kicked;
}

/* What was picked for `c` on a server's time will not run there. */
OB_FN void ob_draw_forget(ob_cpu_p c OB_ARG)
{
	ob_server_p sv = c->draws;

	if (!sv)
		return;
	c->draws = OB_NULL;
	sv->drawn = 0;
	ob_draw_stand(sv);
}

/* `c` is about to pick. */
OB_FN void ob_draw_picks(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_draw_forget(c);
	if (c->stopped)
		ob_draw_stopped(ob, c, now);
	ob_draw_sync(ob, c->id, now);
}

/* `sv`, which draws, pays no more for what runs on `c`. */
OB_FN void ob_draw_ends(ob_cpu_p c OB_ARG, u64 now)
{
	ob_server_p sv = c->server;

	ob_server_charge(sv, now);
	sv->running--;
	c->server = OB_NULL;
	ob_draw_stand(sv);
}

/* `t`, of best effort, goes on on `c`, where another paid for it or nobody: `sv` does from now on;
 * null: nobody does. */
OB_FN void ob_draw_changes(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p t OB_ARG,
			   ob_server_p sv OB_ARG, u64 now)
{
	ob_server_p had = c->server;

	if (had == sv)
		return;
	/* Who began without the lock is none that the core knew of. */
	if (c->curr == t)
		ob_emit(ob, now, OB_KC(OB_EV_STOP, c->id), OB_TS(t->tid, had ? had->id : OB_NONE),
			OB_STOP_PREEMPTED, 0);
	if (had)
		ob_draw_ends(c, now);
	c->curr = t;
	if (sv) {
		ob_server_charge(sv, now);
		sv->running++;
		c->server = sv;
		ob_draw_stand(sv);
	}
	ob_emit(ob, now, OB_KC(OB_EV_RUN, c->id), OB_TS(t->tid, sv ? sv->id : OB_NONE),
		sv ? sv->s : 0, sv ? (u64)sv->e : 0);
}

/* `c` has picked `t`, of best effort, on the time of `sv`, which draws, or null; `stays`: it runs
 * there already. */
OB_FN void ob_draw_picked(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p t OB_ARG,
			  ob_server_p sv OB_ARG, u64 now)
{
	if (t->picked) {
		c->draws = sv;
		if (!sv)
			return;
		sv->drawn = 1;
		ob_draw_stand(sv);
		return;
	}
	ob_draw_changes(ob, c, t, sv, now);
}

/* `t` begins to run on `c`, for which best effort was picked on a server's time: that server; null
 * if `t` has its own. */
OB_FN u64 ob_draw_begins(ob_cpu_p c OB_ARG, ob_task_p t OB_ARG)
{
	ob_server_p sv = c->draws;

	if (t->server) {
		ob_draw_forget(c);
		return 0;
	}
	c->draws = OB_NULL;
	sv->drawn = 0;
	return (u64)sv;
}

/* Nothing is reserved any more: nobody pays. */
OB_FN void ob_draw_drop(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p prev OB_ARG, u64 now)
{
	ob_draw_forget(c);
	if (c->server && c->server->draws && prev == c->curr && prev)
		ob_draw_changes(ob, c, prev, OB_NULL, now);
	ob_draw_sync(ob, c->id, now);
}

#endif
