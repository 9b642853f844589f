/* SPDX-License-Identifier: GPL-2.0-only */
/* Shortest period first, rate monotonic: Liu and Layland 1973. */
#ifndef OB_ORDER_RM_H
#define OB_ORDER_RM_H

OB_INLINE u64 ob_rm_key(ob_server_p sv)
{
	return sv->period;
}

#endif
