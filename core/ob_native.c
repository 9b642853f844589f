/* SPDX-License-Identifier: GPL-2.0-only */
/* The core for native callers: external names for what the headers define. */
#include "ob_dispatch.h"
#include "ob_setup.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int onbeat_init(ob_p ob, u32 cpus, u32 domains, u32 permille, u64 quantum)
{
	return ob_init(ob, cpus, domains, permille, quantum);
}
EXPORT void onbeat_server_init(ob_p ob, ob_server_p sv, u32 id, u32 domain, u64 cpus)
{
	ob_server_init(ob, sv, id, domain, cpus);
}
EXPORT void onbeat_admit(ob_p ob, ob_server_p sv)
{
	ob_server_admit(ob, sv);
}
EXPORT void onbeat_account(ob_p ob, ob_server_p sv, u32 id, u64 rate, u64 now)
{
	ob_account_join(ob, sv, id, rate, now);
}
EXPORT void onbeat_task_init(ob_task_p t, u32 tid, u64 cpus, u64 weight)
{
	ob_task_init(t, tid, cpus, weight);
}
EXPORT void onbeat_ready(ob_p ob, ob_task_p t, u64 now)
{
	ob_ready(ob, t, now);
}
EXPORT void onbeat_unqueue(ob_p ob, ob_task_p t)
{
	ob_unqueue(ob, t);
}
EXPORT void onbeat_sleep(ob_p ob, ob_task_p t, u64 now)
{
	ob_sleep(ob, t, now);
}
EXPORT void onbeat_mark(ob_p ob, ob_task_p t, u64 now)
{
	ob_mark(ob, t, now);
}
EXPORT ob_task_p onbeat_pick(ob_p ob, u32 cpu, ob_task_p prev, u64 now)
{
	return (ob_task_p)ob_pick(ob, cpu, prev, now);
}
EXPORT void onbeat_run(ob_p ob, u32 cpu, ob_task_p t, u64 now)
{
	ob_run(ob, cpu, t, now);
}
EXPORT void onbeat_stop(ob_p ob, u32 cpu, u64 reason, u64 now)
{
	ob_stop(ob, cpu, reason, now);
}
EXPORT void onbeat_tick(ob_p ob, u32 cpu, u64 now)
{
	ob_tick(ob, cpu, now);
}
EXPORT void onbeat_alarm(ob_p ob, u64 now)
{
	ob_alarm(ob, now);
}
EXPORT void onbeat_online(ob_p ob, u32 cpu, u32 on, u64 now)
{
	ob_online(ob, cpu, on, now);
}
EXPORT void onbeat_strand(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_strand(ob, sv, now);
}
EXPORT u32 onbeat_strands(ob_p ob)
{
	return !!ob_fair_strands(ob);
}
EXPORT void onbeat_attach(ob_p ob, ob_task_p t, ob_server_p sv, u64 now)
{
	ob_attach(ob, t, sv, now);
}
EXPORT void onbeat_charge(ob_task_p t, u64 ran)
{
	ob_fair_charge(t, ran);
}

/* The registry, for the tools: name of policy `kind`, or null past the last. */
EXPORT const char *onbeat_policy_name(u32 kind)
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
