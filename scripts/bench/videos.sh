#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: $2 movies of /movies, really decoded, beside $3 best-effort processes that work 10 ms in 100 ms, under
# $1: a policy of Onbeat's, eevdf, eevdf-nice5 or fifo. Prints "best effort CPUS" and "PLAYER JSON" for each movie; as
# figure 3 of Kenna, Herman, Brandenburg, Mills and Anderson, "Soft real-time on multiprocessors: are analysis-based
# schedulers really worth it?", with a machine of the lab's size. $4: how long, in s; $5, $6: the budgets of decoding
# and showing; $7: how many frames may wait.
set -eu
. /bin/scheduler
how=$1
# A fifth CPU is for interrupts.
apart=
[ "$(nproc)" -le 4 ] || apart="--interrupt-cpu 4"
# shellcheck disable=SC2086 # two words
case $how in
eevdf | eevdf-nice5 | fifo) begin eevdf ;;
# Best effort has a tenth of each CPU: servers of 5 ms in 50 ms, or a share.
edf-hsb*) begin onbeat --policy "$how" $apart ;;
*) begin onbeat --policy "$how" --best-effort-share 10% $apart ;;
esac

mkdir -p /sys/fs/cgroup/best-effort
used() { awk '$1 == "usage_usec" { print $2 }' /sys/fs/cgroup/best-effort/cpu.stat; }
now() { awk '{ print $1 * 1e6 }' /proc/uptime; }

# Movies first, as their queues are filled before they play.
number=0
for movie in $(find /movies -name '*.mp4' | sort | awk -v step=$((58 / $2)) 'NR % step == 0' | head -n "$2"); do
    number=$((number + 1))
    case $how in
    eevdf | eevdf-nice5 | fifo) budgets=--no-reservation ;;
    *) budgets="--decode-budget $5 --display-budget $6" ;;
    esac
    # shellcheck disable=SC2086 # several words
    onbeat-play "$movie" --display null --queue "$7" --duration "$4s" --size 480x270 --json $budgets \
        >"/out/play-$number.json" 2>"/out/play-$number.log" &
done
if [ "$how" = fifo ]; then
    # Three levels: showing, decoding, best effort.
    until [ "$(cat /proc/[0-9]*/task/[0-9]*/comm 2>/dev/null | grep -c '^display$')" -ge "$2" ]; do
        sleep 0.05
    done
    for comm in /proc/[0-9]*/task/[0-9]*/comm; do
        thread=$(dirname "$comm")
        case $(cat "$comm" 2>/dev/null) in
        display) chrt -f -p 3 "${thread##*/}" >/dev/null ;;
        decode) chrt -f -p 2 "${thread##*/}" >/dev/null ;;
        esac
    done
fi
i=0
while [ $i -lt "$3" ]; do
    i=$((i + 1))
    (
        echo 0 >/sys/fs/cgroup/best-effort/cgroup.procs
        case $how in
        fifo) exec chrt -f 1 onbeat-work --period 100ms --work 10ms --duration "$(($4 + 60))s" ;;
        eevdf-nice5) exec nice -n 5 onbeat-work --period 100ms --work 10ms --duration "$(($4 + 60))s" ;;
        *) exec onbeat-work --period 100ms --work 10ms --duration "$(($4 + 60))s" ;;
        esac
    ) >/dev/null &
done
sleep 1
from=$(used) begun=$(now)
sleep $(($4 - 2))
echo "$(used) $from $(now) $begun" | awk '{ printf "best effort %.3f\n", ($1 - $2) / ($3 - $4) }'
while pidof onbeat-play >/dev/null; do
    sleep 0.2
done
for play in /out/play-*.json; do
    echo "$(basename "$play" .json) $(cat "$play")"
done
cat /out/play-*.log | sort | uniq -c | sort -rn | head -n 5 >&2
check
