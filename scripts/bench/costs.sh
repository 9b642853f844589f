#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: what the scheduler's entry points cost with $1 greedy processes; with `reserved` as
# $2 each exhausts a small hard reservation again and again. Prints one line of JSON.
set -eu
count=$1
options=
if [ "$2" = reserved ]; then
    # 60 % of the CPU, whatever the number: 200 us each.
    options="--budget 200us --period $((count * 333))us"
fi
scx_onbeat --policy g-edf+cbs-hard --no-isolation --costs >/tmp/costs 2>/tmp/log &
pid=$!
until [ "$(cat /sys/kernel/sched_ext/state)" = enabled ] && [ -S /run/onbeat/control.sock ]; do
    kill -0 $pid 2>/dev/null || { cat /tmp/log; exit 1; }
    sleep 0.1
done
# shellcheck disable=SC2086 # options are several words
onbeat-crowd "$count" --duration 2s $options
kill -INT $pid
wait $pid || { cat /tmp/log; exit 1; }
cat /tmp/costs
