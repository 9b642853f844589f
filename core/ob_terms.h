/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many there can be, what keys mean, and what reservations and purses are made of. Times are
 * nanoseconds.
 */
#ifndef OB_TERMS_H
#define OB_TERMS_H

#include "ob_tree.h"

#define OB_MAX_CPUS 64
#define OB_MAX_DOMAINS 64
/* CPUs over which one reservation can be split. */
#define OB_MAX_LEGS 8
/* Groups of reservations at a time, and how many of them one reservation may be in, one inside the
 * other. */
#define OB_MAX_GROUPS 64
#define OB_DEPTH 6
/* Purses at a time, and amounts in one (ob_purse.h); a power of two. */
#define OB_MAX_PURSES 64
#define OB_SEGMENTS 4
/* Users who hold reservations at a time, the unlimited one included. */
#define OB_MAX_ACCOUNTS 64
/* Servers of one queue from which a chooser chooses (choose/registry.h), a power of two; with more
 * it goes by deadline. */
#define OB_CHOOSE_MOST 64
/* No job is worth more; what its budget is, ns, it is worth where nobody says. */
#define OB_VALUE_MOST (1ULL << 43)

/* Best-effort time slice, ns. */
#define OB_SLICE 4000000
/* Where a kernel's ticks end it: of 4 ms, one that begins just after a tick would see two. */
#define OB_SLICE_TICKS 3500000

/* Weight of nice 0 among best-effort threads. */
#define OB_WEIGHT 1024

/* Keys of what a CPU runs. Reservations have keys between these. */
#define OB_KEY_SHARE 0ULL  /* best-effort work in its guaranteed share: nothing goes before it */
#define OB_KEY_URGENT 1ULL /* and above, who has no laxity left: by deadline */
#define OB_KEY_SOON (1ULL << 61)  /* urgent in a moment */
#define OB_KEY_PLAIN OB_KEY_SOON  /* and above, all others: by deadline, or as the order says */
#define OB_KEY_EQUAL (1ULL << 63) /* and above, best effort's equals: by virtual time */
#define OB_KEY_BE (~0ULL - 1)
#define OB_KEY_IDLE (~0ULL)

/* How a reservation is placed (place/registry.h). */
enum ob_placement {
	OB_PLACE_WHOLE = 0,
	OB_PLACE_EARLY = 1,
	OB_PLACE_POSTPONED = 2,
};

/* Where a split reservation has which part of its budget (place/windows.h). */
struct ob_leg {
	u64 cpus;
	u64 budget;
	u64 domain;
};

/* A split reservation's windows (place/windows.h). */
struct ob_windows {
	u32 legs;    /* CPUs it is split over */
	u32 leg;     /* where it is now */
	u64 length;  /* of one leg's window */
	u64 cycle;   /* when the first window of this cycle begins */
	u32 starved; /* postponed: its share is used up until its window ends */
	u32 unbegun; /* a mark began its job, and it was none: its cycle is still to begin */
	struct ob_leg plan[OB_MAX_LEGS];
};

/* What a reservation is made of. Times in ns, 0 < budget ≤ deadline, budget ≤ period. */
struct ob_terms {
	u64 budget;
	u64 period;
	u64 deadline; /* relative */
	u64 cpus;     /* that it may use; if its domain has none of them, all of the domain's */
	u64 rate;     /* what its account may take ahead of best effort (ob_account_join) */
	u64 window;   /* split: length of one leg's window */
	u64 value;    /* of a job that ends in time; 0: its budget */
	u32 account;  /* OB_NO_ACCOUNT: nobody keeps one */
	u32 domain;
	u32 kind;      /* enum ob_kind */
	u32 order;     /* enum ob_order */
	u32 marks;     /* the program marks its jobs */
	u32 postponed; /* split: it changes CPUs at the ends of its windows only */
	u32 legs;      /* 0: not split */
	u32 group;     /* it serves reservations, not threads */
	u32 purse;     /* 0: none; else its slot and 1 */
	u32 anew;      /* swap: its pair of budget and deadline is not kept (ob_swap.h) */
	u32 hard;      /* it goes before those that are not, where the order ranks */
	u32 draws;     /* it serves best effort, and no threads of its own */
	u32 apart;     /* `cpus` is one CPU of its domain that serves such as it alone */
	struct ob_leg plan[OB_MAX_LEGS];
};

#define OB_NO_ACCOUNT 0xFFFFFFFFU

/* An amount of CPU time in a purse, available from `from` until `until` of each cycle, ns. */
struct ob_segment {
	u64 amount;
	u64 from;
	u64 until;
	u64 left;  /* in the cycle before `cycle` */
	u64 cycle; /* 0: none yet */
};

/* A budget that reservations share (ob_purse.h). Times in ns. */
struct ob_purse {
	struct ob_purse OB_ARENA *up; /* which it is a part of, or null */
	u64 period;                   /* of its cycles */
	u64 origin;                   /* when the first one begins */
	u64 charged;                  /* until when it has paid */
	u64 consumed;
	u32 running; /* threads that it pays for now */
	u32 count;   /* segments */
	struct ob_segment segment[OB_SEGMENTS];
};

#endif
