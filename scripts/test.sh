#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs all tests: two test programs at a time, those that take longest first, so that both CPUs of a small machine are
# busy to the end. What a test program prints follows when it is over, with the time that it took.
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# The same cases in every run; another number looks at others.
export PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-20261125}"

# Always of the whole workspace: chosen packages would be built anew, with other features.
cargo_test() {
    "$cargo" test --release --workspace --no-fail-fast "$@"
}

# one NAME: runs the test programs of that name; several packages may have one.
one() {
    log=$(mktemp)
    begin=$(date +%s)
    case $1 in
    lib) set -- --lib --bins --examples ;;
    *) set -- --test "$1" ;;
    esac
    status=0
    cargo_test "$@" >"$log" 2>&1 || status=1
    cat "$log"
    echo "$* took $(($(date +%s) - begin)) s"
    rm -f "$log"
    exit $status
}

# names FOLDER...: the test programs there. Where there is a main.rs it holds the files beside it, as the program
# FOLDER.
names() {
    for folder in "$@"; do
        if [ -f "$folder/tests/main.rs" ]; then
            sed -n '/^\[\[test\]\]/,/^$/s/^name = "\(.*\)"/\1/p' "$folder/Cargo.toml"
            continue
        fi
        for file in "$folder"/tests/*.rs; do
            [ ! -f "$file" ] || basename "$file" .rs
        done
    done | sort -u
}

if [ "${1:-}" = --one ]; then
    one "$2"
fi
# By their names, longest first; who is not named here is quick.
long="agreement soak run survival service budget swap account lab sim runs groups hsb realtime fairness crowd berate"
long="$long unlocked promise verifier lib"
names */ >"${TMPDIR:-/tmp}/onbeat-tests.$$"
trap 'rm -f "${TMPDIR:-/tmp}/onbeat-tests.$$"' EXIT
quick=$(echo "$long" | tr ' ' '\n' | grep -vxF -f - "${TMPDIR:-/tmp}/onbeat-tests.$$" || true)

cargo_test --no-run
status=0
# shellcheck disable=SC2086 # names are words
printf '%s\n' $long $quick | xargs -n 1 -P 2 "$0" --one || status=1
cargo_test --doc || status=1
exit $status
