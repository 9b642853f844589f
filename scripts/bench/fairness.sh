#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: how far the CPU time of loops that never sleep is from their weights, under scheduler $1 (eevdf: the
# kernel's own), in each of five windows of a second. Prints a line "SET NICE PER_CENT MS" for each niceness of a set:
# the greatest deviation, of the loop's part and in itself.
set -eu
. /bin/scheduler
begin "$1"

# Reads all times of a window's end at once, before everybody.
cat >/tmp/watch <<'END'
for window in 0 1 2 3 4 5; do
    times=
    for pid in "$@"; do
        read -r time rest <"/proc/$pid/schedstat"
        times="$times $time"
    done
    echo "$times"
    sleep 1
done
END

# Runs the loops of set $1: the others are NICE or NICE@CPU.
measure() {
    set=$1
    shift
    pids=
    for loop in "$@"; do
        on=
        [ "${loop#*@}" = "$loop" ] || on="taskset $(printf %x $((1 << ${loop#*@})))"
        # shellcheck disable=SC2086 # words
        nice -n "${loop%@*}" $on sh -c 'while :; do :; done' &
        pids="$pids $!"
    done
    sleep 1
    # shellcheck disable=SC2086 # words
    chrt -f 50 sh /tmp/watch $pids | awk -v set="$set" -v loops="$*" '
        BEGIN {
            count = split(loops, loop)
            for (i = 1; i <= count; i++) {
                cpu[i] = 0
                if (split(loop[i], part, "@") > 1) cpu[i] = part[2] + 1
                nice[i] = part[1]
                weight[i] = 1
                for (step = nice[i]; step < 0; step++) weight[i] *= 1.25
                for (; step > 0; step--) weight[i] /= 1.25
                weights[cpu[i]] += weight[i]
            }
        }
        NR > 1 {
            split("", all)
            for (i = 1; i <= count; i++) all[cpu[i]] += $i - last[i]
            for (i = 1; i <= count; i++) {
                part_ns = all[cpu[i]] * weight[i] / weights[cpu[i]]
                off = $i - last[i] - part_ns
                if (off < 0) off = -off
                if (off >= most[nice[i]]) { most[nice[i]] = off; of[nice[i]] = part_ns }
            }
        }
        { for (i = 1; i <= count; i++) last[i] = $i }
        END {
            for (i = 1; i <= count; i++) {
                n = nice[i]
                if (n in said) continue
                said[n] = 1
                printf "%s %d %.1f %.1f\n", set, n, 100 * most[n] / of[n], most[n] / 1e6
            }
        }'
    # shellcheck disable=SC2086 # words
    kill -KILL $pids
    sleep 0.3
}

measure equal 0 0 0 0
measure odd 0 0 0
measure near 0 0 5 5
measure far -10 -10 0 0 10 10
measure bound -10@0 0@0 10@0 0@1 5@1 10@1
check
