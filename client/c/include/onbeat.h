// SPDX-License-Identifier: GPL-2.0-only
/*
 * Onbeat for programs in C: a reservation of CPU time, and a beat to keep.
 *
 * Compile and link with what `pkg-config --cflags --libs onbeat-client` prints (-lonbeat_client). All
 * functions may be called from any thread; one handle is for one thread at a time. All times are
 * nanoseconds, on CLOCK_MONOTONIC where they are absolute.
 *
 * Functions return 0, or a negative errno:
 *   -ENOENT, -ECONNREFUSED, -EACCES  no reservation service at the socket (/run/onbeat/control.sock,
 *                                    or what the environment variable ONBEAT_SOCKET names)
 *   -EBUSY          the reservation does not fit; onbeat_message() says what would
 *   -EINVAL         the values make no sense
 *   -EREMOTEIO      the service could not do it; onbeat_message() says why
 *   -ETIMEDOUT, -EPROTO, -EIO        the conversation with the service failed
 *   -ENOTRECOVERABLE                 a mistake inside the library
 */
#ifndef ONBEAT_H
#define ONBEAT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A reservation of this process, its threads and children. */
struct onbeat;

/* What to reserve. Set everything not needed to zero. */
struct onbeat_params {
	const char *name;     /* for people, 1 to 64 printable characters */
	uint64_t budget_ns;   /* CPU time in every period */
	uint64_t period_ns;   /* 1 us to 1 h */
	uint64_t deadline_ns; /* relative deadline; 0 = the period */
	const uint32_t *cpus; /* CPUs it may use */
	size_t cpu_count;     /* 0 = all CPUs this process may use */
	int marks;            /* 1: the program says when a job is complete, see onbeat_job_done */
};

/* Makes a reservation and stores its handle in *out. The first period begins now. */
int onbeat_reserve(const struct onbeat_params *params, struct onbeat **out);

/*
 * Ends the present job, if any, and sleeps until the next release: the first call returns at
 * once. Releases are strictly periodic and none is dropped. *late_ns (may be NULL) becomes the
 * time since that release.
 */
int onbeat_wait_period(struct onbeat *onbeat, uint64_t *late_ns);

/*
 * For a reservation with marks: the calling thread's job is complete, the next one begins now or
 * when the thread next wakes up. onbeat_wait_period does it too.
 */
int onbeat_job_done(void);

/* What may become of a reservation without its program asking for it. */
enum onbeat_change {
	ONBEAT_UNCHANGED = 0,
	ONBEAT_LOST = 1,         /* the service has ended: reserve anew when it is back */
	ONBEAT_RELEASED = 2,     /* somebody has given it back */
	ONBEAT_SHRUNK = 3,       /* somebody has changed it: it has less of a CPU */
	ONBEAT_GROWN = 4,        /* or more */
	ONBEAT_UNGUARANTEED = 5, /* CPUs have gone: it may not get its budget in time */
	ONBEAT_GUARANTEED = 6    /* it does again */
};

/*
 * Waits for the next change of the reservation, at most so long (0: looks once): which, one of enum
 * onbeat_change, or a negative errno. What is lost or released is told at each call. The wait is one
 * call of the handle: a program that also waits for periods asks with 0 now and then.
 */
int onbeat_wait_change(struct onbeat *onbeat, uint64_t patience_ns);

/* Gives the reservation back and frees the handle; NULL is fine. Ending the process does, too. */
int onbeat_release(struct onbeat *onbeat);

/* What went wrong in this thread's last call that failed. Valid until its next failure. */
const char *onbeat_message(void);

#ifdef __cplusplus
}
#endif

#endif /* ONBEAT_H */
