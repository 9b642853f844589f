#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# In the guest: what somebody at a desktop runs at once, for 20 seconds under scheduler $1, nothing reserved: sound
# every 10 ms, a film of 25 and a game of 50 frames a second, a key every 5 ms, a browser whose bursts are as long as
# four frames, and a build that takes all it gets. Prints "WHO late PER_CENT" for those with a rhythm, "keys wait MEAN
# 99_% GREATEST" in microseconds, and "build jobs NUMBER".
set -eu
. /bin/scheduler
begin "$1"

cat >/tmp/build <<'END'
while :; do
    seq 1000000 | xargs -P $(($(nproc) * 2)) -I N \
        sh -c 'head -c 60000 /bin/busybox | gzip -9 | sha256sum >/tmp/N.sum; rm /tmp/N.sum; echo >>/tmp/built'
done
END
setsid sh /tmp/build 2>/dev/null &
build=$!
sleep 1
: >/tmp/built

# NAME PERIOD CPU
rhythms="sound:10ms:5% film:40ms:25% game:20ms:15% browser:160ms:20%"
pids=
seed=0
for rhythm in $rhythms; do
    name=${rhythm%%:*} rest=${rhythm#*:}
    seed=$((seed + 1))
    onbeat-srt --period "${rest%:*}" --cpu "${rest#*:}" --duration 20s --seed $seed >"/tmp/$name" &
    pids="$pids $!"
done
echo "keys wait $(cyclictest -v --policy=other -i 5000 -l 3900 2>/dev/null | waits)"
for pid in $pids; do
    wait "$pid"
done
built=$(wc -l </tmp/built)
for rhythm in $rhythms; do
    name=${rhythm%%:*}
    sed "s/[{}\":]/ /g; s/,/ /g" "/tmp/$name" | awk -v name="$name" '{
        for (i = 1; i < NF; i++) value[$i] = $(i + 1)
        printf "%s late %.1f\n", name, 100 * value["late"] / value["jobs"]
    }'
done
echo "build jobs $built"
kill -KILL -$build
check
