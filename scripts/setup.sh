#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Prepares a Debian machine (12 or newer) for building and running Onbeat: packages, a QEMU that
# is new enough, the Rust components. Does nothing, quickly, when all that is done.
# The kernels and movies are fetched by onbeat-fetch, once it is built.
#
#   setup.sh [packaging]     with what `make deb` and `make test-deb` need beside that, and only that
# shellcheck disable=SC2086 # lists of words are meant to be split
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "setup: $*" >&2
    exit 1
}

part=${1:-}
# The stamp says which version of this script has finished, on which distribution.
version=$({ cat scripts/setup.sh scripts/private-apt.sh /etc/os-release; } | sha256sum)
stamp=.cache/setup.stamp
qemu_works() {
    found=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/.*version \([0-9.]*\).*/\1/p')
    [ -n "$found" ] && dpkg --compare-versions "$found" ge 8.2
}
if [ -z "$part" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] && qemu_works; then
    exit 0
fi

ID="" ID_LIKE="" VERSION_ID="" VERSION_CODENAME=""
. /etc/os-release
case "$ID $ID_LIKE" in
*debian*) ;;
*) fail "this script knows Debian only; on ${ID:-this system} install what it lists by hand" ;;
esac
[ "$(uname -m)" = x86_64 ] || fail "the lab needs an x86-64 machine, this is $(uname -m)"

packages="build-essential pkg-config clang-19 clang-format-19 libclang-19-dev llvm-19
    libelf-dev zlib1g-dev libseccomp-dev protobuf-compiler
    libavcodec-dev libavformat-dev libavutil-dev libswscale-dev
    python3-pip xz-utils zstd busybox-static debian-archive-keyring
    linux-perf rt-tests stress-ng ffmpeg xvfb"
[ "$part" != packaging ] || packages="debhelper lintian mmdebstrap"

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif command -v sudo >/dev/null; then
    as_root=sudo
else
    as_root=none
fi
# Runs a command as root, quietly; its words are kept for errors.
root() {
    [ "$as_root" != none ] || fail "not root, and no sudo to become root for: $*"
    $as_root env DEBIAN_FRONTEND=noninteractive "$@" >.cache/setup.log 2>&1
}
explain() {
    tail -n 20 .cache/setup.log | sed 's/^/    /' >&2
    fail "$*; all that was said is in .cache/setup.log"
}
get="apt-get -qq -o Dpkg::Use-Pty=0 -y --no-install-recommends install"
installed() {
    for package in "$@"; do
        case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
        "install ok installed") ;;
        *) return 1 ;;
        esac
    done
}

mkdir -p .cache

if ! installed $packages; then
    echo "setup: installing packages" >&2
    # The host's package lists may be old or missing; look only when they don't suffice.
    if ! root $get $packages; then
        root apt-get -qq -o APT::Update::Error-Mode=any update ||
            explain "cannot update the package lists (no network?)"
        root $get $packages || explain "cannot install the packages"
    fi
fi

[ "$part" != packaging ] || exit 0

if ! qemu_works; then
    echo "setup: installing QEMU" >&2
    if [ "$VERSION_ID" = 12 ]; then
        # Debian 12's own QEMU is too old; its backports have a newer one, whose dependencies
        # come from both. The private apt lives in a folder of root's own, for a moment.
        private=$(mktemp -d)
        trap '$as_root rm -rf "$private"' EXIT
        backports=$VERSION_CODENAME-backports
        root scripts/private-apt.sh "$private" "$VERSION_CODENAME,$backports" \
            $get -t "$backports" qemu-system-x86 || explain "cannot install QEMU from $backports"
    else
        root $get qemu-system-x86 || explain "cannot install QEMU"
    fi
    qemu_works || fail "QEMU is still missing or older than 8.2; the lab cannot run"
fi

command -v cargo >/dev/null || fail "no Rust toolchain; install one from https://rustup.rs"
for component in rustfmt clippy; do
    cargo "${component#rust}" --version >/dev/null 2>&1 ||
        { command -v rustup >/dev/null && rustup -q component add "$component" >&2; } ||
        fail "the Rust component $component is missing; install it (rustup component add $component)"
done
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have=$(cargo --version | cut -d ' ' -f 2)
dpkg --compare-versions "$have" ge "$needed" || fail "Rust $have is too old, $needed is needed"

echo "$version" >"$stamp"
