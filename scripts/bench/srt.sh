#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: the six experiments of Banachowski and Brandt, "Better real-time response for time-share scheduling",
# table 1, each for two minutes, under scheduler $1. Nothing is reserved. Prints "EXPERIMENT PROCESS LATE" for each
# video, per cent of its jobs, and "EXPERIMENT bound CPUS" for what CPU-bound processes had together.
set -eu
. /bin/scheduler
begin "$1"

# CPU time of the processes "$@" together, ns.
used() {
    for pid in "$@"; do
        read -r time rest <"/proc/$pid/schedstat"
        echo "$time"
    done | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# Experiment $1: $2 CPU-bound processes of niceness $3, and a video for each of the others, NAME:PERIOD:CPU.
experiment() {
    number=$1 count=$2 nice=$3
    shift 3
    bound=
    i=0
    while [ $i -lt "$count" ]; do
        i=$((i + 1))
        nice -n "$nice" onbeat-work --hog --duration 1000s >/dev/null &
        bound="$bound $!"
    done
    sleep 0.5
    # shellcheck disable=SC2086 # words
    from=$(used $bound)
    videos=
    seed=0
    for video in "$@"; do
        seed=$((seed + 1))
        name=${video%%:*} rest=${video#*:}
        onbeat-srt --period "${rest%:*}" --cpu "${rest#*:}" --duration "${length}s" --seed "$seed" >"/tmp/$name" &
        videos="$videos $!"
    done
    for pid in $videos; do
        wait "$pid"
    done
    # shellcheck disable=SC2086 # words
    until=$(used $bound)
    for video in "$@"; do
        name=${video%%:*}
        sed "s/[{}\":]/ /g; s/,/ /g" "/tmp/$name" | awk -v name="$number $name" '{
            for (i = 1; i < NF; i++) value[$i] = $(i + 1)
            printf "%s %.1f\n", name, 100 * value["late"] / value["jobs"]
        }'
    done
    echo "$until $from $length" | awk -v number="$number" '{ printf "%s bound %.3f\n", number, ($1 - $2) / $3 / 1e9 }'
    # shellcheck disable=SC2086 # words
    kill -KILL $bound
    sleep 0.3
}

length=${LENGTH:-120}
experiment 1 1 0 srt:40ms:50%
experiment 2 2 0 srt:40ms:25% srt-b:40ms:25%
experiment 3 2 0 srt:40ms:25% srt-33:30ms:25%
experiment 4 3 0 srt:40ms:25%
# Nice 3 is half the weight.
experiment 5 1 3 srt:30ms:66.667%
experiment 6 1 0 srt:40ms:50% srt-50:20ms:50%
check
