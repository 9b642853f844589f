/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The model: task (one thread), server (one reservation, any number of threads), domain (the CPUs
 * that share one queue) and CPU. A job is one release: it begins when a server's first thread
 * wakes and ends when the last one sleeps, or where the program marks it.
 *
 * Times are nanoseconds of one monotonic clock; budgets are signed, for enforcement can be late
 * and what was overdrawn is paid back.
 */
#ifndef OB_TYPES_H
#define OB_TYPES_H

#include "ob_terms.h"
#include "ob_event.h"
#include "ob_beat.h"

/* What a server, or a domain, may wait for that comes by itself (ob_due.h), in the order in which
 * it is seen to. */
enum ob_due_kind {
	OB_DUE_WINDOW = 0,   /* split: the end of its window (EDF-WMR) */
	OB_DUE_SPENT = 1,    /* the next budget of one that lives on slack */
	OB_DUE_REFILL = 2,   /* a throttled one's next budget */
	OB_DUE_LAXITY = 3,   /* EDZL: the end of its laxity */
	OB_DUE_PATIENCE = 4, /* the end of its patience (ob_patience.h) */
	OB_DUE_REVIEW = 5,   /* a demoted one is looked at (ob_account.h) */
	OB_DUE_LOOK = 6,     /* a domain's slack is looked at (ob_slack.h) */
	OB_DUE_COUNT,
};

struct ob_due {
	struct ob_node node;  /* in ob->due */
	u64 at[OB_DUE_COUNT]; /* instants; 0: none */
};

/* What state a server is in. */
enum ob_state {
	OB_IDLE = 0,  /* it has no job */
	OB_READY = 1, /* it has one, and stands in its domain's queue */
	OB_RESTS = 2, /* it has one, and waits for its next budget in no queue */
};

struct ob_server;
struct ob_domain;
struct ob_account;

struct ob_task {
	struct ob_node node;               /* in ob->best_effort while it waits there */
	struct ob_server OB_ARENA *server; /* null: best effort */
	struct ob_server OB_ARENA *home;   /* whose thread it is while shut out of server's CPUs */
	struct ob_task OB_ARENA *next;     /* in the server's list of waiting threads */
	struct ob_task OB_ARENA *prev;
	u64 cpus;     /* where it may run now */
	u64 may;      /* affinity: inside the kernel it may be bound more narrowly for a moment */
	u64 weight;   /* OB_WEIGHT is nice 0 */
	u64 vtime;    /* best-effort service received, weighted */
	u64 burst;    /* CPU time it uses from waking to sleeping, as best effort; a guess, ns */
	u64 used;     /* CPU time used since it woke, as best effort, ns */
	u64 due;      /* BeRate: its deadline, virtual time, ... */
	u64 expires;  /* ... which holds until `used` is that; 0: none yet */
	u64 beat;     /* BEST: when it last woke for a job, ... */
	u64 interval; /* ... the average time between such, ns, 0: not known; ... */
	u64 varies;   /* ... by how much that varies; ... */
	u64 aim;      /* ... its key, if it is taken to beat, else 0, ... (BeRate: by when its part
		       * of the clock would have yielded what it had) */
	u64 until;    /* ... while `used` is less; 0: not known since it woke */
	u64 turn; /* service in its present turn among its siblings, without what it now gets, ns */
	/* The shell's own: what it needs to find the thread again, the reservation the thread is to
	 * join, the thread's CPU time when it began to run, by when what it has had ahead of all
	 * others has come to its part of the time, and where its wake-ups are noted. */
	u64 payload;
	u64 want;
	u64 ran;
	u64 ahead;
	ob_beats_p beats;
	struct ob_task OB_ARENA *leaver; /* the next that has left the shell's class */
	u32 tid;
	u32 cpu;     /* where it runs or last ran */
	u32 running; /* or is just being dealt with without the lock (ob_unlocked.h) */
	u8 awake;    /* between waking and sleeping */
	u8 waiting;  /* queued: in a server's list or in the best-effort tree */
	u8 picked;   /* taken from its queue, not yet running */
	u8 kernel;   /* one of the kernel's own threads */
	u8 away;     /* best effort for a turn; its reservation (home) counts it as awake */
	u8 told;     /* 1 + the CPU of the thread that has woken it; 0: an interrupt has */
	u8 notable;  /* counted in ob->notable */
	u32 parts;   /* that it counts in ob->ahead while it waits, ... */
	u64 at;      /* ... in virtual time */
	/* The shell's: its program has completed the job, which the next pick is to be told; it has
	 * left the class, stands in the list of those that have, and is no more. */
	u8 completes;
	u8 leaves;
	u8 listed;
	u8 gone;
	u8 heard;  /* BEST: wake-ups by which its rhythm is judged, at most OB_BEST_TRIED */
	u8 placed; /* which order of best effort has put it where it waits or last waited */
};

/* Periods of which a reservation's work is known; a power of two. */
enum ob_work_size { OB_WORKS = 32 };

/* What made a job late (ob_blame.h). */
enum ob_cause {
	OB_CAUSE_BUDGET = 0,      /* its budget, or that of the job before, was used up */
	OB_CAUSE_BLOCKED = 1,     /* it slept in its midst */
	OB_CAUSE_RESERVATION = 2, /* another one had the CPU, ... */
	OB_CAUSE_BEST_EFFORT = 3, /* ... best effort, ... */
	OB_CAUSE_REAL_TIME = 4,   /* ... or nobody whom the scheduler serves */
	OB_CAUSE_UNKNOWN = 5,
	OB_CAUSES = 8, /* room for so many */
};

struct ob_server {
	struct ob_node node;   /* in domain->active while it is ready */
	struct ob_due due;     /* what time alone changes */
	struct ob_node pledge; /* in domain->pledges, by deadline, if it lends */
	struct ob_node wait;   /* in ob->impatient, with turns to be had */
	struct ob_domain OB_ARENA *domain;
	struct ob_task OB_ARENA *head; /* waiting threads, first come first served */
	struct ob_task OB_ARENA *tail;
	struct ob_domain OB_ARENA *members; /* a group's; null: it serves threads (ob_group.h) */
	struct ob_purse OB_ARENA *purse;    /* what it takes counts there, too; or null */
	u64 cpus;                           /* CPUs of the domain that it may use */
	u64 budget;                         /* Q */
	u64 period;                         /* P */
	u64 deadline;                       /* D, relative */
	u64 value;                          /* of a job that ends in time (choose/) */
	s64 e;                              /* budget left */
	u64 s;                              /* server deadline, absolute */
	s64 saved_e;                        /* FCBS, cash: own pair, while another's is in use */
	u64 saved_s;
	u64 charged; /* until when running threads have been charged */
	u64 release; /* of the current job */
	u64 begun;   /* what had been consumed by then */
	u64 wont;    /* what its jobs used to need in a period, ns; 0: not known */
	u64 miss;    /* by how much that used to be wrong, ns */
	u64 share;   /* Q/P in 2^-OB_SHARE_BITS, if it is counted */
	u64 served;  /* until when it has run, or else when it woke or had a turn */
	u32 id;
	u32 kind;    /* enum ob_kind, the server's rules (policies/registry.h) */
	u32 order;   /* enum ob_order (orders/registry.h) */
	u32 place;   /* enum ob_placement (place/registry.h) */
	u32 level;   /* how many groups it is in, at most OB_DEPTH */
	u32 threads; /* that belong to it, awake or not; a group's: members */
	u32 awake;   /* threads between waking and sleeping; a group's: members that want service */
	u32 running;
	u32 waiting;
	u32 outwaited; /* turns that it is to have in best effort's time (ob_patience.h) */
	u32 pinned;    /* waiting threads whose affinity is narrower than cpus */
	u8 has_saved;
	u8 marks;                        /* the program marks its jobs: sleeping does not end one */
	u8 state;                        /* enum ob_state */
	u8 urgent;                       /* EDZL: no laxity is left */
	u32 generation;                  /* of the slot: how often it has been taken */
	struct ob_server OB_ARENA *next; /* a free slot: the next free one */
	u8 used;    /* slot: 0 free, 1 taken, 2 being released, takes no more threads */
	u8 counted; /* its share is in domain->bandwidth */
	u8 brief;   /* it is counted in ob->briefs */
	u8 held;    /* the last of its threads to wait may not go wherever it is served */
	u8 demoted; /* best effort's equal */
	u8 spent;   /* no budget is left until the next, only slack */
	u8 later;   /* its job runs on the budget of a later period */
	u8 late;    /* and did so no sooner than its deadline */
	u8 woke;    /* its job slept, and goes on with the pair that it had for waking */
	u8 soon;    /* EDZL: laxity ends within OB_MARGIN */
	u8 wants;   /* its group counts it as awake */
	u8 broke;   /* it rests because a purse is empty */
	u8 apart;   /* it has one CPU of several, where those of the rest are not served */
	u8 rank;    /* enum ob_rank, where a chooser has put it */
	u8 hard;    /* goes before those that are not (orders/hsb.h) */
	u8 draws;   /* it serves best effort in place of threads of its own (ob_draw.h) */
	u8 drawn;   /* a CPU has picked best effort for it, which does not run yet */
	u8 steady;  /* budgets in a row of which each was one job's (ob_cash.h) */
	u8 marked;  /* its job began with a mark, and may be none yet (ob_server_unbegin) */
	u64 marked_consumed; /* what had been consumed by then */
	u64 lends;           /* until when what its last job left is for others (ob_cash.h) */
	u64 lent;            /* what it has had of slack since its budget was used up, ns */
	u64 had;             /* and what of it is to come off its next budget, ns */
	u64 shift;           /* its deadlines are so much later (place/) */
	struct ob_windows windows;
	struct ob_account OB_ARENA *account; /* null: nobody keeps one */
	u64 rate;                            /* Q/P in 2^-OB_SHARE_BITS */
	u64 vtime;                           /* of a demoted one, as a best-effort thread's */
	s64 lag;                             /* behind best effort when it was demoted last, ns */
	/* Counters since the reservation was made. */
	u64 jobs;
	u64 misses;
	u64 tardiness_max;
	u64 tardiness_sum;
	u64 consumed;
	u64 exhaustions;
	u64 donated;
	u64 received;
	u64 slack; /* that it has lived on, but for `lent` */
	/* The measure of the promise (ob_owed.h): its window's end and what is left in it, what had
	 * been consumed when the last job ended; jobs owed, and late ones among them. */
	u64 owed_end;
	u64 owed_left;
	u64 owed_from;
	u64 owed;
	u64 owed_late;
	u64 owed_tardiness_max;
	/* The work of its last periods (ob_work.h): when that of the present one began, what had
	 * been consumed by then, when a job ended last; periods noted so far, and their CPU time.
	 */
	u64 work_since;
	u64 work_from;
	u64 work_until;
	u32 work[OB_WORKS];
	u32 works;
	/* Why its jobs were late (ob_blame.h): of its job, ns lost to each cause, the longest time
	 * at a stretch behind a reservation, and which; of all late jobs how many for each cause,
	 * and behind which reservation the last of those was. */
	u32 behind;
	u64 waits; /* when it ran last, or else woke */
	u64 lost[OB_CAUSES];
	u64 longest;
	u32 late_for[OB_CAUSES];
	u32 late_by;
	u32 dry; /* its job has been without budget */
};

/* What a user's reservations may take ahead of best effort (ob_account.h). */
struct ob_account {
	u64 rate;     /* it is paid that, 2^-OB_SHARE_BITS CPUs; 0: it is not limited */
	u64 admitted; /* Q/P of its reservations, likewise */
	u64 since;    /* until when it has been paid */
	s64 has;      /* ns; below 0: owes */
	s64 unused;   /* of late by its reservations, ns; below 0: used ahead */
	u64 bill;     /* what is being paid, ns */
	u64 charged;  /* of each of its threads that run until when it has been charged: the sum */
	u32 running;  /* those */
	u32 id;
	u32 count; /* of the first: no account has a greater number */
};

/* What a CPU does, as far as the best-effort share is concerned. */
enum ob_use {
	OB_USE_OTHER = 0,    /* best effort or nothing */
	OB_USE_RESERVED = 1, /* a reservation */
	OB_USE_SWITCH = 2,   /* it changes over to a reservation */
};

/* What a look at the slack of a domain sums up on its way through the pledges (ob_slack.h). */
struct ob_sums {
	u64 cpus;   /* on line, and not for those that are apart */
	s64 ahead;  /* that best effort has been paid ahead there; below 0: is owed */
	u64 shares; /* of the servers so far, 2^-OB_SHARE_BITS */
	s64 owed;   /* budgets left of the servers so far */
	s64 since;  /* their shares times the time to their deadlines */
	s64 forced; /* of the budgets due later, what must be served by then */
	s64 near;   /* budgets left of those due later that may count in that */
	struct ob_node OB_ARENA *past; /* the first pledge that does not count in `near` yet */
	u64 pairs;                     /* that have been compared for it */
	s64 least;                     /* gap so far */
	u64 fresh;  /* when a new job could be due at first, ns from now; OB_NEVER: done */
	u64 claims; /* servers that stand elsewhere than by their own pair */
};

struct ob_domain {
	struct ob_tree active;         /* servers that are ready, by key */
	struct ob_server OB_ARENA *up; /* the group whose members they are; null: it has CPUs */
	struct ob_due due;             /* when its slack must be looked at again */
	u64 cpus;
	s64 bonus;              /* FCBS: B */
	u64 bonus_since;        /* FCBS: t_last */
	struct ob_tree pledges; /* servers that lend and have a deadline ahead, by it */
	u64 bandwidth;          /* of all servers that lend, 2^-OB_SHARE_BITS */
	u64 pledged;            /* of those in `pledges` */
	u64 shortest;           /* no relative deadline of theirs is shorter, ns */
	u64 largest;            /* no budget of theirs is larger, ns */
	u64 densest;            /* no share of theirs is larger, 2^-OB_SHARE_BITS */
	u64 looked;             /* when its slack was reckoned last */
	u32 uncounted;          /* servers whose demand is not known: there is no slack then */
	u32 split;              /* windows of split servers: sporadic ones, tested as such */
	struct ob_sums sum;     /* of the last look at its slack */
	u64 others;             /* CPUs on which best effort waits, if servers draw it */
	u8 tight;               /* there is no slack */
	u8 stale;               /* to be chosen from anew (choose/registry.h) */
};

/* Time of which a CPU remembers who had it (ob_blame.h); a power of two of them. */
enum ob_stretch_count { OB_STRETCHES = 8 };

struct ob_stretch {
	u64 from;
	u64 until;
	u32 had; /* a server; OB_NONE: best effort */
	u32 pad;
};

struct ob_cpu {
	struct ob_domain OB_ARENA *domain;
	struct ob_task OB_ARENA *curr;      /* null: idle, or a task the core was not told of */
	struct ob_server OB_ARENA *server;  /* of curr, if that runs on a reservation, ... */
	struct ob_server OB_ARENA *draws;   /* or best effort that was picked will (ob_draw.h) */
	struct ob_server OB_ARENA *stopped; /* drew for what was interrupted here */
	struct ob_server OB_ARENA *claim;   /* it has been kicked for, if it has been for one */
	u64 key;                            /* of what runs here or is about to */
	u64 timer;                          /* the shell calls ob_tick no later than this */
	s64 debt;    /* best-effort time owed on this CPU, ns; below 0: prepaid */
	u32 apart;   /* servers that are served here alone, apart from the domain's others */
	u64 owed;    /* of the quantum that is to be served by `due`, ns */
	u64 due;     /* deadline of that quantum */
	u64 wanted;  /* when work for it was last taken away, and none was left waiting */
	u64 since;   /* debt is right as of this time */
	u64 served;  /* until then reservations have had so much of it, ns */
	u64 started; /* when curr's turn began */
	u64 vtime;   /* of the best effort that it has served: never goes back */
	struct ob_task OB_ARENA
	    *other; /* the best-effort thread that has the CPU, or is to have it */
	u32 id;
	u32 stretches; /* that have been; the last is `past[stretches % OB_STRETCHES]` */
	u64 came;      /* when what runs began to, if that is known */
	struct ob_stretch past[OB_STRETCHES];
	u8 online;
	u8 share;  /* the guaranteed share is being served */
	u8 relief; /* best effort that has lost its patience runs in place of a spent server */
	u8 use;    /* what has run since `since`: enum ob_use */
};

/* A job that a chooser may choose. */
struct ob_choice {
	struct ob_node node; /* in `dense` if it may be chosen */
	struct ob_server OB_ARENA *server;
	struct ob_choice OB_ARENA *next; /* in its lane, by deadline */
	u64 left;                        /* what it still needs, ns */
	u64 due;                         /* its deadline */
	u64 rank;                        /* enum ob_rank */
};

/* What a chooser works on (choose/lane.h): the jobs of one queue, in the order of their servers
 * there. */
struct ob_plan {
	struct ob_choice job[OB_CHOOSE_MOST];
	struct ob_choice OB_ARENA *lane[OB_MAX_CPUS]; /* the first of each */
	struct ob_tree dense;                         /* jobs, by value for what they need */
	u64 jobs;
	u64 lanes;
	u32 order; /* enum ob_order */
};

struct ob {
	struct ob_tree best_effort; /* waiting best-effort tasks (ob_others.h) */
	u64 vtime;                  /* of the best-effort class: never goes back (ob_raise) */
	u64 origin;                 /* of the virtual times that are summed up, ... */
	s64 ahead;                  /* ... and by how much those who wait are ahead of it, in all */
	u64 parts;                  /* of which that is the sum */
	u64 notable; /* of those, who may be worth a look before a slice is over (ob_others_look) */
	u64 engaged; /* reservations that have threads */
	u64 online;
	u64 idle;     /* CPUs with nothing to run that nobody has been sent to yet (ob_idle_set) */
	u64 reserved; /* CPUs that run threads of reservations */
	/* Effects, collected during a call; the shell carries them out and clears them. */
	u64 kick;                 /* CPUs that must pick again */
	u64 rearm;                /* CPUs whose timer changed */
	u64 alarm_at;             /* the shell calls ob_alarm then */
	struct ob_tree due;       /* servers and domains, by what comes first (ob_due.h) */
	struct ob_tree impatient; /* servers without patience, by since when they wait */
	u64 outwaited;            /* turns these are to have */
	u64 share_ready;          /* CPUs that owe best-effort work a quantum */
	u64 share_quantum;        /* ns served at a time; 0: no share is guaranteed */
	u64 share_whole;          /* the same where no server is brief, ... */
	u64 briefs;               /* ... and how many are (ob_share.h) */
	u64 share_period;         /* a CPU owes one quantum in so long, ns */
	u64 share_permille;
	u64 slice; /* best-effort time slice, ns */
	u32 nr_cpus;
	u32 nr_domains;
	u32 others;   /* order of best effort, enum ob_others_order (others/registry.h) */
	u32 nr_draws; /* servers that draw, ... */
	struct ob_server OB_ARENA *draws[OB_MAX_CPUS]; /* ... and which these are */
	u64 lights;    /* ns that light threads, woken of late, will use (others/berate.h), ... */
	u64 lights_at; /* ... until then */
	/* Trace: a ring written here and read by user space. */
	struct ob_event OB_ARENA *ring;
	u64 ring_size; /* events, 0: no trace */
	u64 ring_head; /* written so far */
	u64 ring_tail; /* read so far: the reader's */
	u64 lost;
	u64 args[2]; /* of the event that is being written */
	struct ob_cpu cpu[OB_MAX_CPUS];
	struct ob_domain domain[OB_MAX_DOMAINS];
	struct ob_domain group[OB_MAX_GROUPS]; /* queues of groups */
	u64 groups;                            /* those that are taken */
	struct ob_account account[OB_MAX_ACCOUNTS];
	struct ob_purse purse[OB_MAX_PURSES];
	u64 purses;  /* there have been some */
	u64 crowded; /* how often a queue held too many to choose from */
	struct ob_plan plan;
};

typedef struct ob OB_ARENA *ob_p;
typedef struct ob_task OB_ARENA *ob_task_p;
typedef struct ob_server OB_ARENA *ob_server_p;
typedef struct ob_domain OB_ARENA *ob_domain_p;
typedef struct ob_cpu OB_ARENA *ob_cpu_p;
typedef struct ob_stretch OB_ARENA *ob_stretch_p;
typedef struct ob_account OB_ARENA *ob_account_p;
typedef struct ob_terms OB_ARENA *ob_terms_p;
typedef struct ob_due OB_ARENA *ob_due_p;
typedef struct ob_purse OB_ARENA *ob_purse_p;

/* The structure whose `member` is at `p`. */
#define OB_OF(type, member, p) \
	((struct type OB_ARENA *)((u64)(p) - __builtin_offsetof(struct type, member)))

OB_INLINE ob_cpu_p ob_cpu(ob_p ob, u32 cpu)
{
	return &ob->cpu[cpu & (OB_MAX_CPUS - 1)];
}

/* `cpus` have nothing to run. Under the lock. */
OB_INLINE void ob_idle_set(ob_p ob, u64 cpus)
{
	OB_SET_BITS(ob->idle, cpus);
}

/* `cpus` have, or somebody has been sent there; most often that is known. Without the lock only a
 * CPU itself says so: no bit of these is set meanwhile. */
OB_INLINE void ob_idle_clear(ob_p ob, u64 cpus)
{
	if (OB_READ(ob->idle) & cpus)
		OB_CLEAR_BITS(ob->idle, cpus);
}

#endif
