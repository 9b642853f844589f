/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hard constant bandwidth server (Abeni and Buttazzo 2004, "hard reservation"; Kato, Ishikawa and
 * Rajkumar, "CPU scheduling and memory management for interactive real-time applications", section
 * 7, "CBS variants"): a server that used up its budget waits for the next period, so it gets Q in
 * every P and never more.
 */
OB_INLINE void ob_cbs_hard_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_take_up(ob, sv, now);
}

OB_INLINE void ob_cbs_hard_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	/* Another leg of the same period is no new budget. */
	if (sv->legs && (sv->postponed || sv->leg + 1 < sv->legs))
		ob_window_exhausted(ob, sv, now);
	else
		ob_server_throttle(ob, sv, now, ob_server_next_period(sv));
}

OB_INLINE void ob_cbs_hard_completed(ob_p ob, ob_server_p sv, u64 now)
{
}

OB_INLINE void ob_cbs_hard_replenished(ob_p ob, ob_server_p sv, u64 now)
{
	ob_server_renew(ob, sv, now);
	/* A wait that ended late must not leave a deadline in the past behind. */
	if (sv->legs) {
		if (ob_window_end(sv) <= now) {
			sv->shift = 0;
			ob_window_enter(ob, sv, now, 0, now);
		}
	} else if (sv->s <= now) {
		sv->shift = 0;
		ob_server_set(ob, sv, now, (s64)sv->budget, now + sv->deadline);
	}
}
