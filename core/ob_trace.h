/* SPDX-License-Identifier: GPL-2.0-only */
/* The log of events: a ring that the core writes and user space reads. */
#ifndef OB_TRACE_H
#define OB_TRACE_H

#include "ob_types.h"

#define OB_NONE 0xFFFFFFFFULL
#define OB_KC(kind, cpu) (((u64)(kind) << 32) | (u32)(cpu))
#define OB_TS(task, server) (((u64)(task) << 32) | (u32)(server))

/* Writes an event with the arguments in ob->args; a full ring counts it as lost rather than
 * overwrite what was not read. */
OB_FN void ob_write(ob_p ob OB_ARG, u64 now, u64 kind_cpu, u64 task_server)
{
	struct ob_event OB_ARENA *ev;

	if (ob->ring_head - ob->ring_tail >= ob->ring_size) {
		ob->lost++;
		return;
	}
	ev = &ob->ring[ob->ring_head & (ob->ring_size - 1)];
	ev->time = now;
	ev->kind = (u32)(kind_cpu >> 32);
	ev->cpu = (u32)kind_cpu;
	ev->task = (u32)(task_server >> 32);
	ev->server = (u32)task_server;
	ev->a = ob->args[0];
	ev->b = ob->args[1];
	ob->ring_head++;
}

/* Tells the trace, if there is one. */
OB_INLINE void ob_emit(ob_p ob, u64 now, u64 kind_cpu, u64 task_server, u64 a, u64 b)
{
	if (!ob->ring_size)
		return;
	ob->args[0] = a;
	ob->args[1] = b;
	ob_write(ob, now, kind_cpu, task_server);
}

#endif
