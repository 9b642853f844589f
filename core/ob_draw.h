/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Servers that draw: they serve best effort in place of threads of their own.
 *
 * EDF-HSB gives best effort a guaranteed rate by sporadic servers that stand among the soft ones
 * (Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors: are
 * analysis-based schedulers really worth it?", section 3). All of them draw from one queue, that of
 * best effort, whose own order says which thread is next; the thread stays best effort, and the
 * server is charged for the CPU (c->server). A server has one CPU at a time. They stand in one
 * queue, that of a domain or of a group: as members of a group they give best effort a part of its
 * budget, in its order, and whoever has the group's place in the tree has it for them, too.
 *
 * What is wanted of them is who waits: as many of those without a CPU have a job as threads of best
 * effort wait, as long as one of these may run where they are served (ob_draw_sync). A budget that
 * nobody there could use would keep a deadline that passes, and later go first, which the rule of a
 * constant bandwidth server forbids. A CPU that would idle runs best effort without any of them. In
 * their queue they stand for the CPUs on which somebody waits (ob_draw_remask), so that who picks
 * one finds a thread.
 */
#ifndef OB_DRAW_H
#define OB_DRAW_H

#include "ob_serve.h"

/* Whether `sv`, which draws, has a job and no CPU. */
OB_INLINE int ob_draw_waits(ob_server_p sv)
{
	return sv->state == OB_READY && !sv->running && !sv->drawn;
}

/* `sv` draws from now on; CPUs pick again, and so give it work. Whether there was room for one
 * more, and the others are in the same queue. */
OB_FN u64 ob_draw_make(ob_p ob OB_ARG, ob_server_p sv OB_ARG)
{
	if (ob->nr_draws >= OB_MAX_CPUS || (ob->nr_draws && ob->draws[0]->domain != sv->domain))
		return 0;
	ob->kick |= ob->online;
	ob->draws[ob->nr_draws & (OB_MAX_CPUS - 1)] = sv;
	ob->nr_draws++;
	sv->draws = 1;
	sv->domain->others = ob->best_effort.root ? ob->best_effort.root->sub_mask : 0;
	return 1;
}

/* `sv` stands where it is to be had. */
OB_INLINE void ob_draw_stand(ob_p ob, ob_server_p sv)
{
	if (sv->node.linked)
		ob_server_update(ob, sv);
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
		ob_draw_stand(ob, ob->draws[i & (OB_MAX_CPUS - 1)]);
}

/* How many are wanted by who waits; none where nothing is reserved, nor where nobody waits whom
 * they may serve. */
OB_FN u64 ob_draw_wanted(ob_p ob OB_ARG)
{
	ob_node_p root = ob->best_effort.root;

	if (!ob->engaged || !root || !ob_server_allows(ob->draws[0], root->sub_mask & ob->online))
		return 0;
	return ob->best_effort.count;
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
	if (!last)
		return;
	ob_server_end(ob, last, now);
	ob_want(ob, last, now);
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
		ob_want(ob, sv, now);
		if (sv->state != OB_READY)
			continue;
		ob_server_requeue(ob, sv);
		ob_preempt(ob, sv, prefer);
		return 1;
	}
	return 0;
}

/* No more than `most` have a job and no CPU. */
OB_FN void ob_draw_spare(ob_p ob OB_ARG, u64 most, u64 now)
{
	u64 have = ob_draw_count(ob);

	for (; have > most && OB_LOOP; have--)
		ob_draw_dismiss(ob, now);
}

/* As many have a job and no CPU as are wanted. */
OB_FN void ob_draw_sync(ob_p ob OB_ARG, u32 prefer, u64 now)
{
	u64 wait = ob_draw_wanted(ob), have;

	ob_draw_spare(ob, wait, now);
	for (have = ob_draw_count(ob); have < wait && OB_LOOP; have++)
		if (!ob_draw_rouse(ob, prefer, now))
			return;
}

/* `t` is about to wait: it `woke`, or was interrupted, perhaps on a server's time, which then waits
 * for it. Those whose threads have left the queue for other reasons than a CPU have no job, lest it
 * be taken for this one. */
OB_FN void ob_draw_arrives(ob_p ob OB_ARG, u32 woke, u64 now)
{
	ob_draw_spare(ob, ob_draw_wanted(ob) + !woke, now);
}

/* The first by its place of those that wait and are to be had on one of `cpus`, or null. */
OB_FN u64 ob_draw_first(ob_p ob OB_ARG, u64 cpus)
{
	ob_server_p first = OB_NULL;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_draws && OB_LOOP; i++) {
		ob_server_p sv = ob->draws[i & (OB_MAX_CPUS - 1)];

		if (sv->node.linked && (sv->node.mask & cpus) &&
		    (!first || sv->node.key < first->node.key))
			first = sv;
	}
	return (u64)first;
}

/* `t`, of best effort, has come, and no CPU idles: a server may have one for it. Whether so. */
OB_FN u64 ob_draw_claim(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	u64 kicked = ob->kick;
	ob_server_p first;

	ob_draw_sync(ob, t->cpu, now);
	first = (ob_server_p)ob_draw_first(ob, t->cpus & ob->online);
	if (first)
		ob_preempt(ob, first, t->cpu);
	return ob->kick != kicked;
}

/* What drew for `c` stopped there: its budget may be used up. Seen to when its thread queues, or by
 * the CPU's next pick, where the kernel goes through all that follows anyway. */
OB_FN void ob_draw_stopped(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_server_p sv = c->stopped;

	c->stopped = OB_NULL;
	ob_budget_check(ob, sv, now);
}

/* What was picked for `c` on a server's time will not run there. */
OB_FN void ob_draw_forget(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_server_p sv = c->draws;

	if (!sv)
		return;
	c->draws = OB_NULL;
	sv->drawn = 0;
	ob_draw_stand(ob, sv);
}

/* `c` is about to pick. If what ran there on a server's time sleeps, others who wait elsewhere may
 * have that server. */
OB_FN void ob_draw_picks(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_server_p had = c->stopped, first;

	ob_draw_forget(ob, c);
	if (had)
		ob_draw_stopped(ob, c, now);
	ob_draw_sync(ob, c->id, now);
	if (!had)
		return;
	first = (ob_server_p)ob_draw_first(ob, ob->online & ~OB_BIT(c->id));
	if (first)
		ob_preempt(ob, first, c->id);
}

/* Who draws for what runs on `c` pays no more for it. */
OB_FN void ob_draw_ends(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_server_p sv = c->server;

	ob_server_stops(ob, sv, now);
	c->server = OB_NULL;
	ob_draw_stand(ob, sv);
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
		ob_draw_ends(ob, c, now);
	c->curr = t;
	if (sv) {
		ob_server_begins(ob, sv, now);
		c->server = sv;
		ob_draw_stand(ob, sv);
		ob_server_attend(ob, sv, now);
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
		ob_draw_stand(ob, sv);
		return;
	}
	ob_draw_changes(ob, c, t, sv, now);
}

/* `t` begins to run on `c`, for which best effort was picked on a server's time: that server; null
 * if `t` has its own. */
OB_FN u64 ob_draw_begins(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p t OB_ARG)
{
	ob_server_p sv = c->draws;

	if (t->server) {
		ob_draw_forget(ob, c);
		return 0;
	}
	c->draws = OB_NULL;
	sv->drawn = 0;
	return (u64)sv;
}

/* Nothing is reserved any more: nobody pays. */
OB_FN void ob_draw_drop(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p prev OB_ARG, u64 now)
{
	ob_draw_forget(ob, c);
	if (c->server && c->server->draws && prev == c->curr && prev)
		ob_draw_changes(ob, c, prev, OB_NULL, now);
	ob_draw_sync(ob, c->id, now);
}

/* `sv` no longer draws on `c`: what runs there, or is about to, goes on on nobody's time. */
OB_FN void ob_draw_leave(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (c->stopped == sv)
		c->stopped = OB_NULL;
	if (c->draws != sv && c->server != sv)
		return;
	if (c->draws == sv)
		ob_draw_forget(ob, c);
	if (c->server == sv)
		ob_draw_changes(ob, c, c->curr, OB_NULL, now);
	if (!c->share && !c->relief)
		c->key = OB_KEY_BE;
	ob->kick |= OB_BIT(c->id);
}

/* `sv` draws no more. */
OB_FN void ob_draw_unmake(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		ob_draw_leave(ob, ob_cpu(ob, i), sv, now);
	for (i = OB_ZERO; i < ob->nr_draws && OB_LOOP; i++) {
		if (ob->draws[i & (OB_MAX_CPUS - 1)] != sv)
			continue;
		ob->nr_draws--;
		ob->draws[i & (OB_MAX_CPUS - 1)] = ob->draws[ob->nr_draws & (OB_MAX_CPUS - 1)];
	}
	if (sv->state)
		ob_server_end(ob, sv, now);
	ob_want(ob, sv, now);
	sv->draws = 0;
}

#endif
