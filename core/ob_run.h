/* SPDX-License-Identifier: GPL-2.0-only */
/* A thread begins to run on a CPU, stops there, and what its CPU's timer brings. */
#ifndef OB_RUN_H
#define OB_RUN_H

#include "ob_pick.h"

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
	c->came = now;
	c->curr = t;
	c->other = sv ? OB_NULL : t;
	c->use = sv ? OB_USE_RESERVED : OB_USE_OTHER;
	if (c->draws)
		sv = (ob_server_p)ob_draw_begins(ob, c, t) ?: sv;
	c->server = sv;
	if (t->server)
		ob->reserved |= OB_BIT(cpu);
	else
		ob_others_begin(ob, c, t);
	if (sv) {
		/* It was best effort's turn, but this one has joined a reservation on its way. */
		if (c->share) {
			c->share = 0;
			ob_emit(ob, now, OB_KC(OB_EV_SHARE, cpu), OB_TS(OB_NONE, OB_NONE), 0, 0);
		}
		ob_server_p top;

		ob_blame_waited(c, sv, now);
		top = ob_server_begins(ob, sv, now);
		if (sv->draws)
			ob_draw_stand(ob, sv);
		ob_account_begin(ob, top);
		c->key = ob_server_key(top, now);
	} else if (!c->share && !c->relief) {
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
	if (t->server && ob_share_calls(ob, c, now))
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
	ob_blame_leaves(c, sv, now);
	ob_emit(ob, now, OB_KC(OB_EV_STOP, cpu), OB_TS(t->tid, sv ? sv->id : OB_NONE), reason, 0);
	c->curr = OB_NULL;
	c->server = OB_NULL;
	ob->reserved &= ~OB_BIT(cpu);
	t->turn += now > c->started ? now - c->started : 0;
	/* It has been picked already that nobody follows. */
	c->use = c->key == OB_KEY_IDLE ? OB_USE_OTHER : OB_USE_SWITCH;
	/* Who gets what it leaves is welcome here. */
	if (reason != OB_STOP_PREEMPTED)
		c->key = OB_KEY_IDLE;
	t->running = 0;
	if (!sv)
		return;
	ob_server_stops(ob, sv, now);
	if (sv->draws) {
		ob_draw_stand(ob, sv);
		c->stopped = sv;
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
	u32 other = !sv || sv->draws;

	ob_share_account(ob, c, now);
	if (sv)
		ob_budget_check(ob, sv, now);
	if (sv) {
		ob_turn_over(ob, c, sv, now);
		if (sv->domain->up)
			sv = ob_server_top(sv);
		ob_key_check(ob, c, sv, now);
	}
	if (!other ? ob_patience_relieves(ob, sv, OB_BIT(cpu), now) ||
			 (ob_account_equal(sv) && ob_account_turn_over(ob, c, sv, now))
		   : ob_others_turn_over(ob, c, now) || ob_others_overtaken(ob, c, now))
		ob->kick |= OB_BIT(cpu);
	ob_share_tick(ob, c, now);
	ob_arm(ob, c);
}

#endif
