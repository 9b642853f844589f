/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Constant bandwidth server on slack: a server that used up its budget keeps its deadline and goes
 * on uncharged while the domain has slack, behind all others when it has none; at the deadline its
 * next budget begins, less what it had of slack, and a job that is late by then catches up at the
 * deadline that it missed, as long as there is slack (ob_slack.h). So an overrun costs no later
 * period, and those within their budgets are served as under hard budgets.
 */
OB_INLINE void ob_cbs_slack_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_lend_release(ob, sv, now);
}

OB_INLINE void ob_cbs_slack_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	ob_lend_exhausted(ob, sv, now);
}

OB_INLINE void ob_cbs_slack_completed(ob_p ob, ob_server_p sv, u64 now)
{
	ob_lend_completed(ob, sv, now);
}

OB_INLINE void ob_cbs_slack_replenished(ob_p ob, ob_server_p sv, u64 now)
{
	ob_lend_replenished(ob, sv, now);
}
