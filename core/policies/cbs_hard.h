/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hard constant bandwidth server (Abeni and Buttazzo 2004, "hard reservation"; Kato, Ishikawa and
 * Rajkumar, "CPU scheduling and memory management for interactive real-time applications", section
 * 7, "CBS variants"): a server that used up its budget waits for the next period, so it gets Q in
 * every P and no more; one that others made late may make up for that
 * (ob_place_keeps).
 */

OB_INLINE void ob_cbs_hard_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_place_take_up(ob, sv, now);
}

OB_INLINE void ob_cbs_hard_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	u64 until = ob_place_rests_until(sv);

	if (until)
		ob_server_throttle(ob, sv, now, until);
	else
		ob_place_next(ob, sv, now);
}

OB_INLINE void ob_cbs_hard_completed(ob_p ob, ob_server_p sv, u64 now)
{
}

OB_INLINE void ob_cbs_hard_replenished(ob_p ob, ob_server_p sv, u64 now)
{
	ob_place_renew_near(ob, sv, now);
	/* Who chooses drops what is late; and no two windows of one that is split are nearer to
	 * each other than its CPUs were tested for. */
	if (ob_order_chooses(sv) || ob_place_moves(sv))
		ob_place_late(ob, sv, now);
}
