#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Fetches the programs of others that tests hold Onbeat's schedules and response times against (judges.txt), to
# .cache/judges; nothing of the system changes. Does nothing when they are there. Without a network it says so, and
# those tests are skipped; any other failure is one.
set -eu
cd "$(dirname "$0")/.."

wanted=$(sha256sum <scripts/judges.txt)
there=.cache/judges
if [ "$(cat "$there/stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

mkdir -p .cache
new=$(mktemp -d .cache/judges.XXXXXX)
trap 'rm -rf "$new"' EXIT
missing='NewConnectionError|NameResolutionError|ProxyError|ConnectTimeout|is unreachable|No matching distribution'
echo "judges: fetching SimSo and response-time-analysis" >&2
# SimSo's own dependency on NumPy is for its generator of task sets, which nothing asks.
if python3 -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes --root-user-action=ignore \
    --retries 2 --target "$new" -r scripts/judges.txt >.cache/judges.log 2>&1; then
    echo "$wanted" >"$new/stamp"
elif grep -qE "$missing" .cache/judges.log; then
    echo "judges: no network, or it has them not; tests that ask them are skipped" >&2
    touch "$new/absent"
else
    tail -n 20 .cache/judges.log | sed 's/^/    /' >&2
    echo "judges: cannot install scripts/judges.txt with python3 -m pip; all it said is in .cache/judges.log" >&2
    exit 1
fi
# Two may do this at a time: the last one's is complete, too.
chmod 755 "$new"
rm -rf "$there"
mv -T "$new" "$there"
