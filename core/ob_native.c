/* SPDX-License-Identifier: GPL-2.0-only */
/* The core for native callers: external names for what the headers define. Compiled once more with
 * OB_COUNT_STEPS, under names of their own, for the test that counts steps. */
#ifdef OB_COUNT_STEPS
#define ENTRY(name) onbeat_counted_##name
#else
#define ENTRY(name) onbeat_##name
#endif
#include "ob_setup.h"
#include "ob_unlocked.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int ENTRY(init)(ob_p ob, u32 cpus, u32 domains, u32 permille, u64 quantum)
{
	return ob_init(ob, cpus, domains, permille, quantum);
}
EXPORT u64 ENTRY(make)(ob_p ob, ob_server_p sv, ob_terms_p terms, ob_server_p up, u64 now)
{
	return ob_server_make(ob, sv, terms, up, now);
}
EXPORT void ENTRY(unmake)(ob_p ob, ob_server_p sv, u64 now)
{
	sv->used = 2;
	if (sv->draws)
		ob_draw_unmake(ob, sv, now);
	if (sv->state)
		ob_server_end(ob, sv, now);
	ob_account_part(sv, now);
	ob_server_dismiss(ob, sv);
	ob_group_drop(ob, sv);
	sv->used = 0;
}
EXPORT u64 ENTRY(purse)(ob_p ob, u32 slot, ob_purse_p up, u64 period, u64 origin)
{
	ob_purse_make(ob, &ob->purse[slot & (OB_MAX_PURSES - 1)], up, period, origin);
	return slot < OB_MAX_PURSES;
}
EXPORT u64 ENTRY(fill)(ob_purse_p p, u64 amount, u64 from, u64 until)
{
	return ob_purse_fill(p, amount, from, until);
}
EXPORT void ENTRY(account)(ob_p ob, ob_server_p sv, u32 id, u64 rate, u64 now)
{
	ob_account_join(ob, sv, id, rate, now);
}
EXPORT void ENTRY(task_make)(ob_task_p t, u32 tid, u64 cpus, u64 weight)
{
	ob_task_make(t, tid, cpus, weight);
}
EXPORT void ENTRY(task_begin)(ob_p ob, ob_task_p t, ob_task_p parent, u64 ran)
{
	ob_task_begin(ob, t, parent, ran);
}
EXPORT void ENTRY(task_end)(ob_p ob, ob_task_p t)
{
	ob_task_end(ob, t->vtime, t->weight);
}
EXPORT void ENTRY(beat_slept)(ob_beats_p b, u64 now)
{
	ob_beat_slept(b, now);
}
EXPORT void ENTRY(beat_woke)(ob_beats_p b, u64 now, u64 ran)
{
	ob_beat_woke(b, now, ran);
}
EXPORT void ENTRY(ready)(ob_p ob, ob_task_p t, u64 now)
{
	ob_ready(ob, t, now);
}
EXPORT void ENTRY(unqueue)(ob_p ob, ob_task_p t)
{
	ob_unqueue(ob, t);
}
EXPORT void ENTRY(sleep)(ob_p ob, ob_task_p t, u64 now)
{
	ob_sleep(ob, t, now);
}
EXPORT void ENTRY(mark)(ob_p ob, ob_task_p t, u64 now)
{
	ob_mark(ob, t, now);
}
EXPORT ob_task_p ENTRY(pick)(ob_p ob, u32 cpu, ob_task_p prev, u64 now)
{
	return (ob_task_p)ob_pick(ob, cpu, prev, now);
}
EXPORT void ENTRY(run)(ob_p ob, u32 cpu, ob_task_p t, u64 now)
{
	ob_run(ob, cpu, t, now);
}
EXPORT void ENTRY(stop)(ob_p ob, u32 cpu, u64 reason, u64 now)
{
	ob_stop(ob, cpu, reason, now);
}
EXPORT void ENTRY(begin_alone)(ob_p ob, u32 cpu, ob_task_p t, u64 now)
{
	ob_begin_alone(ob, ob_cpu(ob, cpu), t, !t->picked, now);
}
EXPORT void ENTRY(stop_alone)(ob_p ob, u32 cpu, ob_task_p t, u32 goes_on, u64 now)
{
	ob_stop_alone(ob_cpu(ob, cpu), t, goes_on, now);
}
EXPORT void ENTRY(tick)(ob_p ob, u32 cpu, u64 now)
{
	ob_tick(ob, cpu, now);
}
EXPORT void ENTRY(alarm)(ob_p ob, u64 now)
{
	ob_alarm(ob, now);
}
EXPORT void ENTRY(online)(ob_p ob, u32 cpu, u32 on, u64 now)
{
	ob_online(ob, cpu, on, now);
}
EXPORT void ENTRY(resize)(ob_p ob, ob_server_p sv, u64 budget, u64 period, u64 now)
{
	ob_server_resize(ob, sv, budget, period, now);
}
EXPORT void ENTRY(regroup)(ob_p ob, u64 cpus, u64 now)
{
	ob_regroup(ob, cpus, now);
}
EXPORT void ENTRY(swap)(ob_p ob, ob_server_p sv, ob_terms_p terms, u64 now)
{
	ob_server_swap(ob, sv, terms, now);
}
EXPORT void ENTRY(reorder)(ob_p ob, ob_task_p tasks, u64 count, u32 order)
{
	ob_reorder(ob, tasks, count, order);
}
EXPORT void ENTRY(strand)(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_strand(ob, sv, now);
}
EXPORT u32 ENTRY(strands)(ob_p ob)
{
	return !!ob_others_strands(ob);
}
EXPORT void ENTRY(attach)(ob_p ob, ob_task_p t, ob_server_p sv, u64 now)
{
	ob_attach(ob, t, sv, now);
}
EXPORT void ENTRY(charge)(ob_p ob, ob_task_p t, u64 ran)
{
	ob_among_ran(ob, t, ran);
}
EXPORT void ENTRY(slept)(ob_p ob, ob_task_p t)
{
	ob_among_slept(ob, t);
}

/* The registry, for the tools: name of policy `kind`, or null past the last. */
EXPORT const char *ENTRY(policy_name)(u32 kind)
{
	switch (kind) {
#define X(NAME, prefix, name, enforced, isolates, lends, about) \
	case OB_KIND_##NAME:                                    \
		return name;
		OB_POLICIES(X)
#undef X
	}
	return 0;
}

/* Whether order `order` chooses. */
EXPORT u32 ENTRY(order_chooses)(u32 order)
{
	struct ob_server sv = {.order = order};

	return (u32)ob_order_chooses(&sv);
}

/* How policy `kind` lends (enum ob_lending). */
EXPORT u32 ENTRY(policy_lends)(u32 kind)
{
	struct ob_server sv = {.kind = kind};

	return ob_policy_lends(&sv);
}

#ifdef OB_COUNT_STEPS
/* Steps since this was called last. */
EXPORT u64 onbeat_counted_steps(void)
{
	u64 steps = ob_steps;

	ob_steps = 0;
	return steps;
}
#endif
