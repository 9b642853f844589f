#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: what the scheduler's entry points cost with $1 greedy processes; with `reserved` as
# $2 each exhausts a small hard reservation again and again. Prints one line of JSON.
set -eu
. /bin/scheduler
count=$1
options=
if [ "$2" = reserved ]; then
    # 60 % of the CPU, whatever the number: 200 us each.
    options="--budget 200us --period $((count * 333))us"
fi
begin onbeat --policy g-edf+cbs-hard --no-isolation --costs
# shellcheck disable=SC2086 # options are several words
onbeat-crowd "$count" --duration 2s $options
check
kill -INT "$pid"
wait "$pid" || { cat /out/scheduler.log; exit 1; }
cat /out/scheduler
