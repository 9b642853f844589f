/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * No server: every job runs with its own deadline, release + D, until it is done. The smallest
 * policy there is, and the one to copy. Nothing contains a job that runs too long, save the
 * best-effort share. One that is split goes on to its next share as under a soft CBS.
 */
OB_INLINE void ob_none_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_place_fresh(ob, sv, now);
}

OB_INLINE void ob_none_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	ob_place_renew(ob, sv, now);
}

OB_INLINE void ob_none_completed(ob_p ob, ob_server_p sv, u64 now)
{
}

OB_INLINE void ob_none_replenished(ob_p ob, ob_server_p sv, u64 now)
{
}
