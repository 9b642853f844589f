/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The event schema, shared by every world. Layout and numbers are mirrored in model/src/event.rs;
 * a test holds the two together. `docs/events.md` explains each kind.
 */
#ifndef OB_EVENT_H
#define OB_EVENT_H

enum ob_event_kind {
	OB_EV_RELEASE = 1,
	OB_EV_COMPLETE = 2,
	OB_EV_RUN = 3,
	OB_EV_STOP = 4,
	OB_EV_ACTIVATE = 5,
	OB_EV_IDLE = 6,
	OB_EV_EXHAUST = 7,
	OB_EV_REPLENISH = 8,
	OB_EV_THROTTLE = 9,
	OB_EV_DONATE = 10,
	OB_EV_BONUS = 11,
	OB_EV_RESTORE = 12,
	OB_EV_SHARE = 13,
	OB_EV_ONLINE = 14,
	OB_EV_LOST = 15,
	OB_EV_USAGE = 16,
	OB_EV_BLOCK = 17,
	OB_EV_UNBLOCK = 18,
	OB_EV_LOCK = 19,
	OB_EV_UNLOCK = 20,
	OB_EV_SEGMENT = 21,
	OB_EV_ABORT = 22,
	OB_EV_WAKE = 23,
	OB_EV_PLAN = 24,
	OB_EV_LEND = 25,
	OB_EV_BESTEFFORT = 26,
};

/* Why a task stopped (OB_EV_STOP, field a). */
enum ob_stop {
	OB_STOP_PREEMPTED = 0,
	OB_STOP_SLEPT = 1,
	OB_STOP_THROTTLED = 2,
	OB_STOP_EXITED = 3,
};

struct ob_event {
	u64 time; /* ns */
	u32 kind;
	u32 cpu;    /* ~0: none */
	u32 task;   /* thread id; ~0: none */
	u32 server; /* reservation id; ~0: none */
	u64 a;
	u64 b;
};

#endif
