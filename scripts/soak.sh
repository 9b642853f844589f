#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Ten minutes of guest time of random trouble for the scheduler: forks, execs, exits, affinities,
# nice values, reservations, CPUs off and on line, scheduler reloads. Progress is on stderr. Fails,
# with the story, when a task is lost or the kernel complains; the seed repeats the run exactly.
# Arguments go to onbeat-churn (--seed N, --seconds N, …); CPUS and KERNEL (plain, rt) to the lab.
set -eu
cd "$(dirname "$0")/.."

case " $* " in
*" --seconds "*) ;;
*) set -- --seconds 600 "$@" ;;
esac
for program in onbeat onbeat-churn scx_onbeat; do
    if [ ! -x "target/release/$program" ]; then
        echo "soak: there is no target/release/$program; run \`make build\`" >&2
        exit 1
    fi
done
echo "soak: onbeat-churn $* on ${CPUS:-4} CPUs; a second of the guest takes some seconds here" >&2
# Ten hours: no host is that slow.
exec target/release/onbeat lab --cpus "${CPUS:-4}" --kernel "${KERNEL:-plain}" --timeout 36000 \
    --program target/release/onbeat-churn -- onbeat-churn "$@" >&2
