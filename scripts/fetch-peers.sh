#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds the published sched_ext schedulers that Onbeat is compared with (`make bench`, and the
# policies named `scx:NAME`) into .cache/peers/bin, at fixed versions. Slow the first time.
#
#   fetch-peers.sh [NAME...]        NAME: flash, bpfland, lavd, rusty; all of them when none is given
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "fetch-peers: $*" >&2
    exit 1
}

# All four are released together.
version=1.1.4

[ $# -gt 0 ] || set -- flash bpfland lavd rusty
mkdir -p .cache/peers
# One at a time: they share the build folder.
exec 9>.cache/peers/.lock
flock 9

for name in "$@"; do
    case $name in
    flash | bpfland | lavd | rusty) ;;
    *) fail "there is no peer '$name'; choose from flash, bpfland, lavd, rusty" ;;
    esac
    # cargo's own record of what is complete: a broken build leaves none.
    if grep -qs "^\"scx_$name $version " .cache/peers/.crates.toml &&
        [ -x ".cache/peers/bin/scx_$name" ]; then
        continue
    fi
    echo "fetch-peers: building scx_$name $version" >&2
    BPF_CLANG=${BPF_CLANG:-clang-19} cargo install --quiet --locked --root .cache/peers \
        --target-dir .cache/peers/build --version "=$version" "scx_$name" \
        >".cache/peers/$name.log" 2>&1 || {
        tail -n 20 ".cache/peers/$name.log" >&2
        fail "cannot build scx_$name $version (no network? all that was said is in .cache/peers/$name.log)"
    }
done
rm -rf .cache/peers/build
