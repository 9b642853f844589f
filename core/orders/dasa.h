/* SPDX-License-Identifier: GPL-2.0-only */
/* What choose/dasa.h has chosen: Clark 1990. */
#ifndef OB_ORDER_DASA_H
#define OB_ORDER_DASA_H

#include "../choose/rank.h"

OB_INLINE u64 ob_dasa_key(ob_server_p sv)
{
	return ob_rank_key(sv);
}

#endif
