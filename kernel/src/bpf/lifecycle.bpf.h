/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Threads that come, change their class and go, and CPUs that do. Part of main.bpf.c.
 */
#ifndef LIFECYCLE_BPF_H
#define LIFECYCLE_BPF_H

/* Set by the loader: of threads of nice -20 and on, and of those of SCHED_IDLE. */
const volatile u32 weights[40];
const volatile u32 weight_idle;

/* scx.weight counts in hundredths of nice 0: those of the greatest niceness would all have 1. */
static __always_inline u64 weight_of(const struct task_struct *p)
{
	u32 nice = p->static_prio - 100;

	if (p->policy == 5 /* SCHED_IDLE */)
		return weight_idle;
	return nice < 40 ? weights[nice] : OB_WEIGHT;
}

void BPF_STRUCT_OPS(onbeat_set_weight, struct task_struct *p, u32 weight)
{
	ob_task_p t = task_of(p);

	USE_ARENA();
	if (t)
		t->weight = weight_of(p);
}

/* The thread joins this class. */
void BPF_STRUCT_OPS(onbeat_enable, struct task_struct *p)
{
	ob_task_p t = task_stored(p);

	USE_ARENA();
	scx_bpf_task_set_dsq_vtime(p, (u64)t);
	if (!t)
		return;
	t->weight = weight_of(p);
	t->leaves = 0;
}

/* The thread leaves this class. One that ends sleeps by now; one that goes to a real-time class
 * has a job that is done for us. The timer, or PREEMPT_RT's next pick, sees to that: with this,
 * too, the verifier would go through most of the core. */
void BPF_STRUCT_OPS(onbeat_disable, struct task_struct *p)
{
	ob_task_p t = task_stored(p);

	USE_ARENA();
	if (!t)
		return;
	LOCKED(fx)
	{
		if (t->awake || shell->ob.cpu[t->cpu & 63].curr == t) {
			t->leaves = 1;
			if (!t->listed) {
				t->listed = 1;
				t->leaver = shell->leavers;
				shell->leavers = t;
			}
			shell->ob.alarm_at = 0;
		} else {
			t->running = 0;
		}
		UNLOCK(fx);
		effects_apply(&fx);
	}
}

/* CPU time of the current thread, `t` of the core's, of which its virtual time does not know yet.
 */
static __always_inline u64 used_by(ob_task_p t)
{
	u64 all = bpf_get_current_task_btf()->se.sum_exec_runtime;

	return all > t->ran ? all - t->ran : 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(onbeat_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct thread *th = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	ob_task_p t = NULL, parent = NULL;
	ob_beats_p beats;

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
		effects_apply(&fx);
	}
	if (!t) {
		__sync_fetch_and_add(&shell->pool_empty, 1);
		return 0;
	}
	beats = t->beats;
	ob_beats_clear(beats);
	ob_task_make(t, p->pid, cpus_of(p), weight_of(p));
	t->may = p->cpus_mask.bits[0];
	t->beats = beats;
	t->payload = p->scx.tid;
	t->ran = p->se.sum_exec_runtime;
	ob_task_begin(&shell->ob, t, parent, parent ? used_by(parent) : 0);
	t->cpu = scx_bpf_task_cpu(p);
	t->kernel = !!(p->flags & PF_KTHREAD);
	/* A reservation covers the program's threads and children. */
	if (parent && !(p->flags & PF_KTHREAD)) {
		if (parent->want)
			t->want = parent->want;
		else if (parent->server)
			t->want = ob_name(parent->server);
		else if (parent->home)
			t->want = ob_name(parent->home);
	}
	th->core = (u64)t;
	return 0;
}

/* Comes after `disable`, if the thread was of this class. */
void BPF_STRUCT_OPS(onbeat_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct thread *th = bpf_task_storage_get(&threads, p, 0, 0);
	ob_task_p t;
	u64 vtime, weight;

	USE_ARENA();
	if (!th || !th->core)
		return;
	t = (ob_task_p)th->core;
	th->core = 0;
	vtime = t->vtime;
	weight = t->weight;
	LOCKED(fx)
	{
		/* `request` may have found it just before. */
		t->payload = 0;
		if (t->listed)
			t->gone = 1;
		else
			slot_free(t);
		UNLOCK(fx);
		effects_apply(&fx);
	}
	ob_task_end(&shell->ob, vtime, weight);
}

void BPF_STRUCT_OPS(onbeat_cpu_online, s32 cpu)
{
	u64 now = bpf_ktime_get_ns();

	USE_ARENA();
	__sync_fetch_and_and(&shell->gone, ~OB_BIT(cpu));
	if (interrupt_cpu >= 0 && cpu == interrupt_cpu)
		return;
	cpu_change(cpu, 1, now);
	/* The interrupt CPU served alone. */
	if (interrupt_cpu >= 0 && (shell->ob.online & OB_BIT(interrupt_cpu))) {
		__sync_fetch_and_or(&shell->gone, OB_BIT(interrupt_cpu));
		if (use_timers)
			alarm_set(now);
	}
}

/* The timer, or PREEMPT_RT's clock, is to tell the core: with this, too, the verifier would go
 * through most of it. */
void BPF_STRUCT_OPS(onbeat_cpu_offline, s32 cpu)
{
	USE_ARENA();
	__sync_fetch_and_or(&shell->gone, OB_BIT(cpu));
	if (use_timers)
		alarm_set(bpf_ktime_get_ns());
}

/* For the kernel's report of an error: what the core thinks of a thread. */
void BPF_STRUCT_OPS(onbeat_dump_task, struct scx_dump_ctx *dump, struct task_struct *p)
{
	ob_task_p t = task_of(p);
	ob_server_p sv;

	USE_ARENA();
	if (!t)
		return;
	scx_bpf_dump("core: cpu %u cpus %llx awake %d waiting %d running %d picked %d want %llx",
		     t->cpu, t->cpus, t->awake, t->waiting, t->running, t->picked, t->want);
	sv = t->server;
	if (!sv)
		return;
	scx_bpf_dump("core: reservation %u cpus %llx e %lld s %llu throttled %llu", sv->id,
		     sv->cpus, sv->e, sv->s, sv->due.at[OB_DUE_REFILL]);
	scx_bpf_dump("core: key %llx mask %llx waiting %u running %u served %llu outwaited %u",
		     sv->node.key, sv->node.mask, sv->waiting, sv->running, sv->served,
		     sv->outwaited);
}

#endif
