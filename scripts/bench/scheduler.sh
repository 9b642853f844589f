# SPDX-License-Identifier: GPL-2.0-only
# In the guest, for the scripts beside this one: `begin NAME [OPTION …]` loads scheduler NAME (eevdf: the kernel's
# own; fair, berate, best: Onbeat with that order of best effort), as process $pid; what it prints goes
# to /out/scheduler. `check` fails if the kernel has thrown it out meanwhile.

begin() {
    scheduler=$1
    shift
    case $scheduler in
    eevdf) return 0 ;;
    fair | berate | best) set -- onbeat --best-effort "$scheduler" "$@" ;;
    *) set -- "$scheduler" "$@" ;;
    esac
    program=scx_$1
    shift
    "$program" "$@" >/out/scheduler 2>/out/scheduler.log &
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

# Of what `cyclictest -v` prints: "MEAN 99_% GREATEST" of the latencies, us.
waits() {
    sed -n 's/^ *[0-9]*: *[0-9]*: *\([0-9]*\) *$/\1/p' | sort -n | awk '
        { wait[NR] = $1; sum += $1 }
        END { if (NR) printf "%.0f %d %d\n", sum / NR, wait[int((99 * NR + 99) / 100)], wait[NR] }'
}
