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

/* Gives the reservation back and frees the handle; NULL is fine. Ending the process does, too. */
int onbeat_release(struct onbeat *onbeat);

/* What went wrong in this thread's last call that failed. Valid until its next failure. */
const char *onbeat_message(void);

#ifdef __cplusplus
}
#endif

#endif /* ONBEAT_H */
