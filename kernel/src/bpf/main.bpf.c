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
#include "ob_dispatch.h"

const volatile bool use_timers = true;
const volatile bool tracing;
const volatile bool measuring;

UEI_DEFINE(uei);

/* The loader stores the arena's address here. */
struct shell __arena *shell;

/*
 * Where the core's view of a thread is found: in task storage, and, quicker, in the thread's
 * dsq_vtime, which nobody else uses as no DSQ is ordered by it. 0: the core does not know it.
 * Its `want` is the reservation to join at the next switch (reservation_name), 0: none, ~0: leave.
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

#include "effects.bpf.h"

/* Every program that touches the arena must name it. */
#define USE_ARENA() asm volatile("" ::"r"(&arena))

#define BE_SLICE 4000000ULL

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

/* What `want` holds for `sv`: never 0, and another for the next that gets its slot. */
static __always_inline u64 reservation_name(ob_server_p sv)
{
	return (u64)sv->generation << 32 | (sv->id + 1);
}

/* A thread runs on `cpu` that has just joined: is that a CPU of its reservation's? */
static __always_inline void check_place(ob_task_p t, s32 cpu)
{
	if (t->server && !(ob_thread_cpus(t->server, t) & OB_BIT(cpu)))
		shell->ob.kick |= OB_BIT(cpu);
}

/* Joins or leaves a reservation as asked by `assign`; the thread is neither queued nor running. */
static __always_inline void thread_join(ob_task_p t, u64 now)
{
	u64 want = t->want;
	ob_server_p sv = NULL;

	t->want = 0;
	if (want != OB_NEVER && (want & 0xffffffff) - 1 < shell->nr_servers) {
		sv = &shell->servers[(u32)want - 1];
		/* Its slot may have been given to somebody else. */
		if (sv->used != 1 || reservation_name(sv) != want)
			sv = NULL;
	}
	ob_unqueue(&shell->ob, t);
	ob_attach(&shell->ob, t, sv, now);
}

/* Best effort pays for what it ran since this was called last, or since it began to run. */
static __always_inline void charge_share(struct task_struct *p, ob_task_p t)
{
	u64 ran = p->se.sum_exec_runtime;

	ob_share_charge(t, ran - t->ran);
	t->ran = ran;
}

/* Whether all goes by fair sharing, and no trace wants to know. */
static __always_inline bool unreserved(void)
{
	return !shell->ob.engaged && !tracing;
}

s32 BPF_STRUCT_OPS(onbeat_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	ob_task_p t = task_of(p);
	bool idle = false;
	s32 cpu, here;

	USE_ARENA();
	/* Reservations are placed by the core. */
	if (t && (t->server || t->want || t->home))
		return prev_cpu;
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	if (idle) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, 0);
		return cpu;
	}
	/* The waker is about to sleep and nobody waits for a CPU: its place is free in a moment. */
	if ((wake_flags & SCX_WAKE_SYNC) && unreserved() && !shell->ob.best_effort.root) {
		here = bpf_get_smp_processor_id();
		if ((cpus_of(p) & OB_BIT(here)) &&
		    !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | here)) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, 0);
			return here;
		}
	}
	return cpu;
}

void BPF_STRUCT_OPS(onbeat_enqueue, struct task_struct *p, u64 enq_flags)
{
	ob_task_p t = task_of(p);
	u64 now, cpus;

	USE_ARENA();
	/* Kernel threads of one CPU serve interrupts and the like: at once. */
	if (is_bound(p)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, BE_SLICE, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	if (!t) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, BE_SLICE, enq_flags);
		return;
	}
	now = bpf_ktime_get_ns();
	cpus = cpus_of(p);
	LOCKED(fx)
	{
		t->cpus = cpus;
		if (t->want)
			thread_join(t, now);
		ob_ready(&shell->ob, t, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
		return;
	}
	/* Without the lock the core does not know of it: any CPU may have it. */
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, BE_SLICE, enq_flags);
}

void BPF_STRUCT_OPS(onbeat_dequeue, struct task_struct *p, u64 deq_flags)
{
	ob_task_p t = task_of(p);

	USE_ARENA();
	/* From Linux 7.1 on also called for every thread that goes to a CPU, `picked` then. */
	if (!t || !t->waiting)
		return;
	LOCKED(fx)
	{
		ob_unqueue(&shell->ob, t);
		UNLOCK(fx);
		effects_apply(&fx, 0);
	}
}

/*
 * Linux 7.2 asks, when an idle CPU takes up a task in ops.dispatch, to skip the clock's update at
 * the *next* switch (local_dsq_post_enq calls wakeup_preempt), and what the task has used since the
 * last tick is then booked to nobody. A switch that changes nothing takes the request away. (After
 * a thread of another class it is needless, and seldom.)
 */
static __always_inline void settle_clock(s32 cpu)
{
	scx_bpf_kick_cpu(cpu, 0);
}

/*
 * Between a CPU's leaving cpu_active_mask and ops.cpu_offline the kernel waits for a grace period.
 * What is dispatched to the CPU meanwhile from another's run queue lands in the global queue, which
 * a busy machine does not look at.
 */
extern const void __cpu_active_mask __ksym;

static __always_inline bool is_leaving(s32 cpu)
{
	u64 active = 0;

	if (bpf_probe_read_kernel(&active, sizeof(active), &__cpu_active_mask))
		return false;
	return !(active & OB_BIT(cpu));
}

void BPF_STRUCT_OPS(onbeat_dispatch, s32 cpu, struct task_struct *prev)
{
	ob_task_p pt = NULL;
	u64 now;
	u32 try;

	USE_ARENA();
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && !is_bound(prev))
		pt = task_of(prev);
	if (pt && !pt->server)
		charge_share(prev, pt);
	now = bpf_ktime_get_ns();
	for (try = OB_ZERO; try < 8 && can_loop; try++) {
		struct task_struct *p;
		ob_task_p t = NULL;
		u64 tid = 0, slice = BE_SLICE;

		LOCKED(fx)
		{
			if (!shell->ob.engaged) {
				t = (ob_task_p)ob_pick_unreserved(&shell->ob, cpu, pt, now);
			} else {
				if (shell->ob.alarm_at <= now)
					ob_alarm(&shell->ob, now);
				t = (ob_task_p)ob_pick(&shell->ob, cpu, pt, now);
			}
			if (t) {
				tid = t->payload;
				if (t->server)
					slice = SCX_SLICE_INF;
			}
			UNLOCK(fx);
			effects_apply(&fx, now);
		}
		if (!t)
			return;
		if (t == pt) {
			scx_bpf_task_set_slice(prev, slice);
			return;
		}
		bpf_rcu_read_lock();
		p = scx_bpf_tid_to_task(tid);
		if (p && (cpus_of(p) & OB_BIT(cpu))) {
			if (scx_bpf_task_cpu(p) != cpu && is_leaving(cpu)) {
				bpf_rcu_read_unlock();
				LOCKED(fx)
				{
					ob_online(&shell->ob, cpu, 0, now);
					ob_ready(&shell->ob, t, now);
					UNLOCK(fx);
					effects_apply(&fx, now);
				}
				return;
			}
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, 0);
			bpf_rcu_read_unlock();
			if (!prev && shell->ob.engaged)
				settle_clock(cpu);
			return;
		}
		bpf_rcu_read_unlock();
		/* It went away or may no longer run here: it comes back through enqueue. */
	}
}

void BPF_STRUCT_OPS(onbeat_running, struct task_struct *p)
{
	ob_task_p t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	ob_cpu_p c;
	u64 now;

	USE_ARENA();
	if (!t || is_bound(p))
		return;
	t->ran = p->se.sum_exec_runtime;
	c = &shell->ob.cpu[cpu & 63];
	t->running = 1;
	/* `assign` looks at `running` after it has set `want`, this the other way round. */
	full_barrier();
	if (!t->server && !t->want && !tracing && !c->share) {
		ob_p ob = &shell->ob;

		/* Nothing here needs the lock: the fields are this CPU's and this thread's own. */
		t->awake = 1;
		t->picked = 0;
		t->cpu = cpu;
		ob_share_begin(ob, t);
		if (c->key == OB_KEY_IDLE) {
			c->key = OB_KEY_BE;
			__sync_fetch_and_and(&ob->idle, ~OB_BIT(cpu));
		}
		/* A reservation came while this thread was on its way to what was an idle CPU. */
		if (ob->engaged && c->key > OB_KEY_SHARE && c->domain->active.root &&
		    (c->domain->active.root->sub_mask & OB_BIT(cpu)))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		if (t->want)
			thread_join(t, now);
		if (!t->awake)
			ob_ready(&shell->ob, t, now);
		ob_unqueue(&shell->ob, t);
		ob_run(&shell->ob, cpu, t, now);
		check_place(t, cpu);
		if (t->server)
			ob_server_requeue(&shell->ob, t->server);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

void BPF_STRUCT_OPS(onbeat_stopping, struct task_struct *p, bool runnable)
{
	ob_task_p t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now;

	USE_ARENA();
	if (!t)
		return;
	if (!t->server)
		charge_share(p, t);
	if (shell->ob.cpu[cpu & 63].curr != t) {
		/* `assign` keeps off until it is asleep. */
		if (runnable)
			t->running = 0;
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_stop(&shell->ob, cpu, runnable ? OB_STOP_PREEMPTED : OB_STOP_SLEPT, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

void BPF_STRUCT_OPS(onbeat_quiescent, struct task_struct *p, u64 deq_flags)
{
	ob_task_p t = task_of(p);
	u64 now;

	USE_ARENA();
	if (!t)
		return;
	if (!(deq_flags & SCX_DEQ_SLEEP)) {
		t->running = 0;
		return;
	}
	/* Before `awake` is touched without the lock `assign` must keep off. */
	t->running = 1;
	full_barrier();
	if (!t->server) {
		t->awake = 0;
		full_barrier();
		t->running = 0;
		return;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_sleep(&shell->ob, t, now);
		t->running = 0;
		UNLOCK(fx);
		/* This CPU is about to pick anyway. */
		fx.kick &= ~OB_BIT(scx_bpf_task_cpu(p));
		effects_apply(&fx, now);
	}
}

bool BPF_STRUCT_OPS(onbeat_yield, struct task_struct *from, struct task_struct *to)
{
	ob_task_p t = task_of(from);
	u64 now;

	USE_ARENA();
	if (!t)
		return false;
	if (!t->server) {
		scx_bpf_task_set_slice(from, 0);
		return false;
	}
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		ob_mark(&shell->ob, t, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
	return false;
}

/* A net under the timers: the tick looks at budgets too. And a thread that was asked to join or
 * leave a reservation while it runs may run on without a switch: it does so here. */
void BPF_STRUCT_OPS(onbeat_tick, struct task_struct *p)
{
	ob_task_p t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now, slice = BE_SLICE;

	USE_ARENA();
	if (t && t->want && !is_bound(p)) {
		now = bpf_ktime_get_ns();
		LOCKED(fx)
		{
			ob_stop(&shell->ob, cpu, OB_STOP_PREEMPTED, now);
			thread_join(t, now);
			ob_run(&shell->ob, cpu, t, now);
			check_place(t, cpu);
			if (t->server)
				slice = SCX_SLICE_INF;
			UNLOCK(fx);
			effects_apply(&fx, now);
			t->ran = p->se.sum_exec_runtime;
			scx_bpf_task_set_slice(p, slice);
		}
		return;
	}
	if (!shell->ob.cpu[cpu & 63].curr) {
		/* A reservation may have been sent to a CPU that another class then took. */
		ob_node_p root = shell->ob.cpu[cpu & 63].domain->active.root;

		if (root && (root->sub_mask & OB_BIT(cpu)))
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	now = bpf_ktime_get_ns();
	if (now < shell->ob.cpu[cpu & 63].timer)
		return;
	LOCKED(fx)
	{
		ob_tick(&shell->ob, cpu, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

void BPF_STRUCT_OPS(onbeat_set_weight, struct task_struct *p, u32 weight)
{
	ob_task_p t = task_of(p);

	USE_ARENA();
	if (t)
		t->weight = weight;
}

/* The thread joins this class. */
void BPF_STRUCT_OPS(onbeat_enable, struct task_struct *p)
{
	ob_task_p t = task_stored(p);

	USE_ARENA();
	scx_bpf_task_set_dsq_vtime(p, (u64)t);
	if (t)
		t->weight = p->scx.weight;
}

/* The thread leaves this class, for a real-time one perhaps: its job is done for us. */
void BPF_STRUCT_OPS(onbeat_disable, struct task_struct *p)
{
	ob_task_p t = task_stored(p);
	u64 now;

	USE_ARENA();
	if (!t)
		return;
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		if (shell->ob.cpu[t->cpu & 63].curr == t)
			ob_stop(&shell->ob, t->cpu, OB_STOP_SLEPT, now);
		ob_sleep(&shell->ob, t, now);
		t->running = 0;
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(onbeat_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct thread *th = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	ob_task_p t = NULL, parent = NULL;

	USE_ARENA();
	if (!th)
		return -ENOMEM;
	th->core = 0;
	if (args->fork)
		parent = task_stored(bpf_get_current_task_btf());
	LOCKED(fx)
	{
		t = shell->free;
		if (t)
			shell->free = t->next;
		UNLOCK(fx);
		effects_apply(&fx, 0);
	}
	if (!t) {
		__sync_fetch_and_add(&shell->pool_empty, 1);
		return 0;
	}
	t->next = NULL;
	t->prev = NULL;
	t->server = NULL;
	t->home = NULL;
	t->node.linked = 0;
	t->tid = p->pid;
	t->payload = p->scx.tid;
	t->want = 0;
	t->ran = p->se.sum_exec_runtime;
	t->cpus = cpus_of(p);
	t->weight = p->scx.weight ?: 100;
	t->vtime = shell->ob.vtime;
	t->cpu = scx_bpf_task_cpu(p);
	t->awake = 0;
	t->waiting = 0;
	t->running = 0;
	t->picked = 0;
	t->rotated = 0;
	t->kernel = !!(p->flags & PF_KTHREAD);
	/* A reservation covers the program's threads and children. */
	if (parent && !(p->flags & PF_KTHREAD)) {
		if (parent->want)
			t->want = parent->want;
		else if (parent->server)
			t->want = reservation_name(parent->server);
		else if (parent->home)
			t->want = reservation_name(parent->home);
	}
	th->core = (u64)t;
	return 0;
}

void BPF_STRUCT_OPS(onbeat_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct thread *th = bpf_task_storage_get(&threads, p, 0, 0);
	ob_task_p t;
	u64 now;

	USE_ARENA();
	if (!th || !th->core)
		return;
	t = (ob_task_p)th->core;
	th->core = 0;
	now = bpf_ktime_get_ns();
	LOCKED(fx)
	{
		if (shell->ob.cpu[t->cpu & 63].curr == t)
			ob_stop(&shell->ob, t->cpu, OB_STOP_EXITED, now);
		ob_sleep(&shell->ob, t, now);
		ob_attach(&shell->ob, t, NULL, now);
		t->next = shell->free;
		shell->free = t;
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

static __always_inline void online(s32 cpu, u32 on)
{
	u64 now = bpf_ktime_get_ns();

	LOCKED(fx)
	{
		ob_online(&shell->ob, cpu, on, now);
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
}

void BPF_STRUCT_OPS(onbeat_cpu_online, s32 cpu)
{
	USE_ARENA();
	online(cpu, 1);
}

void BPF_STRUCT_OPS(onbeat_cpu_offline, s32 cpu)
{
	USE_ARENA();
	online(cpu, 0);
}

static int timer_fired(void *map, u32 *slot, struct timer_slot *ts)
{
	u64 now = bpf_ktime_get_ns(), at, next = OB_NEVER;
	u32 cpu = *slot;

	USE_ARENA();
	at = shell->armed[cpu & 127];
	shell->armed[cpu & 127] = OB_NEVER;
	LOCKED(fx)
	{
		if (cpu == ALARM_SLOT) {
			ob_alarm(&shell->ob, now);
			next = shell->ob.alarm_at;
		} else {
			if (shell->ob.cpu[cpu & 63].timer <= now) {
				ob_tick(&shell->ob, cpu, now);
				shell->ticks++;
				if (now > at && now - at > shell->late_max)
					shell->late_max = now - at;
			}
			next = shell->ob.cpu[cpu & 63].timer;
		}
		UNLOCK(fx);
		effects_apply(&fx, now);
	}
	if (next != OB_NEVER)
		timer_set(cpu, next, now);
	if (measuring)
		__sync_fetch_and_add(&shell->ticks_ns, bpf_ktime_get_ns() - now);
	return 0;
}

/*
 * PREEMPT_RT: instead of timers, every CPU looks at its clock each 100 µs. Programs of this type
 * may not take the lock: the CPU is made to pick again, which sees to budgets and replenishments.
 */
SEC("perf_event")
int clock_event(struct bpf_perf_event_data *ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now = bpf_ktime_get_ns();

	USE_ARENA();
	if (shell && (shell->ob.cpu[cpu & 63].timer <= now || shell->ob.alarm_at <= now))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

#include "requests.bpf.h"

s32 BPF_STRUCT_OPS_SLEEPABLE(onbeat_init)
{
	u32 i;

	USE_ARENA();
	if (!use_timers)
		return 0;
	for (i = OB_ZERO; i <= ALARM_SLOT && can_loop; i++) {
		u32 key = i;
		struct timer_slot *ts = bpf_map_lookup_elem(&timers, &key);

		if (!ts)
			return -ENOENT;
		bpf_timer_init(&ts->timer, &timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&ts->timer, timer_fired);
	}
	return 0;
}

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
	       .cpu_offline = (void *)onbeat_cpu_offline, .init = (void *)onbeat_init,
	       .exit = (void *)onbeat_exit,
	       .flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED |
			SCX_OPS_ALLOW_QUEUED_WAKEUP | SCX_OPS_TID_TO_TASK,
	       .timeout_ms = 10000, .name = "onbeat");
