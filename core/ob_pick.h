/* SPDX-License-Identifier: GPL-2.0-only */
/* What a CPU runs next. */
#ifndef OB_PICK_H
#define OB_PICK_H

#include "choose/registry.h"
#include "ob_online.h"

/* The first of queue `d` that `cpu` may run, and has somebody to run there. Those that find a purse
 * of theirs empty rest; where that leaves a group without anybody it is the next one's turn. */
OB_FN u64 ob_first(ob_p ob OB_ARG, ob_domain_p d OB_ARG, u32 cpu, u64 now)
{
	ob_server_p sv, first = OB_NULL;
	ob_domain_p at = d;

	while (OB_LOOP) {
		if (at->stale)
			ob_choose(ob, at, now);
		sv = (ob_server_p)ob_tree_first(&at->active, OB_BIT(cpu));
		if (!sv)
			return 0;
		if (at == d)
			first = sv;
		if (sv->purse && ob_purse_stops(ob, sv, now)) {
			ob_want(ob, sv, now);
			at = d;
		} else if (sv->members) {
			at = sv->members;
		} else {
			return (u64)first;
		}
	}
	return 0;
}

/* Of the group `sv` the first member, and so on down; null: nobody. */
OB_FN u64 ob_group_leaf(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	while (sv && sv->members && OB_LOOP)
		sv = (ob_server_p)ob_first(ob, sv->members, c->id, now);
	return (u64)sv;
}

/* Who serves on `c` where it is the turn of `sv`, if any. */
OB_INLINE ob_server_p ob_leaf(ob_p ob, ob_server_p sv, ob_cpu_p c, u64 now)
{
	return sv && sv->members ? (ob_server_p)ob_group_leaf(ob, sv, c, now) : sv;
}

/* The first waiting thread of `sv`, some of which are bound to fewer CPUs, that may run on `c`. */
OB_FN u64 ob_thread_fits(ob_server_p sv OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_task_p t;

	for (t = sv->head; t && OB_LOOP; t = t->next)
		if (ob_thread_cpus(sv, t) & OB_BIT(c->id))
			break;
	return (u64)t;
}

/* Takes the first waiting thread of `sv`, which serves threads, that may run on `c`. */
OB_FN u64 ob_thread_take(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_task_p t = sv->pinned ? (ob_task_p)ob_thread_fits(sv, c) : sv->head;

	if (!t)
		return 0;
	ob_thread_unlink(sv, t);
	ob_server_masks(ob, sv, sv->node.over);
	return (u64)t;
}

/* The next to run on `c` in best effort's time: best effort, or a thread of a reservation that has
 * waited for longer, which is best effort for a turn. */
OB_INLINE ob_task_p ob_other_take(ob_p ob, ob_cpu_p c, u64 now)
{
	ob_server_p sv = ob_patience_first(ob, OB_BIT(c->id), now);
	ob_task_p t = OB_NULL;

	if (sv) {
		ob_patience_had(ob, sv, now);
		t = (ob_task_p)ob_thread_take(ob, sv, c);
	}
	if (!t)
		return ob_others_take(ob, c, now);
	t->server = OB_NULL;
	t->home = sv;
	t->away = 1;
	t->vtime = ob_others_vtime(ob, t, now);
	ob_others_advance(ob, c, t->vtime);
	return t;
}

/* What runs on `c` runs under `sv`, in a group that goes on here: it may be another member's turn.
 * Returns that one, or null. */
OB_FN u64 ob_group_next(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_p up = ob_server_top(sv), at;
	ob_node_p n;

	while (up != sv && OB_LOOP) {
		at = (ob_server_p)ob_server_at(sv, up->level + 1);
		n = (ob_node_p)ob_first(ob, up->members, c->id, now);
		if (n && n != &at->node && ob_key_beats(n->key, ob_server_key(at, now)))
			return (u64)n;
		up = at;
	}
	return 0;
}

/* Who serves on `c` in place of `sv`, under which `prev` runs there and could go on: another member
 * of its groups, or itself if a sibling's turn has come; null: `prev` goes on. */
OB_INLINE ob_server_p ob_next_in(ob_p ob, ob_cpu_p c, ob_server_p sv, ob_task_p prev, u64 now)
{
	ob_server_p next = OB_NULL;

	if (sv->domain->up)
		next = (ob_server_p)ob_group_next(ob, c, sv, now);
	/* Not so to a server of the same key: changes at each turn gain nothing. */
	if (!next && (sv->node.mask & OB_BIT(c->id)) && c->curr == prev && !ob_turn_left(c, now))
		next = sv;
	return next;
}

/* ob_pick when nobody holds a reservation. */
OB_FN u64 ob_pick_unreserved(ob_p ob OB_ARG, u32 cpu, ob_task_p prev OB_ARG, u64 now)
{
	ob_cpu_p c = ob_cpu(ob, cpu);
	u64 bit = OB_BIT(cpu);
	/* Who is served out of turn says nothing of where the others are (ob_others_take). */
	ob_task_p t = ob_others_impatient(ob, bit, now);
	u32 in_turn = !t;

	ob_share_clear(ob, c, now);
	c->timer = OB_NEVER;
	c->relief = 0;
	c->claim = OB_NULL;
	ob->kick &= ~bit;
	if (ob->nr_draws)
		ob_draw_drop(ob, c, prev, now);
	if (t)
		prev = OB_NULL;
	else
		t = (ob_task_p)ob_tree_first(&ob->best_effort, bit);
	if (prev && (prev->cpus & bit) && (!t || ob_among_key(ob, prev) <= t->node.key)) {
		t = prev;
		ob_others_advance(ob, c, t->vtime);
		if (c->curr)
			ob_arm(ob, c);
	} else if (t) {
		ob_others_remove(ob, t, now);
		if (in_turn)
			ob_others_advance(ob, c, t->vtime);
		t->picked = 1;
	} else {
		c->key = OB_KEY_IDLE;
		c->other = OB_NULL;
		ob_idle_set(ob, bit & ob->online);
		return 0;
	}
	c->key = OB_KEY_BE;
	ob_others_has(c, t, now);
	ob_idle_clear(ob, bit);
	if (ob->best_effort.root) {
		ob_others_spread(ob);
		c->timer = ob_min(c->timer, ob_others_look(ob, c));
		if (c->timer != OB_NEVER)
			ob->rearm |= bit;
	}
	return (u64)t;
}

/* `c` has picked. Who had claimed it, and still waits, looks at the others again. */
OB_INLINE void ob_pick_others(ob_p ob, ob_cpu_p c)
{
	ob_server_p lost = c->claim;

	if (!lost)
		return;
	c->claim = OB_NULL;
	ob_preempt(ob, lost, lost->head ? lost->head->cpu : c->id);
}

/* Whether best effort, which is there, has its turn on `c` before reservations of key `best`. */
OB_FN u64 ob_share_is_due(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 best, u64 now)
{
	return c->owed ? ob_share_key(c, now) <= best : ob_patience_presses(ob, OB_BIT(c->id));
}

/*
 * What should `cpu` run now? `prev` is the thread that runs there and wants to go on, or null.
 * Returns the thread to run, which is `prev` if it stays, or 0 for none. A thread other than
 * `prev` has been taken from its queue.
 */
OB_FN u64 ob_pick(ob_p ob OB_ARG, u32 cpu, ob_task_p prev OB_ARG, u64 now)
{
	ob_cpu_p c = ob_cpu(ob, cpu);
	u64 bit = OB_BIT(cpu);
	ob_server_p cand, leads, runs = OB_NULL, mine = OB_NULL, draws = OB_NULL;
	ob_task_p t = OB_NULL;
	u32 be, due;
	u64 best, own;

	if (c->server)
		ob_budget_look(ob, c->server, now);
	if (ob->nr_draws)
		ob_draw_picks(ob, c, now);
	ob_share_account(ob, c, now);
	if (c->domain->stale) {
		ob->kick &= ~bit;
		ob_choose(ob, c->domain, now);
	}
	/* Who is best effort for a turn has had it. */
	if (prev && (!(prev->cpus & bit) || ob_thread_returns(ob, prev)))
		prev = OB_NULL;
	if (prev)
		runs = prev->server ? prev->server : c->server;
	if (runs && ob_server_open(runs, bit)) {
		mine = runs;
		ob_server_restand(mine, now);
		if (mine->domain->up) {
			mine = ob_server_top(mine);
			ob_server_restand(mine, now);
		}
	}
	be = (prev && !prev->server) || ob_share_waiting(ob, bit);

	cand = (ob->online & bit) ? (ob_server_p)ob_tree_first(&c->domain->active, bit) : OB_NULL;
	if (cand && (cand->purse || cand->members))
		cand = (ob_server_p)ob_first(ob, c->domain, cpu, now);
	if (!(ob->online & bit))
		mine = OB_NULL;
	own = mine ? ob_server_key(mine, now) : OB_KEY_BE;
	best = ob_min(cand ? cand->node.key : OB_KEY_BE, own);
	due = be ? (u32)ob_share_is_due(ob, c, best, now) : 0;
	if (due != c->share)
		ob_share_turn(ob, c, due, now);
	leads = mine && best == own ? mine : cand;
	/* From here on c->share is what `due` was, and nothing that the verifier knows. */
	c->relief = !c->share && leads && ob_patience_relieves(ob, leads, bit, now);
	if (!c->share && !c->relief &&
	    !(leads && ob_account_equal(leads) && ob_account_yields(ob, leads, prev, bit, now))) {
		if (leads)
			c->key = best;
		if (mine && best == own) {
			cand = ob_next_in(ob, c, runs, prev, now);
			if (!cand && runs->draws)
				draws = runs;
			else if (!cand)
				t = prev;
		}
		cand = ob_leaf(ob, cand, c, now);
		if (cand && cand->draws)
			draws = cand;
		else if (cand)
			t = (ob_task_p)ob_thread_take(ob, cand, c);
	}
	if (!t && be) {
		ob_node_p first = ob_tree_first(&ob->best_effort, bit);

		c->key = c->share ? ob_share_key(c, now) : c->relief || draws ? best : OB_KEY_BE;
		if (prev && !prev->server && (!first || ob_among_key(ob, prev) <= first->key) &&
		    !ob_others_impatient(ob, bit, now) && !ob_tree_first(&ob->impatient, bit)) {
			t = prev;
			ob_others_advance(ob, c, prev->vtime);
		} else {
			t = ob_other_take(ob, c, now);
		}
	}
	if (!t || !t->server)
		c->use = OB_USE_OTHER;
	c->other = OB_NULL;
	ob->kick &= ~bit;
	if (!t) {
		c->key = OB_KEY_IDLE;
		ob_idle_set(ob, bit & ob->online);
		ob_pick_others(ob, c);
		if (ob->nr_draws)
			ob_draw_sync(ob, cpu, now);
		return 0;
	}
	ob_idle_clear(ob, bit);
	if (t != prev)
		t->picked = 1;
	if (!t->server)
		ob_others_has(c, t, now);
	if (ob->nr_draws) {
		if (!t->server)
			ob_draw_picked(ob, c, t, draws, now);
		ob_draw_sync(ob, cpu, now);
	}
	if (t == prev)
		ob_arm(ob, c);
	ob_others_spread(ob);
	ob_pick_others(ob, c);
	return (u64)t;
}

#endif
