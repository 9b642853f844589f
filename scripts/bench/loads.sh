#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: the usual scheduling loads under scheduler $1 (eevdf: the kernel's own), three times
# each. Prints a line "LOAD SECONDS" for each; smaller is better.
set -eu
. /bin/scheduler
begin "$1"
cpus=$(nproc)

# A round trip is two messages over two pipes.
pipe() {
    perf bench -f simple sched pipe -l 10000
}
# 80 processes in 4 groups, each sending 2000 messages.
messages() {
    hackbench -g 4 -f 10 -l 100 | sed -n 's/^Time: //p'
}
# How long `$@` takes.
took() {
    began=$(cut -d ' ' -f 1 /proc/uptime)
    "$@" >/dev/null 2>&1
    ended=$(cut -d ' ' -f 1 /proc/uptime)
    awk "BEGIN { print $ended - $began }"
}
# Two processes for each CPU that wake each other, until all are done. (What stress-ng prints is the mean of when each
# pair was: of pairs that share one host's processor, as the lab's CPUs do, some being done early makes it less.)
switch() {
    took stress-ng --switch "$cpus" --switch-ops 160000
}
# What make -j does: many short processes that compute and pass data on.
build() {
    # shellcheck disable=SC2016 # expanded by the shell that it is for
    took sh -c 'seq 120 | xargs -P $(($(nproc) * 2)) -I N \
        sh -c "head -c 60000 /bin/busybox | gzip -9 | sha256sum >/tmp/N; cat /tmp/N >/dev/null; true"'
}
for round in 1 2 3; do
    for load in pipe messages switch build; do
        echo "$load $($load)"
    done
done
check
