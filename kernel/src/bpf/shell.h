/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the shell keeps in the arena beside the core's model, and what the service may ask for.
 * Shared with the loader, which lays the arena out before the scheduler is attached.
 */
#ifndef SHELL_H
#define SHELL_H

#include "ob_types.h"

/* The thread that was picked for a CPU: how the kernel knows it, and for how long it may run, ns.
 */
struct shell_found {
	u64 tid;
	u64 slice;
};

/* A reservation is to be made, of `terms`, as a member of group `up`; -1: of none. */
struct shell_reserve {
	s32 id; /* out: reservation, or negative errno */
	s32 up;
};

/* Thread `tid` is to join reservation `id`, -1: none. */
struct shell_assign {
	struct ob_task OB_ARENA *task; /* the thread to the core, and ... */
	u64 payload;                   /* ... to the kernel: `ask` looks them up */
	s32 tid;                       /* 0: both are given */
	s32 id;
	s32 result; /* out: 0 done, 1 at the next switch (the thread runs now), or negative errno */
};

/* Reservation `id` is to move to where `terms` say, or to be split; its account's rate is theirs
 * from now on. With `swap` it has their rule and order from now on, too. */
struct shell_place {
	s32 id;
	u32 swap;
};

/* Reservation `id`, which is not split, has another budget and period from its next period on. */
struct shell_resize {
	s32 id;
	u32 pad;
	u64 budget;
	u64 period;
};

/* `cpus` are one domain from now on. */
struct shell_regroup {
	u64 cpus;
};

/* Best effort has order number `order` from now on: of the threads' pool, from number `from` on,
 * SHELL_STEP are put where that has them. */
struct shell_reorder {
	u32 order;
	u32 from;
};

/* Slots that one such request goes through. */
enum shell_step { SHELL_STEP = 256 };

/* Reservation `id` is to go: -EBUSY until its threads have left; it takes no more. One that `stays`
 * keeps its place without any, and -EBUSY leaves it as it is. */
struct shell_release {
	s32 id;
	s32 result;
	u32 stays;
	u32 pad;
};

enum shell_kind {
	SHELL_RESERVE = 0,
	SHELL_ASSIGN = 1,
	SHELL_PLACE = 2,
	SHELL_RELEASE = 3,
	SHELL_REGROUP = 4,
	SHELL_REORDER = 5,
	SHELL_RESIZE = 6,
	SHELL_CLOCK = 7, /* nothing but shell->clock, at once */
};

/* How far a request has come. */
enum shell_asked {
	SHELL_ANSWERED = 0, /* or there is none */
	SHELL_NEW = 1,      /* `ask` is to look at it */
	SHELL_ASKED = 2,    /* a timer, or PREEMPT_RT's next pick, is to carry it out */
	SHELL_TAKEN = 3,    /* it does */
};

/* Whether the timers can be used. */
enum shell_timers {
	SHELL_TIMERS_NONE = 0,
	SHELL_TIMERS_BEGUN = 1,
	SHELL_TIMERS_MADE = 2,
};

/* What is asked for; the part that `kind` names counts. */
struct shell_request {
	struct shell_reserve reserve;
	struct shell_place place;
	struct shell_assign assign;
	struct shell_release release;
	struct shell_regroup regroup;
	struct shell_reorder reorder;
	struct shell_resize resize;
	u32 kind;
	s32 result; /* out: 0, or negative errno: it could not be done at all */
};

/* All of it lies at the start of the arena; pools follow, their addresses are here. */
struct shell {
	struct ob ob;
	u32 lock; /* 1: held */
	u32 pad;
	u64 bound;                          /* CPUs that run who goes ahead (is_ahead) */
	u64 gone;                           /* CPUs that have, of which the core is to learn */
	struct ob_task OB_ARENA *tasks;     /* pool */
	struct ob_beats OB_ARENA *beats;    /* pool, one for each task */
	struct ob_task OB_ARENA *free;      /* free ones, linked by `next` */
	struct ob_task OB_ARENA *leavers;   /* that have left this class, linked by `leaver` */
	struct ob_server OB_ARENA *servers; /* pool; index is the id */
	struct ob_server OB_ARENA *vacant;  /* free ones, linked by `next`, ... */
	struct ob_server OB_ARENA *freed; /* ... and the last of them, freed last; null: none is */
	u64 nr_tasks;
	u64 nr_servers;
	u64 armed[2 * OB_MAX_CPUS]; /* when each timer fires, or before (timer_set) */
	u64 alarm;                  /* when somebody calls ob_alarm, or before (alarm_set) */
	u64 doubted;                /* until then not the interrupt CPU: it has been late */
	u64 exile_ends; /* when a short turn on the interrupt CPU does; 0: there is none */
	u64 kept;       /* 1: the interrupt CPU is to set its timer for the alarm */
	struct shell_found found[OB_MAX_CPUS];
	struct ob_terms terms; /* the loader's, for the next `reserve` or `place` */
	struct shell_request request;
	u64 clock;  /* out: what the clock of wake-ups said when `ask` was called last */
	u32 asked;  /* enum shell_asked: how far that has come */
	u32 timers; /* enum shell_timers */
	/* Counters. */
	u64 pool_empty; /* threads that found no slot and run without the core */
	u64 lock_failed;
	u64 kicks;
	u64 timer_short;  /* the last start of one failed */
	u64 timer_failed; /* a timer could not be set at once */
	u64 ticks;
	u64 ticks_ns; /* they took; counted while measuring */
	u64 late_max; /* ns, worst delay of a timer */
};

#endif
