/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel shell: tells the core what sched_ext reports and carries out what it answers.
 *
 * Every call into the core has the same shape: read the clock, take the lock, ask, copy the effects
 * out, drop the lock, act. Under the lock no helper may be called. Best-effort threads with an idle
 * CPU at hand, and kernel threads bound to one CPU, go round the core: straight to that CPU.
 *
 * Tasks wait in the core, not in dispatch queues: `enqueue` inserts nowhere, `dispatch` asks the
 * core and inserts into the CPU's own queue. Budgets are enforced by one timer for each CPU
 * (PREEMPT_RT: by a perf event that looks every 100 µs, as timers are refused there).
 */
#include <scx/common.bpf.h>
#include <scx/compat.bpf.h>
#include <bpf_atomic.h>

char _license[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16384); /* pages; the loader sets what it needs */
	__ulong(map_extra, (1ull << 44));
} arena SEC(".maps");

#include "shell.h"
#include "ob_setup.h"
#include "ob_unlocked.h"

const volatile bool use_timers = true;
const volatile bool tracing;
const volatile bool measuring;

UEI_DEFINE(uei);

/* The loader stores the arena's address here. */
struct shell __arena *shell;

/*
 * Where the core's view of a thread is found: in task storage, and, quicker, in the thread's
 * dsq_vtime, which nobody else uses as no DSQ is ordered by it. 0: the core does not know it.
 * Its `want` is the reservation to join at the next switch (ob_name), 0: none, ~0: leave.
 */
struct thread {
	u64 core;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Every program that touches the arena must name it. */
#define USE_ARENA() asm volatile("" ::"r"(&arena))

#define BE_SLICE ((u64)OB_SLICE_TICKS)

/* The core's view of a thread of this class. */
static __always_inline ob_task_p task_of(const struct task_struct *p)
{
	return (ob_task_p)p->scx.dsq_vtime;
}

/* The core's view of any thread. */
static __always_inline ob_task_p task_stored(struct task_struct *p)
{
	struct thread *th = bpf_task_storage_get(&threads, p, 0, 0);

	return th ? (ob_task_p)th->core : NULL;
}

static __always_inline u64 cpus_of(const struct task_struct *p)
{
	return p->cpus_ptr->bits[0];
}

static __always_inline bool is_bound(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

/* Of the kernel's headers, which are not in its type information: the whole process ends. */
#define SIGNAL_GROUP_EXIT 0x00000004

/* Who runs the service. */
const volatile s32 service = -1;

/* The service ends: until it has, nobody is rid of the scheduler. */
static __always_inline bool is_ending(const struct task_struct *p)
{
	return p->tgid == service && (p->signal->flags & SIGNAL_GROUP_EXIT);
}

/* Goes round the core, ahead of all. The core does not learn of it when it runs, either: it would
 * have the CPU pick again for others, and PREEMPT_RT interrupts it for that at once, for ever. */
static __always_inline bool is_ahead(const struct task_struct *p)
{
	return is_bound(p) || is_ending(p);
}

static __always_inline struct ob_pool reservations(void)
{
	return (struct ob_pool){.at = shell->servers, .count = shell->nr_servers};
}

/* One for the timer of each CPU, then one with which each CPU keeps the core's alarm. */
#define TIMER_SLOTS (2 * OB_MAX_CPUS)
#define ALARM_SLOT(cpu) (OB_MAX_CPUS + (cpu))

#include "apart.bpf.h"
#include "effects.bpf.h"
#include "queue.bpf.h"
#include "turns.bpf.h"
#include "lifecycle.bpf.h"
#include "requests.bpf.h"
#include "clocks.bpf.h"
#include "dispatch.bpf.h"

void BPF_STRUCT_OPS(onbeat_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(onbeat_ops, .select_cpu = (void *)onbeat_select_cpu,
	       .enqueue = (void *)onbeat_enqueue, .dequeue = (void *)onbeat_dequeue,
	       .dispatch = (void *)onbeat_dispatch, .tick = (void *)onbeat_tick,
	       .running = (void *)onbeat_running, .stopping = (void *)onbeat_stopping,
	       .quiescent = (void *)onbeat_quiescent, .yield = (void *)onbeat_yield,
	       .set_weight = (void *)onbeat_set_weight, .enable = (void *)onbeat_enable,
	       .disable = (void *)onbeat_disable, .init_task = (void *)onbeat_init_task,
	       .exit_task = (void *)onbeat_exit_task, .cpu_online = (void *)onbeat_cpu_online,
	       .cpu_offline = (void *)onbeat_cpu_offline, .dump_task = (void *)onbeat_dump_task,
	       .exit = (void *)onbeat_exit,
	       .flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED |
			SCX_OPS_ALLOW_QUEUED_WAKEUP | SCX_OPS_TID_TO_TASK,
	       .name = "onbeat");
