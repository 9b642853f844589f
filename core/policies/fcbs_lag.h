/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * FCBS for overruns only: what a job leaves goes to the server that has run furthest ahead of its
 * bandwidth, which borrows budget and deadline as in FCBS; where nobody has overrun it is kept as
 * the bonus. FCBS proper would extend the budget of the first ready server then, which on several
 * CPUs usually runs already: it only delays the moment at which an overlong job makes room for
 * others. Helping the last rather than the first overrun evens out response times.
 * docs/decisions.md has the figures of both.
 */
OB_INLINE void ob_fcbs_lag_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_fcbs_release(ob, sv, now);
}

OB_INLINE void ob_fcbs_lag_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	ob_fcbs_exhausted(ob, sv, now);
}

OB_INLINE void ob_fcbs_lag_completed(ob_p ob, ob_server_p sv, u64 now)
{
	u64 deadline = sv->s;
	s64 left = ob_fcbs_settle(sv, now);
	ob_node_p last;

	if (left <= 0)
		return;
	last = ob_tree_last_over(&sv->domain->active, now);
	if (last) {
		ob_fcbs_lend((ob_server_p)last, deadline, now);
		ob_fcbs_give(ob, sv, (ob_server_p)last, left, now);
	} else {
		ob_fcbs_keep(ob, sv, left, now);
	}
}

OB_INLINE void ob_fcbs_lag_replenished(ob_p ob, ob_server_p sv, u64 now)
{
}
