/* SPDX-License-Identifier: GPL-2.0-only */
/* The core for the test that interleaves several CPUs in it, step by step (tests/unlocked.rs):
 * compiled so that each access to memory calls the test first. The names are those of the headers.
 */
#define OB_INTERLEAVED
#include "ob_setup.h"
#include "ob_unlocked.h"

int onbeat_step_init(ob_p ob, u32 cpus)
{
	return ob_init(ob, cpus, 1, 50, 1000000);
}
void onbeat_step_make(ob_p ob, ob_server_p sv, ob_terms_p terms, u64 now)
{
	ob_server_make(ob, sv, terms, OB_NULL, now);
}
void onbeat_step_task_make(ob_task_p t, u32 tid, u64 cpus)
{
	ob_task_make(t, tid, cpus, OB_WEIGHT);
}
u64 onbeat_step_name(ob_server_p sv)
{
	return ob_name(sv);
}
u32 onbeat_step_ask(ob_p ob, ob_server_p pool, u64 count, ob_task_p t, u64 want, u64 now)
{
	return ob_ask(ob, (struct ob_pool){pool, count}, t, want, now);
}
u32 onbeat_step_wants(ob_task_p t)
{
	return !!OB_READ(t->want);
}
u32 onbeat_step_is_unreserved(ob_task_p t)
{
	return ob_is_unreserved(t) && !t->home;
}
u32 onbeat_step_claim(ob_task_p t)
{
	return ob_claim(t);
}
u32 onbeat_step_is_plain(ob_p ob, u32 cpu)
{
	return ob_is_plain(ob, ob_cpu(ob, cpu));
}
u32 onbeat_step_begin_alone(ob_p ob, u32 cpu, ob_task_p t, u64 now)
{
	int round = !t->picked;

	if (round)
		ob_others_has(ob_cpu(ob, cpu), t, now);
	return ob_begin_alone(ob, ob_cpu(ob, cpu), t, round, now);
}
void onbeat_step_begin(ob_p ob, u32 cpu, ob_task_p t, u64 now)
{
	ob_begin(ob, cpu, t, now);
}
void onbeat_step_charge(ob_p ob, ob_task_p t, u64 ran)
{
	if (!t->server)
		ob_among_ran(ob, t, ran);
}
u32 onbeat_step_is_curr(ob_p ob, u32 cpu, ob_task_p t)
{
	return ob_cpu(ob, cpu)->curr == t;
}
void onbeat_step_stop_alone(ob_p ob, u32 cpu, ob_task_p t, u32 goes_on, u64 now)
{
	ob_stop_alone(ob_cpu(ob, cpu), t, goes_on, now);
}
void onbeat_step_stop(ob_p ob, u32 cpu, u64 reason, u64 now)
{
	ob_stop(ob, cpu, reason, now);
}
void onbeat_step_sleep_alone(ob_p ob, ob_task_p t)
{
	ob_sleep_alone(ob, t);
}
void onbeat_step_sleep(ob_p ob, ob_task_p t, u64 now)
{
	ob_sleep(ob, t, now);
	OB_PUBLISH(t->running, 0U);
}
void onbeat_step_enqueue(ob_p ob, ob_server_p pool, u64 count, ob_task_p t, u64 now)
{
	ob_enqueue(ob, (struct ob_pool){pool, count}, t, t->cpus, now);
}
u32 onbeat_step_is_waiting(ob_task_p t)
{
	return t->waiting;
}
void onbeat_step_unqueue(ob_p ob, ob_task_p t)
{
	ob_unqueue(ob, t);
}
ob_task_p onbeat_step_next(ob_p ob, u32 cpu, ob_task_p prev, u64 now)
{
	return ob_next(ob, cpu, prev, now);
}
void onbeat_step_regroup(ob_p ob, u64 cpus, u64 now)
{
	ob_regroup(ob, cpus, now);
}
void onbeat_step_swap(ob_p ob, ob_server_p sv, ob_terms_p terms, u64 now)
{
	ob_server_swap(ob, sv, terms, now);
}
void onbeat_step_reorder(ob_p ob, ob_task_p tasks, u64 count, u32 order)
{
	ob_reorder(ob, tasks, count, order);
}
/* Takes the CPUs that must pick again. */
u64 onbeat_step_kicks(ob_p ob)
{
	u64 kick = ob->kick;

	ob->kick = 0;
	ob->rearm = 0;
	return kick;
}
