/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dispatcher: told of events (ready, sleep, stop, tick, …) it keeps queues and budgets and
 * leaves its answers in ob->kick (CPUs that must pick again), ob->rearm (CPUs whose timer changed)
 * and ob->alarm_at. A shell serialises all calls for one `struct ob`.
 *
 *   a thread wakes          ob_ready (ob_thread.h)
 *   a CPU needs work        ob_pick, then ob_run when the thread really runs
 *   a thread leaves a CPU   ob_stop, and if it still wants to run ob_ready
 *   a thread sleeps         ob_stop, ob_sleep (ob_thread.h)
 *   a CPU's timer fires     ob_tick
 *   alarm_at passes         ob_alarm
 */
#ifndef OB_DISPATCH_H
#define OB_DISPATCH_H

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

/* Takes the first waiting thread of `sv` that may run on `c`; of the first member's of a group. */
OB_FN u64 ob_thread_take(ob_p ob OB_ARG, ob_server_p sv OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_task_p t;

	while (sv->members && OB_LOOP) {
		sv = (ob_server_p)ob_first(ob, sv->members, c->id, now);
		if (!sv)
			return 0;
	}
	for (t = sv->head; t && OB_LOOP; t = t->next)
		if (!sv->pinned || (ob_thread_cpus(sv, t) & OB_BIT(c->id)))
			break;
	if (!t)
		return 0;
	ob_thread_unlink(sv, t);
	ob_server_update(ob, sv);
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
		t = (ob_task_p)ob_thread_take(ob, sv, c, now);
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

/* Sees to a budget that has run out. */
OB_INLINE void ob_budget_enforce(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	if (sv->e > 0 || sv->state != OB_READY || sv->spent || !ob_policy_enforces(sv))
		return;
	/* What it was given in a window whose share is used up is used up, too. */
	if (ob_place_waits(sv)) {
		ob_server_restore(ob, sv, now);
		ob_server_requeue(ob, sv);
		return;
	}
	sv->exhaustions++;
	ob_emit(ob, now, OB_KC(OB_EV_EXHAUST, OB_NONE), OB_TS(OB_NONE, sv->id), 0, sv->s);
	sv->urgent = 0;
	ob_policy_exhausted(ob, sv, now);
	ob_want(ob, sv, now);
	ob_server_requeue(ob, sv);
	if (ob_place_moves(sv))
		ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* The account of `sv`, just charged, may be empty, or not any more. A demoted one's place in the
 * queue changes with what it has had. */
OB_FN void ob_account_check(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	if (!ob_account_limits(sv) || !sv->state)
		return;
	if (sv->demoted) {
		if (ob_account_restored(sv, now))
			ob_account_promote(ob, sv);
	} else {
		ob_account_fill(sv->account, now);
		if (sv->account->has > 0 || !ob_account_ahead(sv, now))
			return;
		ob_account_demote(ob, sv, now);
	}
	ob_server_requeue(ob, sv);
}

/* Sees to budget and account, and to those of the groups that it is in. */
OB_FN void ob_budget_check(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	for (; sv && OB_LOOP; sv = sv->domain->up) {
		if (sv->purse && ob_purse_stops(ob, sv, now))
			ob_want(ob, sv, now);
		ob_budget_enforce(ob, sv, now);
		if (sv->account)
			ob_account_check(ob, sv, now);
	}
}

/* The turn of what runs on `c`, a thread of `sv`, may be over: a sibling is next. */
OB_INLINE void ob_turn_over(ob_p ob, ob_cpu_p c, ob_server_p sv, u64 now)
{
	if (!sv->waiting || ob_turn_left(c, now))
		return;
	if (sv->node.mask & OB_BIT(c->id)) {
		ob->kick |= OB_BIT(c->id);
	} else if (ob_server_open(sv, OB_BIT(c->id))) {
		/* Nobody else can have it. (Where the server rests, or has gone, they could.) */
		c->curr->turn = 0;
		c->started = now;
	}
}

/* What runs on `c`, `prev`, is under a group that goes on here: it may be a member's turn. Returns
 * the thread to run. */
OB_FN u64 ob_group_next(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, ob_task_p prev OB_ARG, u64 now)
{
	ob_server_p sv = prev->server, up = ob_server_top(sv), at;
	ob_node_p n;

	while (up != sv && OB_LOOP) {
		at = (ob_server_p)ob_server_at(sv, up->level + 1);
		n = (ob_node_p)ob_first(ob, up->members, c->id, now);
		if (n && n != &at->node && ob_key_beats(n->key, ob_server_key(at, now)))
			return ob_thread_take(ob, (ob_server_p)n, c, now);
		up = at;
	}
	if ((sv->node.mask & OB_BIT(c->id)) && c->curr == prev && !ob_turn_left(c, now))
		return ob_thread_take(ob, sv, c, now);
	return (u64)prev;
}

/* ob_pick when nobody holds a reservation. */
OB_FN u64 ob_pick_unreserved(ob_p ob OB_ARG, u32 cpu, ob_task_p prev OB_ARG, u64 now)
{
	ob_cpu_p c = ob_cpu(ob, cpu);
	u64 bit = OB_BIT(cpu);
	ob_task_p t = ob_others_impatient(ob, bit, now);

	ob_share_clear(ob, c, now);
	c->timer = OB_NEVER;
	c->relief = 0;
	ob->kick &= ~bit;
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

/* With groups and purses many come back at once, and some find nothing to run with: who waits, and
 * could have a CPU that idles or serves best effort, looks at that. */
OB_FN void ob_pick_idlers(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	u64 cpus = OB_ZERO;
	ob_server_p first;
	u32 i;

	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_cpu(ob, i)->key >= OB_KEY_BE)
			cpus |= OB_BIT(i);
	cpus &= ob->online & ~ob->kick;
	first = cpus ? (ob_server_p)ob_tree_first(&c->domain->active, cpus) : OB_NULL;
	if (first)
		ob_preempt(ob, first, first->head ? first->head->cpu : c->id);
}

/* `c` has picked. Claims are lost to earlier deadlines, to races and to threads that vanish: who
 * had claimed this CPU, and who waits at all, looks again. */
OB_FN void ob_pick_others(ob_p ob OB_ARG, ob_cpu_p c OB_ARG)
{
	ob_server_p mine = (ob_server_p)ob_tree_first(&c->domain->active, OB_BIT(c->id)), first;

	if (mine)
		ob_preempt(ob, mine, mine->head ? mine->head->cpu : c->id);
	first = (ob_server_p)ob_tree_first(&c->domain->active, ob->online);
	if (first && first != mine)
		ob_preempt(ob, first, first->head ? first->head->cpu : c->id);
	/* These may be for CPUs that have better to do. */
	if (ob->groups | ob->purses)
		ob_pick_idlers(ob, c);
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
	ob_server_p cand, leads, mine = OB_NULL;
	ob_task_p t = OB_NULL;
	u32 be, due;
	u64 best, own;

	if (c->server)
		ob_budget_check(ob, c->server, now);
	ob_share_account(ob, c, now);
	if (c->domain->stale) {
		ob->kick &= ~bit;
		ob_choose(ob, c->domain, now);
	}
	/* Who is best effort for a turn has had it. */
	if (prev && (!(prev->cpus & bit) || ob_thread_returns(ob, prev)))
		prev = OB_NULL;
	if (prev && prev->server && ob_server_open(prev->server, bit)) {
		mine = prev->server;
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
		if (mine && best == own) {
			t = prev;
			c->key = best;
			if (mine->members)
				t = (ob_task_p)ob_group_next(ob, c, prev, now);
			/* Not so to a server of the same key: changes at each turn gain nothing. */
			else if ((mine->node.mask & bit) && c->curr == prev &&
				 !ob_turn_left(c, now))
				t = (ob_task_p)ob_thread_take(ob, mine, c, now);
		} else if (cand) {
			c->key = best;
			t = (ob_task_p)ob_thread_take(ob, cand, c, now);
		}
	}
	if (!t && be) {
		ob_node_p first = ob_tree_first(&ob->best_effort, bit);

		c->key = c->share ? ob_share_key(c, now) : c->relief ? best : OB_KEY_BE;
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
		/* It was kicked for somebody whose purse is empty: that kick was another's. */
		if (!cand && ob->purses)
			ob_pick_others(ob, c);
		return 0;
	}
	ob_idle_clear(ob, bit);
	if (t != prev)
		t->picked = 1;
	if (!t->server)
		ob_others_has(c, t, now);
	if (t == prev)
		ob_arm(ob, c);
	ob_others_spread(ob);
	ob_pick_others(ob, c);
	return (u64)t;
}

/* A thread of `sv` has begun to run. One is enough for want of laxity; with more there is some. */
OB_INLINE void ob_server_attend(ob_p ob, ob_server_p sv, u64 now)
{
	if (!ob_server_attended(sv))
		return;
	if (sv->running == 1) {
		ob_server_restand(sv, now);
		return;
	}
	sv->urgent = 0;
	sv->soon = 0;
	ob_server_requeue(ob, sv);
}

/* A thread of `sv` has begun to run: its purses pay for it. Others that they pay for have so much
 * less: their CPUs look again sooner. */
OB_FN void ob_purse_begins(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u32 i;

	ob_purse_run(sv->purse, 1, now);
	for (i = OB_ZERO; i < ob->nr_cpus && OB_LOOP; i++)
		if (ob_cpu(ob, i)->server)
			ob_arm(ob, ob_cpu(ob, i));
}

/* A thread of `sv` has begun to run: its groups are charged for it. Returns the outermost. */
OB_FN u64 ob_group_begins(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_p up;

	for (up = sv->domain->up; up && OB_LOOP; up = up->domain->up) {
		ob_server_charge(up, now);
		up->running++;
		if (up->purse)
			ob_purse_begins(ob, up, now);
		sv = up;
		ob_server_attend(ob, up, now);
		if (up->running > 1)
			ob_server_rearm(ob, up);
	}
	return (u64)sv;
}

/* It has stopped. */
OB_FN void ob_group_stops(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	for (sv = sv->domain->up; sv && OB_LOOP; sv = sv->domain->up) {
		ob_server_charge(sv, now);
		sv->running--;
		if (sv->purse)
			ob_purse_run(sv->purse, (u32)-1, now);
		if (sv->urgent || sv->soon)
			ob_server_restand(sv, now);
		ob_laxity_sync(ob, sv);
	}
}

/* `t` begins to run on `cpu`. */
OB_FN void ob_run(ob_p ob OB_ARG, u32 cpu, ob_task_p t OB_ARG, u64 now)
{
	ob_cpu_p c = ob_cpu(ob, cpu);
	ob_server_p sv = t->server;

	ob_share_account(ob, c, now);
	t->picked = 0;
	t->running = 1;
	t->cpu = cpu;
	ob_idle_clear(ob, OB_BIT(cpu));
	c->started = now;
	c->curr = t;
	c->other = sv ? OB_NULL : t;
	c->server = sv;
	c->use = sv ? OB_USE_RESERVED : OB_USE_OTHER;
	if (sv) {
		/* It was best effort's turn, but this one has joined a reservation on its way. */
		if (c->share) {
			c->share = 0;
			ob_emit(ob, now, OB_KC(OB_EV_SHARE, cpu), OB_TS(OB_NONE, OB_NONE), 0, 0);
		}
		ob_server_p top = sv;

		ob_server_charge(sv, now);
		sv->running++;
		if (sv->purse)
			ob_purse_begins(ob, sv, now);
		if (sv->domain->up)
			top = (ob_server_p)ob_group_begins(ob, sv, now);
		ob_account_begin(ob, top);
		c->key = ob_server_key(top, now);
	} else {
		ob_others_begin(ob, c, t);
		if (!c->share && !c->relief)
			c->key = OB_KEY_BE;
	}
	ob_emit(ob, now, OB_KC(OB_EV_RUN, cpu), OB_TS(t->tid, sv ? sv->id : OB_NONE),
		sv ? sv->s : 0, sv ? (u64)sv->e : 0);
	if (sv)
		ob_server_attend(ob, sv, now);
	ob_arm(ob, c);
	/* Siblings on other CPUs now share the budget with one more: their time is up sooner. */
	if (sv && sv->running > 1)
		ob_server_rearm(ob, sv);
	/* The kick for a share that is due is lost while another class has the CPU. */
	if (sv && ob_share_calls(ob, c, now))
		ob->kick |= OB_BIT(cpu);
	/* Its reservation went elsewhere while it was on its way here. */
	if (sv && !ob_server_allows(sv, t->cpus & OB_BIT(cpu)))
		ob->kick |= OB_BIT(cpu);
}

/* Whether a member that waits comes before what runs on `c` under a group that they share. */
OB_FN u64 ob_group_overtaken(ob_cpu_p c OB_ARG)
{
	ob_server_p sv = c->server;
	ob_node_p first;

	for (; sv && sv->domain->up && OB_LOOP; sv = sv->domain->up) {
		first = ob_tree_first(&sv->domain->active, OB_BIT(c->id));
		if (first && ob_key_beats(first->key, ob_server_key(sv, sv->charged)))
			return 1;
	}
	return 0;
}

/* A thread of a reservation has begun to run on `c`. While it was on its way here somebody may have
 * come who goes first, and the kick for whom was lost. */
OB_FN void ob_run_check(ob_p ob OB_ARG, ob_cpu_p c OB_ARG, u64 now)
{
	ob_server_p sv = c->server, top = ob_server_top(sv);
	ob_node_p first;

	ob_server_restand(top, now);
	first = ob_tree_first(&c->domain->active, OB_BIT(c->id));
	if (!ob_server_open(sv, ~0ULL) || (first && ob_key_beats(first->key, c->key)) ||
	    (top != sv && ob_group_overtaken(c)))
		ob->kick |= OB_BIT(c->id);
}

/* What runs on `cpu` stops, for `reason` (enum ob_stop). */
OB_FN void ob_stop(ob_p ob OB_ARG, u32 cpu, u64 reason, u64 now)
{
	ob_cpu_p c = ob_cpu(ob, cpu);
	ob_task_p t = c->curr;
	ob_server_p sv = c->server;

	if (!t)
		return;
	ob_share_account(ob, c, now);
	ob_others_leaves(c, t);
	ob_emit(ob, now, OB_KC(OB_EV_STOP, cpu), OB_TS(t->tid, sv ? sv->id : OB_NONE), reason, 0);
	c->curr = OB_NULL;
	c->server = OB_NULL;
	t->turn += now > c->started ? now - c->started : 0;
	c->use = OB_USE_SWITCH;
	/* Who gets what it leaves is welcome here. */
	if (reason != OB_STOP_PREEMPTED)
		c->key = OB_KEY_IDLE;
	t->running = 0;
	if (!sv)
		return;
	ob_server_charge(sv, now);
	sv->running--;
	if (sv->purse)
		ob_purse_run(sv->purse, (u32)-1, now);
	if (sv->urgent || sv->soon)
		ob_server_restand(sv, now);
	/* Nobody sees to its siblings that wait any more. */
	ob_laxity_sync(ob, sv);
	if (sv->domain->up)
		ob_group_stops(ob, sv, now);
	if (reason == OB_STOP_PREEMPTED)
		ob_budget_check(ob, sv, now);
}

/* The key of what runs on `c` may have grown past somebody's who waits. */
OB_INLINE void ob_key_check(ob_p ob, ob_cpu_p c, ob_server_p sv, u64 now)
{
	ob_node_p first;

	if (ob_policy_lends(sv) != OB_LENDS_START || !ob_runs(c, sv))
		return;
	ob_server_restand(sv, now);
	c->key = ob_server_key(sv, now);
	first = ob_tree_first(&c->domain->active, OB_BIT(c->id));
	if (first && ob_key_beats(first->key, c->key))
		ob->kick |= OB_BIT(c->id);
}

/* The timer of `cpu` fired, perhaps late, perhaps for nothing: only the state counts. */
OB_FN void ob_tick(ob_p ob OB_ARG, u32 cpu, u64 now)
{
	ob_cpu_p c = ob_cpu(ob, cpu);
	ob_server_p sv = c->server;

	ob_share_account(ob, c, now);
	if (sv)
		ob_budget_check(ob, sv, now);
	if (sv) {
		ob_turn_over(ob, c, sv, now);
		if (sv->domain->up)
			sv = ob_server_top(sv);
		ob_key_check(ob, c, sv, now);
	}
	if (sv ? ob_patience_relieves(ob, sv, OB_BIT(cpu), now) ||
		     (ob_account_equal(sv) && ob_account_turn_over(ob, c, sv, now))
	       : ob_others_turn_over(ob, c, now) || ob_others_overtaken(ob, c, now))
		ob->kick |= OB_BIT(cpu);
	ob_share_tick(ob, c, now);
	ob_arm(ob, c);
}

/* The window of `sv` is over: what it was given there stays behind. */
OB_INLINE void ob_window_over(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	ob_server_restore(ob, sv, now);
	ob_place_passed(ob, sv, now);
	if (sv->e <= 0)
		ob_policy_exhausted(ob, sv, now);
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* A spent server's deadline has come. */
OB_INLINE void ob_spent_over(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_charge(sv, now);
	ob_unspend(ob, sv);
	ob_policy_replenished(ob, sv, now);
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* Whether a lending server's laxity is about to end, and has not. */
OB_INLINE int ob_soon(ob_server_p sv, u64 now)
{
	return sv->counted && !sv->soon && ob_order_laxity(sv) && sv->e > 0 &&
	       now + (u64)sv->e < sv->s && now + (u64)sv->e + OB_MARGIN >= sv->s;
}

/* A demoted server may be one no more. */
OB_FN void ob_account_review(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_server_charge(sv, now);
	if (ob_account_restored(sv, now)) {
		ob_account_promote(ob, sv);
		ob_server_requeue(ob, sv);
		ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
		return;
	}
	ob_account_watch(ob, sv, now);
}

/* A throttled server's time of replenishment has come. */
OB_INLINE void ob_refill(ob_p ob, ob_server_p sv, u64 now)
{
	sv->state = OB_READY;
	ob_order_stale(sv);
	if (sv->broke) {
		/* As if it had slept. */
		sv->broke = 0;
		ob_place_take_up(ob, sv, now);
		if (sv->e <= 0 && ob_policy_enforces(sv))
			ob_policy_exhausted(ob, sv, now);
	} else {
		ob_policy_replenished(ob, sv, now);
	}
	if (sv->purse)
		ob_purse_stops(ob, sv, now);
	ob_want(ob, sv, now);
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* Laxity has ended, or is about to. */
OB_INLINE void ob_laxity_over(ob_p ob, ob_server_p sv, u64 now)
{
	/* A thread of it has run meanwhile beside those that wait. */
	if (sv->running) {
		ob_server_charge(sv, now);
		ob_server_requeue(ob, sv);
		if (!ob_due_comes(&sv->due, OB_DUE_LAXITY, now))
			return;
	}
	if (ob_soon(sv, now))
		sv->soon = 1;
	else
		sv->urgent = 1;
	ob_server_requeue(ob, sv);
	ob_preempt(ob, sv, sv->head ? sv->head->cpu : 0);
}

/* What is due at a server. Each may undo the next. */
OB_FN void ob_due_server(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	ob_due_p due = &sv->due;

	if (ob_due_comes(due, OB_DUE_WINDOW, now))
		ob_window_over(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_SPENT, now))
		ob_spent_over(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_REFILL, now))
		ob_refill(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_LAXITY, now))
		ob_laxity_over(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_PATIENCE, now))
		ob_patience_lost(ob, sv, now);
	if (ob_due_comes(due, OB_DUE_REVIEW, now))
		ob_account_review(ob, sv, now);
}

/* Sees to all that is due: budgets that come back, laxity, windows and patience that end, slack
 * that is to be reckoned anew. */
OB_FN void ob_alarm(ob_p ob OB_ARG, u64 now)
{
	ob_node_p n = ob_tree_head(&ob->due);

	for (; n && n->key <= now && OB_LOOP; n = ob_tree_head(&ob->due)) {
		ob_due_p due = OB_OF(ob_due, node, n);

		ob_tree_remove(&ob->due, n);
		/* Of those that are linked, only domains have one of these. */
		if (!due->at[OB_DUE_LOOK])
			ob_due_server(ob, OB_OF(ob_server, due, due), now);
		else if (ob_due_comes(due, OB_DUE_LOOK, now))
			ob_slack_look(ob, OB_OF(ob_domain, due, due), now);
		ob_due_link(ob, due);
	}
	ob->alarm_at = n ? n->key : OB_NEVER;
}

#endif
