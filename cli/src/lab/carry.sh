#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs inside the guest: carries out one policy after another, whatever becomes of each.
#
#   carry.sh SECONDS POLICY...      at most so many seconds of guest time for each policy
limit=$1
shift
number=0
state=/sys/kernel/sched_ext/state
for policy in "$@"; do
    echo "@begin $number"
    timeout -k 20 "$limit" onbeat-runner /lab/set.json --policy "$policy" --world lab \
        --movies /lab/movies --programs /bin --out "/out/$policy.run" 2>"/out/$policy.log"
    status=$?
    # A runner that had to be killed leaves a scheduler that is about to end.
    patience=100
    while [ "$(cat $state 2>/dev/null || echo disabled)" != disabled ] && [ $patience -gt 0 ]; do
        sleep 0.1
        patience=$((patience - 1))
    done
    echo "@end $number $status"
    number=$((number + 1))
done
