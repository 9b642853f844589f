#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs all tests. Those of the kernel side, one guest at a time, run beside the others; what they print follows at the
# end. Those of the lab itself run alone.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# The same cases in every run; another number looks at others.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-20261125}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Always of the whole workspace: chosen packages would be built anew, with other features.
run() {
    "$cargo" test --release --workspace --no-fail-fast "$@"
}

# names FOLDER...: options that choose the test programs there.
names() {
    for folder in "$@"; do
        for file in "$folder"/tests/*.rs "$folder"/tests/*/main.rs; do
            [ -f "$file" ] || continue
            name=$(basename "$file" .rs)
            [ "$name" != main ] || name=$(basename "$(dirname "$file")")
            echo "--test $name"
        done
    done | sort -u
}

kernel=$(names kernel)
lab=$(names lab)
# A name that several packages have stands for all of them.
others=$(names */ | grep -vxF -e "$kernel" -e "$lab" || true)

run --no-run
status=0
# shellcheck disable=SC2086 # options are words
run $kernel >"$log" 2>&1 &
beside=$!
# shellcheck disable=SC2086
run --lib --bins --examples $others || status=1
wait $beside || status=1
cat "$log"
# shellcheck disable=SC2086
run $lab || status=1
run --doc || status=1
exit $status
