/* SPDX-License-Identifier: GPL-2.0-only */
/* Earliest (server) deadline first: Liu and Layland 1973. */
#ifndef OB_ORDER_EDF_H
#define OB_ORDER_EDF_H

OB_INLINE u64 ob_edf_key(ob_server_p sv)
{
	return sv->s;
}

#endif
