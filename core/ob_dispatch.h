/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The dispatcher: told of events (ready, sleep, stop, tick, …) it keeps queues and budgets and
 * leaves its answers in ob->kick (CPUs that must pick again), ob->rearm (CPUs whose timer changed)
 * and ob->alarm_at. A shell serialises all calls for one `struct ob`.
 *
 *   a thread wakes          ob_ready (ob_thread.h)
 *   a CPU needs work        ob_pick (ob_pick.h), then ob_run when the thread really runs
 *   a thread leaves a CPU   ob_stop (ob_run.h), and if it still wants to run ob_ready
 *   a thread sleeps         ob_stop, ob_sleep (ob_thread.h)
 *   a CPU's timer fires     ob_tick (ob_run.h)
 *   alarm_at passes         ob_alarm (ob_alarm.h)
 *   a policy changes        ob_regroup, ob_server_swap, ob_reorder (ob_swap.h)
 */
#ifndef OB_DISPATCH_H
#define OB_DISPATCH_H

#include "ob_alarm.h"
#include "ob_swap.h"

#endif
