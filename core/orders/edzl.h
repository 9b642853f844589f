/* SPDX-License-Identifier: GPL-2.0-only */
/* Earliest deadline first until zero laxity: Lee 1994. What has no laxity goes first by
 * ob_laxity_sync. */
#ifndef OB_ORDER_EDZL_H
#define OB_ORDER_EDZL_H

OB_INLINE u64 ob_edzl_key(ob_server_p sv)
{
	return sv->s;
}

#endif
