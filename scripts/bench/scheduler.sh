# SPDX-License-Identifier: GPL-2.0-only
# In the guest, for the scripts beside this one: `begin NAME [OPTION …]` loads scheduler NAME (eevdf: the kernel's
# own), as process $pid; what it prints goes to /out/scheduler. `check` fails if the kernel has thrown it out meanwhile.

begin() {
    scheduler=$1
    shift
    [ "$scheduler" != eevdf ] || return 0
    "scx_$scheduler" "$@" >/out/scheduler 2>/out/scheduler.log &
    pid=$!
    until [ "$(cat /sys/kernel/sched_ext/state)" = enabled ]; do
        kill -0 "$pid" 2>/dev/null || {
            cat /out/scheduler.log
            exit 1
        }
        sleep 0.1
    done
    # Until it has settled.
    sleep 1
}

check() {
    [ "$scheduler" = eevdf ] || [ "$(cat /sys/kernel/sched_ext/state)" = enabled ] || {
        echo "$scheduler was thrown out" >&2
        exit 1
    }
}
