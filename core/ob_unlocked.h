/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a shell may do without the lock, for that makes turns of best effort cheap: a thread of it
 * begins to run, stops, sleeps; looks at what others are about to change.
 *
 * Whose words are what:
 *
 * - `other`, `started`, `vtime` of a CPU: that CPU's, with or without the lock; `started` also who
 *   has the lock, while it runs a reservation. Others read them once (OB_READ) and may get an old
 *   answer: a guess.
 * - `came`, `past`, `stretches` of a CPU: likewise. Nothing is decided by them (ob_blame.h), so who
 *   stops a thread that has left its CPU already may spoil a stretch there.
 * - vtime, used, burst, due, expires, beat, interval, varies, aim, until, heard, ran, told, awake,
 * picked, cpu of a thread that is unreserved and claimed: the CPU's that has it (the kernel lets
 * one at a time). Otherwise, and all else of a thread always: of who has the lock.
 * - what `beats` of a thread points to: of who wakes it or puts it to sleep; the kernel lets one at
 * a time. The service reads it meanwhile, word by word.
 * - `use`, `since`, `wanted` of a CPU: written under the lock; without it by that CPU, too, when a
 *   thread of best effort follows a reservation, or sleeps. Who looks then is a moment out.
 * - `key` of a CPU: written by it when it begins to run a thread, and under the lock. A claim
 *   (ob_preempt) that is overwritten has been kicked for, so the CPU picks.
 * - ob->idle: single bits, atomically, so that nobody writes back another CPU's bit.
 * - ob->vtime: raised atomically, never lowered.
 * - `running` of a thread: written by the CPU that has it. `want`: under the lock.
 * - `domain` of a CPU: written under the lock, when policies are swapped (ob_swap.h). Who reads the
 *   old one without it looks into a queue that is another's, or empty, which is a guess: domains
 *   stay where they are, and each step of a swap kicks the CPUs whose turn it changes.
 * - ob->others: the same; hooks of the order before may still be called for what runs.
 * - all others: written under the lock; read without it they may be old. Who comes too late to be
 *   seen has kicked a CPU.
 *
 * The hand-over of a thread to a reservation, each side of which first says what it is about to do
 * and then looks for the other (Dekker), with a full barrier between (OB_SWAP):
 *
 *   a CPU:   running = 1 (ob_claim); want, server or away? if none, its words; running = 0
 *   ob_ask:  want = the reservation; running or picked? if none, its words; want = 0
 *
 * One of them at least sees the other. If the CPU does, it takes the lock and picks again, and the
 * thread joins when it is enqueued. If ob_ask does, it leaves `want` to the thread's next switch.
 * Each lets go last, so that who sees that sees all it has written (OB_PUBLISH); the CPU looks at
 * `want` before `server`.
 */
#ifndef OB_UNLOCKED_H
#define OB_UNLOCKED_H

#include "ob_dispatch.h"

/* The pool of reservations, to find by name. */
struct ob_pool {
	ob_server_p at;
	u64 count;
};

/* What `want` holds for `sv`: never 0, and another for the next that gets its slot. */
OB_INLINE u64 ob_name(ob_server_p sv)
{
	return (u64)sv->generation << 32 | (sv->id + 1);
}

/* Joins or leaves a reservation as asked; `t` is not running, and is queued no more. */
OB_INLINE void ob_join(ob_p ob, struct ob_pool pool, ob_task_p t, u64 now)
{
	u64 want = t->want;
	ob_server_p sv = OB_NULL;

	if (want != OB_NEVER && (want & 0xffffffff) - 1 < pool.count) {
		sv = &pool.at[(u32)want - 1];
		/* Its slot may have been given to somebody else. */
		if (sv->used != 1 || ob_name(sv) != want)
			sv = OB_NULL;
	}
	ob_unqueue(ob, t);
	ob_attach(ob, t, sv, now);
	OB_PUBLISH(t->want, 0ULL);
}

/* Under the lock: `t` is to join the reservation named `want` (ob_name), or none (OB_NEVER).
 * Whether it does at its next switch only, for a CPU has it, or will in a moment. */
OB_INLINE u32 ob_ask(ob_p ob, struct ob_pool pool, ob_task_p t, u64 want, u64 now)
{
	u32 queued;

	OB_SWAP(t->want, want);
	if (OB_READ(t->running) || OB_READ(t->picked))
		return 1;
	queued = t->waiting;
	ob_join(ob, pool, t, now);
	if (queued)
		ob_ready(ob, t, now);
	return 0;
}

/* Whether `t` holds no reservation and is not about to. `want` is looked at first: it is cleared
 * last. */
OB_INLINE int ob_is_unreserved(ob_task_p t)
{
	return !OB_READ(t->want) && !OB_READ(t->server) && !OB_READ(t->away);
}

/* `ob_ask` is to leave `t` alone. Whether the thread's words are this CPU's then; if they are not
 * it takes the lock. */
OB_INLINE int ob_claim(ob_task_p t)
{
	OB_SWAP(t->running, 1U);
	return ob_is_unreserved(t);
}

/* Whether a thread of best effort that begins to run on `c` is nothing to the share, to a server
 * that draws or to a crowd. */
OB_INLINE int ob_is_plain(ob_p ob, ob_cpu_p c)
{
	return !c->share && !c->relief && !c->draws && !ob_others_crowded(ob);
}

/* `t`, claimed and unreserved, begins to run on `c`; `round`: the core had not picked it. Whether
 * somebody waits for whom `c` is to pick again: best effort that has come while `t` went round the
 * core, or a reservation. `now` counts only where something is reserved. */
OB_INLINE int ob_begin_alone(ob_p ob, ob_cpu_p c, ob_task_p t, int round, u64 now)
{
	ob_node_p root;

	/* It follows a reservation: from here on it pays the CPU's debt. */
	if (c->use == OB_USE_SWITCH) {
		c->since = ob_max(c->since, now);
		OB_WRITE(c->use, OB_USE_OTHER);
	}
	t->awake = 1;
	t->picked = 0;
	t->cpu = c->id;
	ob_others_begin(ob, c, t);
	if (c->key == OB_KEY_IDLE) {
		OB_WRITE(c->key, OB_KEY_BE);
		ob_idle_clear(ob, OB_BIT(c->id));
	}
	if (round && ob_share_waiting(ob, OB_BIT(c->id)))
		return 1;
	if (!ob->engaged || c->key == OB_KEY_SHARE)
		return 0;
	root = OB_READ(OB_READ(c->domain)->active.root);
	return root && (root->sub_mask & OB_BIT(c->id));
}

/* `t`, which begins to run on `c`, is to join or leave a reservation, or was asleep when it did: it
 * goes to the queue again, where that is seen to. Until then, a moment, nobody counts what it
 * uses. */
OB_INLINE void ob_begin_again(ob_p ob, ob_cpu_p c, ob_task_p t)
{
	if (!t->want)
		t->want = ob_name(t->server ? t->server : t->home);
	t->picked = 0;
	t->cpu = c->id;
	ob_idle_clear(ob, OB_BIT(c->id));
	ob->kick |= OB_BIT(c->id);
}

/* The same under the lock, for any thread. */
OB_INLINE void ob_begin(ob_p ob, u32 cpu, ob_task_p t, u64 now)
{
	if (t->want || (!t->awake && (t->server || t->home))) {
		ob_begin_again(ob, ob_cpu(ob, cpu), t);
		return;
	}
	if (!t->awake)
		ob_wake_other(ob, t, now);
	ob_unqueue(ob, t);
	ob_run(ob, cpu, t, now);
	if (ob_cpu(ob, cpu)->server)
		ob_run_check(ob, ob_cpu(ob, cpu), now);
}

/* `t`, which began alone on `c`, stops. Who does not go on, but sleeps, stays claimed until then.
 * `now` counts only where something is reserved. */
OB_INLINE void ob_stop_alone(ob_cpu_p c, ob_task_p t, int goes_on, u64 now)
{
	/* Where another has been picked before, that has seen to it. */
	if (now && c->other == t)
		OB_WRITE(c->wanted, now);
	ob_others_leaves(c, t);
	ob_blame_leaves(c, OB_NULL, now);
	if (goes_on)
		OB_PUBLISH(t->running, 0U);
}

/* `t`, claimed and unreserved, sleeps. */
OB_INLINE void ob_sleep_alone(ob_p ob, ob_task_p t)
{
	t->awake = 0;
	ob_among_slept(ob, t);
	OB_PUBLISH(t->running, 0U);
}

/* Under the lock: `t`, which has no CPU, wants one of `cpus`. */
OB_INLINE void ob_enqueue(ob_p ob, struct ob_pool pool, ob_task_p t, u64 cpus, u64 now)
{
	/* A look without the lock may have missed that it was in a queue. */
	if (t->waiting)
		ob_unqueue(ob, t);
	t->picked = 0;
	t->cpus = cpus;
	if (t->want)
		ob_join(ob, pool, t, now);
	ob_ready(ob, t, now);
}

/* Under the lock: what `cpu` runs next, where `prev`, or nobody, could go on (ob_pick). */
OB_INLINE ob_task_p ob_next(ob_p ob, u32 cpu, ob_task_p prev, u64 now)
{
	if (ob->alarm_at <= now)
		ob_alarm(ob, now);
	if (!ob->engaged)
		return (ob_task_p)ob_pick_unreserved(ob, cpu, prev, now);
	/* PREEMPT_RT's clock, and the tick, only bring us here. */
	if (ob_cpu(ob, cpu)->timer <= now)
		ob_tick(ob, cpu, now);
	return (ob_task_p)ob_pick(ob, cpu, prev, now);
}

/* Whether nothing is reserved and nobody waits. */
OB_INLINE int ob_is_quiet(ob_p ob)
{
	return !OB_READ(ob->engaged) && !OB_READ(ob->best_effort.root);
}

/* Whether `other`, of best effort, is known to use little. */
OB_INLINE int ob_sleeps_soon(ob_task_p other)
{
	return other && other->burst <= OB_WAKE_GRAIN;
}

/* Whether `t`, which wakes and may run on `c` only, need not go through the core: nobody else
 * waits, and `c` is idle, or who runs there is known to sleep soon. */
OB_INLINE int ob_is_next(ob_p ob, ob_cpu_p c, ob_task_p t)
{
	ob_task_p other = OB_READ(c->other);

	if (!ob_is_quiet(ob) || !ob_is_unreserved(t) || t->home)
		return 0;
	return other ? t->told && ob_sleeps_soon(other) : !!(OB_READ(ob->idle) & OB_BIT(c->id));
}

/* Whether a reservation waits for `c`, which runs nothing that the core knows of. */
OB_INLINE int ob_is_passed_over(ob_cpu_p c)
{
	ob_node_p root = OB_READ(OB_READ(c->domain)->active.root);

	return !c->curr && root && (root->sub_mask & OB_BIT(c->id));
}

#endif
