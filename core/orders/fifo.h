/* SPDX-License-Identifier: GPL-2.0-only */
/* First come, first served: by when the job was released, as threads of one SCHED_FIFO priority. */
#ifndef OB_ORDER_FIFO_H
#define OB_ORDER_FIFO_H

OB_INLINE u64 ob_fifo_key(ob_server_p sv)
{
	return sv->release;
}

#endif
