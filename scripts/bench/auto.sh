#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: three programs of which nothing is said, each measured by `onbeat run` (docs/auto.md) beside one busy
# process for each CPU: the movie /movie, really decoded; frames that vary; and frames that need twice as much from the
# middle on, in a process of their own. Prints for each "NAME JSON", what `onbeat run` said, and what the program did.
set -eu
. /bin/scheduler
begin onbeat
length=$1
cpu=0
while [ "$cpu" -lt "$(nproc)" ]; do
    cpu=$((cpu + 1))
    onbeat-work --hog --duration 1000s >/dev/null &
done

measure() {
    name=$1
    shift
    onbeat run --json -- "$@" >"/out/$name.json" 2>"/out/$name.log" || cat "/out/$name.log"
    grep '^onbeat:' "/out/$name.log" | sed "s/^/$name /"
    grep '^{' "/out/$name.json" | sed "s/^/$name /"
}

measure movie onbeat-play /movie --display null --no-reservation --duration "${length}s" --json
measure frames onbeat-srt --period 40ms --cpu 25% --finish --duration "${length}s"
half=$((length / 2))
measure scenes sh -c "onbeat-srt --period 40ms --cpu 20% --finish --duration ${half}s; \
    onbeat-srt --period 40ms --cpu 40% --finish --duration ${half}s"
check
