/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * As the constant bandwidth server on slack, and while there is slack jobs go in the order of the
 * latest time at which they should begin: deadline less what they will surely still need. The
 * guess is a moving average of what the server's jobs used in a period, as in feedback scheduling
 * (Palopoli, Cucinotta, Marzario and Lipari, "AQuoSA", 2009), less twice that of its errors; here
 * it changes no budget, only the order within the slack.
 */
OB_INLINE void ob_cbs_predict_release(ob_p ob, ob_server_p sv, u64 now)
{
	ob_lend_release(ob, sv, now);
}

OB_INLINE void ob_cbs_predict_exhausted(ob_p ob, ob_server_p sv, u64 now)
{
	ob_lend_exhausted(ob, sv, now);
}

OB_INLINE void ob_cbs_predict_completed(ob_p ob, ob_server_p sv, u64 now)
{
	u64 spans = now > sv->release ? (now - 1 - sv->release) / ob_max(sv->period, 1) + 1 : 1;
	u64 used = (sv->consumed - sv->begun) / spans;

	if (sv->wont) {
		u64 error = used > sv->wont ? used - sv->wont : sv->wont - used;

		sv->miss = sv->miss ? (7 * sv->miss + 3 * error) / 10 : error;
		used = (7 * sv->wont + 3 * used) / 10;
	}
	sv->wont = ob_max(used, 1);
	ob_lend_completed(ob, sv, now);
}

OB_INLINE void ob_cbs_predict_replenished(ob_p ob, ob_server_p sv, u64 now)
{
	ob_lend_replenished(ob, sv, now);
}
