/* SPDX-License-Identifier: GPL-2.0-only */
/* A reservation that is served by the CPUs of one domain: its deadlines are periods apart. */
#ifndef OB_PLACE_WHOLE_H
#define OB_PLACE_WHOLE_H

#include "../ob_server.h"

/*
 * The rule by which a constant bandwidth server takes up a new job at time t: if
 * e ≥ (s − t)·Q/P then s = t + P and e = Q, else both are kept (Abeni and Buttazzo 1998;
 * Kato, Ishikawa and Rajkumar, "CPU scheduling and memory management for interactive real-time
 * applications", section 4.1). With a relative deadline D below P the density Q/D decides, as
 * deadlines are t + D then. Compared as products, without division; above 2 s the low bits are
 * dropped alike on both sides so that the products fit 64 bits.
 */
OB_FN u64 ob_server_spares(ob_server_p sv OB_ARG, u64 left, u64 e)
{
	u64 d = sv->deadline, q = sv->budget;

	/* Products of two 42-bit numbers do not fit: drop low bits of all four alike. */
	while ((d >> 31 || left >> 31) && OB_LOOP) {
		d >>= 1;
		left >>= 1;
	}
	while ((q >> 31 || e >> 31) && OB_LOOP) {
		q >>= 1;
		e >>= 1;
	}
	return e * d >= left * q;
}

/* Whether the job that begins follows a mark: no sleep came before it, so its server goes on with
 * what it has. */
OB_INLINE int ob_server_goes_on(ob_server_p sv, u64 now)
{
	return sv->marked && sv->release == now;
}

/* Who is behind and marks a job goes on with its pair: one that began anew would be less than Q/P
 * from when the last one did. */
OB_INLINE int ob_server_stays(ob_server_p sv, u64 now)
{
	return ob_server_goes_on(sv, now) && sv->s > now && !sv->woke;
}

/*
 * The same beside split servers and for hard ones, while s lies ahead. Their CPU was tested for
 * sporadic tasks, exactly (Baruah, Rosier and Howell 1990), and the rule above asks for more in
 * intervals below P. So what is left after a sleep is due P later, and a new budget s + P: each
 * part of a budget has P of time, and no two whole ones begin within P. What is taken early at a
 * deadline that is due later harms nobody, so budgets come no later for that: `shift` is by how
 * much s is.
 */
OB_FN void ob_whole_sporadic(ob_p ob OB_ARG, ob_server_p sv OB_ARG, u64 now)
{
	u64 next = sv->s - ob_min(sv->deadline + sv->shift, sv->s) + sv->period;

	if (ob_server_goes_on(sv, now))
		return;
	/* Who wakes a little too soon begins anew. */
	if (now + sv->period / 8 >= next) {
		next = ob_max(now, next) + sv->deadline;
		sv->shift = sv->s + sv->period - ob_min(next, sv->s + sv->period);
		ob_server_set(ob, sv, now, (s64)sv->budget + (sv->e < 0 ? sv->e : 0),
			      sv->s + sv->period);
	} else if (sv->e > 0 && sv->s < now + sv->deadline) {
		sv->shift += now + sv->deadline - sv->s;
		ob_server_set(ob, sv, now, sv->e, now + sv->deadline);
	}
}

OB_INLINE void ob_whole_take_up(ob_p ob, ob_server_p sv, u64 now)
{
	if (ob_server_stays(sv, now))
		return;
	if (sv->s > now && (sv->domain->split || sv->hard)) {
		ob_whole_sporadic(ob, sv, now);
	} else if (sv->s <= now || (sv->e >= 0 && ob_server_spares(sv, sv->s - now, (u64)sv->e))) {
		sv->shift = 0;
		ob_server_set(ob, sv, now, (s64)sv->budget, now + sv->deadline);
	}
}

/* A job begins that nothing limits. */
OB_INLINE void ob_whole_fresh(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_set(ob, sv, now, (s64)sv->budget, now + sv->deadline);
}

/* e += Q, not e = Q: what enforcement let through late is paid back. */
OB_INLINE void ob_whole_next(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_set(ob, sv, now, sv->e + (s64)sv->budget, sv->s + sv->period);
}

OB_INLINE u64 ob_whole_rests_until(ob_server_p sv)
{
	return sv->s - sv->deadline - sv->shift + sv->period;
}

OB_INLINE void ob_whole_late(ob_p ob, ob_server_p sv, u64 now)
{
	if (sv->s > now)
		return;
	sv->shift = 0;
	ob_whole_fresh(ob, sv, now);
}

OB_INLINE u64 ob_whole_over(ob_server_p sv)
{
	return sv->s > sv->period ? sv->s - sv->period : 0;
}

OB_INLINE u64 ob_whole_waits(ob_server_p sv)
{
	return 0;
}

OB_INLINE void ob_whole_unbegin(ob_server_p sv)
{
}

/* Admission has divided it among all CPUs that serve it: bound to some of them it could ask more of
 * these than they have. */
OB_INLINE u64 ob_whole_shuts_out(ob_server_p sv, u64 cpus, u64 narrow)
{
	return !(sv->cpus & cpus) || (sv->cpus & narrow);
}

OB_INLINE void ob_whole_count(ob_p ob, ob_server_p sv, u32 by)
{
	ob_domain_p d = sv->domain;

	if (!sv->apart) {
		d->uncounted += by;
		return;
	}
	ob_cpu(ob, ob_lowest(sv->cpus | OB_BIT(63)))->apart += by;
	/* Slack reckoned with that CPU is void; the others are placed anew after this one. */
	d->tight = 1;
	if (d->due.at[OB_DUE_LOOK])
		ob_due_set(ob, &d->due, OB_DUE_LOOK, 1);
}

OB_INLINE void ob_whole_leave(ob_p ob, ob_server_p sv)
{
}

OB_INLINE void ob_whole_begin(ob_p ob, ob_server_p sv, u64 now)
{
}

OB_INLINE void ob_whole_passed(ob_p ob, ob_server_p sv, u64 now)
{
}

#endif
