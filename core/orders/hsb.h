/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hard before soft, each by deadline: the strict rank of EDF-HSB (Brandenburg and Anderson,
 * "Integrating hard/soft real-time tasks and best-effort jobs on multiprocessors"). Who admits
 * gives each hard server one CPU: so these are under partitioned EDF, all others under global EDF
 * on what they leave, and one queue does for both.
 */
#ifndef OB_ORDER_HSB_H
#define OB_ORDER_HSB_H

/* No deadline is so late: 36 years after the clock's beginning, ns. */
#define OB_HSB_SOFT (1ULL << 60)

OB_INLINE u64 ob_hsb_key(ob_server_p sv)
{
	u64 s = ob_min(sv->s, OB_HSB_SOFT - 1);

	return sv->hard ? s : OB_HSB_SOFT + s;
}

#endif
