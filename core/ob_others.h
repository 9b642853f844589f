/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Best effort, whatever its order (others/registry.h): who waits, who has a CPU, whether who wakes
 * takes one at once. In a crowd turns shrink, and who has lost its patience is next, so that nobody
 * waits for longer than the kernel allows.
 */
#ifndef OB_OTHERS_H
#define OB_OTHERS_H

#include "others/registry.h"

/* Who has waited for so long is served whatever its weight, ns. The kernel throws a scheduler out
 * that lets a thread wait for 10 s. */
#define OB_PATIENCE 3000000000ULL

/* `c`, on which this is called, serves best effort of virtual time `vtime`. */
OB_INLINE void ob_others_advance(ob_p ob, ob_cpu_p c, u64 vtime)
{
	if (vtime <= c->vtime)
		return;
	c->vtime = vtime;
	ob_raise(&ob->vtime, vtime);
}

/* Where in virtual time `t`, which runs, is. */
OB_INLINE u64 ob_others_stands(ob_p ob, ob_task_p t)
{
	u64 key = ob_among_key(ob, t);

	return key < OB_OTHERS_APART ? key : t->vtime;
}

/* `t` begins to run on `c`. The time it had alone on an idle machine is no debt to those who come
 * later. */
OB_INLINE void ob_others_begin(ob_p ob, ob_cpu_p c, ob_task_p t)
{
	ob_among_begin(ob, c, t);
	/* A quick one on a CPU that was idle is no measure for those who wait. */
	if (!ob->best_effort.root)
		ob_others_advance(ob, c, t->vtime);
}

/* Servers that draw wait where best effort does (ob_draw.h). */
OB_FN void ob_draw_remask(ob_p ob OB_ARG);

/* `ob_others_vtime` averages so much at a time, ns; and what it has added up then fits s64. */
#define OB_OTHERS_SPAN (1LL << 36)

/* `t`, placed, is among those who wait. */
OB_INLINE void ob_others_add(ob_p ob, ob_task_p t)
{
	s64 each;

	if (!ob->best_effort.root) {
		ob->origin = t->at;
		ob->ahead = 0;
		ob->parts = 0;
	}
	ob->parts += t->parts;
	ob->ahead += (s64)((t->at - ob->origin) * t->parts);
	ob->notable += t->notable;
	ob_tree_insert(&ob->best_effort, &t->node);
	if (ob->nr_draws)
		ob_draw_remask(ob);
	each = ob->ahead / (s64)ob->parts;
	if (each < OB_OTHERS_SPAN && each > -OB_OTHERS_SPAN)
		return;
	ob->origin += (u64)each;
	ob->ahead -= each * (s64)ob->parts;
}

/* `t` is so no more. */
OB_INLINE void ob_others_subtract(ob_p ob, ob_task_p t)
{
	ob->ahead -= (s64)((t->at - ob->origin) * t->parts);
	ob->parts -= t->parts;
	ob->notable -= t->notable;
	ob_tree_remove(&ob->best_effort, &t->node);
	if (ob->nr_draws)
		ob_draw_remask(ob);
	t->waiting = 0;
}

/*
 * The virtual time of those with whom `t`, which wakes, will share CPUs: the average of those who
 * wait, as fluid sharing would have it (Stoica and Abdel-Wahab 1995), or of who was served last if
 * that is less; within a slice of the first who waits for its CPUs (of where that stands or of its
 * key, whichever is further), for others may wait elsewhere, or be far ahead by their weights. If
 * nobody waits, it is that of who runs.
 */
OB_INLINE u64 ob_others_vtime(ob_p ob, ob_task_p t, u64 now)
{
	ob_node_p first = ob_tree_first(&ob->best_effort, t->cpus);
	ob_cpu_p c = ob_cpu(ob, t->cpu);
	u64 served = ob->online & ~t->cpus ? c->vtime : ob->vtime, mean, at, key;
	ob_task_p other = OB_READ(c->other);

	if (first) {
		at = ((ob_task_p)first)->at;
		key = ob_others_where(first);
		mean = ob->origin + (u64)(ob->ahead / (s64)ob->parts);
		mean = ob_min(ob_min(mean, served), ob_max(key, at) + ob->slice);
		at = ob_min(key, at);
		return mean + ob->slice < at ? at - ob->slice : mean;
	}
	if (other && !other->server)
		return other->vtime + ob_virtual(other, now > c->started ? now - c->started : 0);
	return served;
}

/* `t` has `c`, or is about to. */
OB_INLINE void ob_others_has(ob_cpu_p c, ob_task_p t, u64 now)
{
	c->other = t;
	c->started = now;
}

/* `t` stops on `c`; the next may have been picked before. */
OB_INLINE void ob_others_leaves(ob_cpu_p c, ob_task_p t)
{
	if (c->other == t)
		c->other = OB_NULL;
}

/* Whether `t`, which waits, should have `c` at once in place of the best effort there. */
OB_INLINE int ob_others_overtakes(ob_p ob, ob_cpu_p c, ob_task_p t, u64 now)
{
	ob_task_p other = OB_READ(c->other);
	u64 ran = now > c->started ? now - c->started : 0;

	return other && !other->server && ob_among_beats(ob, t, other, ran);
}

/* When the best effort on `c` is to be compared with who waits, some of whom are notable. */
OB_FN u64 ob_others_look_at(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_task_p first = (ob_task_p)ob_tree_first(&ob->best_effort, OB_BIT(c->id));
	ob_task_p other = OB_READ(c->other);

	if (!first || !other || other->server)
		return OB_NEVER;
	return ob_among_look(ob, c, other, first);
}

/* The same; most often nobody is notable. */
OB_INLINE u64 ob_others_look(ob_p ob, ob_cpu_p c)
{
	ob_task_p other = OB_READ(c->other);

	if (!other || (!ob->notable && other->weight >= OB_WEIGHT))
		return OB_NEVER;
	return ob_others_look_at(ob, c);
}

/* `t` has woken and waits: who sleeps much is not to wait for the slices of those who never do. Its
 * last CPU is asked first, then those after it. Whom a thread has woken does not have its CPU at
 * once: it may be about to sleep, and messages that come one by one are best read together. */
OB_FN void ob_others_wake(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 now)
{
	u32 last = ob_wake_last(ob, t);
	u64 cpus = t->told ? 0 : ob_wake_looks(ob, t, last);
	ob_cpu_p c = ob_cpu(ob, last);
	ob_task_p has = OB_READ(c->other);
	u64 at;

	while (cpus && OB_LOOP) {
		ob_cpu_p other = ob_cpu(ob, last + ob_lowest(cpus));

		if (ob_others_overtakes(ob, other, t, now)) {
			ob->kick |= OB_BIT(other->id);
			return;
		}
		cpus = (cpus & (cpus - 1)) + OB_ZERO;
	}
	at = has && !has->server ? ob_among_passes(ob, c, has, t) : OB_NEVER;
	if (at < c->timer) {
		c->timer = ob_max(at, now + (t->told ? OB_TOLD_GRAIN : 1));
		ob->rearm |= OB_BIT(c->id);
	}
}

/* Whether somebody who waits should have `c` in place of the best effort there. */
OB_FN u64 ob_others_overtaken(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_node_p first = ob_tree_first(&ob->best_effort, OB_BIT(c->id));

	return first && ob_others_overtakes(ob, c, (ob_task_p)first, now);
}

/* CPUs that may take `t`: those on line, and if there are none the one that is going, from which
 * the kernel moves what it picks. */
OB_INLINE u64 ob_others_mask(ob_p ob, ob_task_p t)
{
	u64 cpus = t->cpus & ob->online;

	return cpus ? cpus : t->cpus;
}

/* Whether a task waits for CPUs of which none is on line. */
OB_INLINE int ob_others_strands(ob_p ob)
{
	return ob->best_effort.root && (ob->best_effort.root->sub_mask & ~ob->online);
}

/* Such a task, or null. */
OB_INLINE ob_task_p ob_others_stranded(ob_p ob)
{
	return (ob_task_p)ob_tree_first(&ob->best_effort, ~ob->online);
}

/* CPUs came or went: who waits may find others. */
OB_FN void ob_others_online(ob_p ob OB_ARG)
{
	ob_node_p n;

	for (n = ob_tree_head(&ob->best_effort); n && OB_LOOP; n = ob_tree_next(n))
		ob_tree_update(n, ob_others_mask(ob, (ob_task_p)n), n->over);
	if (ob->nr_draws)
		ob_draw_remask(ob);
	if (ob_others_strands(ob))
		ob->kick |= ob->online & -ob->online;
}

/* What a thread may have had before others that wait, ns: some turns, each of which is a slice that
 * ends with the kernel's next tick. */
#define OB_OTHERS_LEAD 16000000ULL

/* Queues `t`, which has waited since `node.over` says, near those who wait for its CPU, as if it
 * had taken turns with them: no more than a slice before them if it slept (`from` is where those
 * with whom it shares CPUs are, else OB_NEVER), no more than some turns of its own after them
 * whatever it and others had elsewhere. So nobody waits for longer than some turns of everybody. */
OB_FN void ob_others_put(ob_p ob OB_ARG, ob_task_p t OB_ARG, u64 from)
{
	u64 here = t->cpus & OB_BIT(t->cpu);
	/* Those that it took turns with: time may pass slower for others, that wait elsewhere. */
	ob_node_p first = ob_tree_first(&ob->best_effort, here ? here : t->cpus);
	u64 most = OB_NEVER;

	/* `at` of one that sleeps much may be far behind, so its key says where the others are. */
	if (first) {
		most = ob_max(ob_others_where(first), ((ob_task_p)first)->at + OB_OTHERS_FAR);
		/* The first may come from elsewhere, or have been put far back as others that slept
		 * wait; this CPU's time is of those who ran here. */
		if (here)
			most = ob_max(most, ob_cpu(ob, t->cpu)->vtime + OB_OTHERS_FAR);
		most += ob_virtual(t, OB_OTHERS_LEAD) - OB_OTHERS_FAR;
	}
	ob_among_place(ob, t, most, from);
	t->placed = (u8)ob->others;
	t->node.mask = ob_others_mask(ob, t);
	t->waiting = 1;
	ob_others_add(ob, t);
}

/* `t`, of best effort, waits: it `woke`, or was interrupted. */
OB_FN void ob_others_enqueue(ob_p ob OB_ARG, ob_task_p t OB_ARG, u32 woke, u64 now)
{
	/* The greatest is who has waited for longest. A kernel thread that wakes counts as one who
	 * has just lost its patience, no more, for others have too: grace periods and watchdogs
	 * wait for it, and where reservations leave 5 % to a crowd, a turn of everybody takes
	 * seconds. */
	t->node.over = ~now;
	if (woke && t->kernel)
		t->node.over = ~(now > OB_PATIENCE ? now - OB_PATIENCE : 0);
	ob_others_put(ob, t, woke ? ob_others_vtime(ob, t, now) : OB_NEVER);
}

OB_INLINE void ob_others_remove(ob_p ob, ob_task_p t, u64 now)
{
	u64 cpus = t->node.mask & ob->share_ready;

	ob_others_subtract(ob, t);
	/* The order has changed since it was put there (ob_reorder). */
	if (t->placed != ob->others)
		t->vtime = ob_min(t->vtime, ob_others_where(&t->node));
	else
		ob_among_taken(ob, t);
	if (!cpus)
		return;
	if (ob->best_effort.root)
		cpus &= ~ob->best_effort.root->sub_mask;
	for (; cpus && OB_LOOP; cpus &= cpus - 1)
		ob->cpu[ob_lowest(cpus) & (OB_MAX_CPUS - 1)].wanted = now;
}

/* The best-effort task that has waited for longest, beyond its patience, for one of these CPUs. */
OB_INLINE ob_task_p ob_others_impatient(ob_p ob, u64 cpus, u64 now)
{
	ob_node_p n = ob->best_effort.root;

	if (!n || now < OB_PATIENCE + ~n->sub_over)
		return OB_NULL;
	return (ob_task_p)ob_tree_greatest(&ob->best_effort, cpus, ~(now - OB_PATIENCE) - 1);
}

/* A CPU has picked, and others wait. It may be that who was sent there came too late, for another
 * had gone there round the core, and that a CPU idles which can have them. */
OB_INLINE void ob_others_spread(ob_p ob)
{
	u64 cpus = ob->best_effort.root ? ob->best_effort.root->sub_mask & ob->idle : 0;

	if (!cpus)
		return;
	cpus &= -cpus;
	ob_idle_clear(ob, cpus);
	ob->kick |= cpus;
}

/* Whether `t`, which `c` is to serve, is further in virtual time than the next who waits for `c`:
 * it may come from a faster CPU, and is no measure for those that have this one. */
OB_FN u64 ob_others_leads(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p t OB_ARG)
{
	ob_task_p next = (ob_task_p)ob_tree_first(&ob->best_effort, OB_BIT(c->id));

	return next && next->at + ob->slice < t->vtime;
}

/* Takes the next best-effort task that may run on `c`. */
OB_INLINE ob_task_p ob_others_take(ob_p ob, ob_cpu_p c, u64 now)
{
	ob_task_p t = ob_others_impatient(ob, OB_BIT(c->id), now);

	if (t) {
		/* Out of turn: where it is in virtual time is no measure here. */
		ob_others_remove(ob, t, now);
		return t;
	}
	t = (ob_task_p)ob_tree_first(&ob->best_effort, OB_BIT(c->id));
	if (t) {
		ob_others_remove(ob, t, now);
		if (t->vtime <= c->vtime + ob->slice || !ob_others_leads(ob, c, t))
			ob_others_advance(ob, c, t->vtime);
	}
	return t;
}

/* Whether another of a crowd of best-effort threads is next. */
OB_INLINE int ob_others_turn_over(ob_p ob, ob_cpu_p c, u64 now)
{
	return c->curr && ob_others_crowded(ob) && now >= c->started + ob_others_turn(ob) &&
	       ob_share_waiting(ob, OB_BIT(c->id));
}

#endif
