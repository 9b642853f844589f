#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: how long a thread of the ordinary class waits that wakes every 5 ms, beside busy ones, under scheduler
# $1 (eevdf: the kernel's own). Prints a line "LOAD NICE MEAN 99_% GREATEST" for each, in microseconds; 50 of them are
# the kernel's timer slack.
set -eu
. /bin/scheduler
begin "$1"

# Two loops that never sleep for each CPU.
cat >/tmp/hogs <<'END'
for i in $(seq $(($(nproc) * 2))); do
    while :; do :; done &
done
wait
END
# What make -j does, without end.
cat >/tmp/build <<'END'
while :; do
    seq 120 | xargs -P $(($(nproc) * 2)) -I N \
        sh -c 'head -c 60000 /bin/busybox | gzip -9 | sha256sum >/tmp/N; cat /tmp/N >/dev/null; true'
done
END
# 80 processes that send each other messages.
cat >/tmp/messages <<'END'
while :; do hackbench -g 4 -f 10 -l 1000 >/dev/null; done
END

for load in hogs build messages; do
    for nice in -10 0 10; do
        setsid sh "/tmp/$load" 2>/dev/null &
        group=$!
        sleep 0.5
        echo "$load $nice $(nice -n $nice cyclictest -v --policy=other -i 5000 -l 400 -a 2>/dev/null | waits)"
        kill -KILL -$group
        wait $group 2>/dev/null || true
        sleep 0.3
    done
done
check
