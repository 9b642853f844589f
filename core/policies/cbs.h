/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Soft constant bandwidth server (Abeni and Buttazzo, RTSS 1998; Kato, Ishikawa and Rajkumar, "CPU
 * scheduling and memory management for interactive real-time applications", section 4.1): a server
 * that used up its budget gets a new one at once and a deadline one period later. It may so use
 * more than Q/P where CPUs would idle, and never disturbs those within their bandwidth.
 */
OB_INLINE void ob_cbs_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_place_take_up(ob, sv, now);
}

OB_INLINE void ob_cbs_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	ob_place_renew_near(ob, sv, now);
}

OB_INLINE void ob_cbs_completed(ob_p ob, ob_server_p sv, u64 now)
{
}

OB_INLINE void ob_cbs_replenished(ob_p ob, ob_server_p sv, u64 now)
{
}
