#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Installs what `make build` has built, or removes it again: one list for both.
#
#   install.sh install|uninstall
#
# From the environment: DESTDIR, before every path; PREFIX (/usr/local); LIBDIR, for the client library; SYSCONFDIR,
# for the configuration; UNITDIR, for systemd's units. Programs that need each other lie in one folder,
# PREFIX/lib/onbeat; those for users have links in PREFIX/bin.
set -eu
umask 022
cd "$(dirname "$0")/.."

fail() {
    echo "install: $*" >&2
    exit 1
}

verb=${1:-}
[ -d target/manual ] || fail "nothing is built; run \`make build\` first"
DESTDIR=${DESTDIR:-}
PREFIX=${PREFIX:-/usr/local}
LIBDIR=${LIBDIR:-$PREFIX/lib}
case $PREFIX in
/usr | /usr/local) SYSCONFDIR=${SYSCONFDIR:-/etc} ;;
*) SYSCONFDIR=${SYSCONFDIR:-$PREFIX/etc} ;;
esac
UNITDIR=${UNITDIR:-$PREFIX/lib/systemd/system}
for place in "$PREFIX" "$LIBDIR" "$SYSCONFDIR" "$UNITDIR"; do
    case $place in
    /*) ;;
    *) fail "$place is no absolute path" ;;
    esac
done
built=target/release
own=$PREFIX/lib/onbeat
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
library=libonbeat_client.so
soname=$library.${version%%.*}

case $verb in
install)
    [ -x $built/scx_onbeat ] && [ -e $built/$library ] ||
        fail "nothing is built; run \`make build\` first"
    # file MODE FILE PLACE; link TARGET PLACE; filled FILE PLACE: with the places in it
    file() { install -D -m "$1" "$2" "$DESTDIR$3"; }
    link() { mkdir -p "$DESTDIR${2%/*}" && ln -sfn "$1" "$DESTDIR$2"; }
    filled() {
        mkdir -p "$DESTDIR${2%/*}"
        sed -e "s|@BINDIR@|$PREFIX/bin|g" -e "s|@SYSCONFDIR@|$SYSCONFDIR|g" -e "s|@PREFIX@|$PREFIX|g" \
            -e "s|@LIBDIR@|$LIBDIR|g" -e "s|@VERSION@|$version|g" "$1" >"$DESTDIR$2"
        chmod 644 "$DESTDIR$2"
    }
    # What an administrator has written stays.
    configuration() { [ -e "$DESTDIR$2" ] || file 644 "$1" "$2"; }
    ;;
uninstall)
    if [ -z "$DESTDIR" ] && [ -d /run/systemd/system ] && [ -e "$UNITDIR/scx_onbeat.service" ]; then
        systemctl disable --now scx_onbeat
    fi
    file() { rm -f "$DESTDIR$3"; }
    link() { rm -f "$DESTDIR$2"; }
    filled() { rm -f "$DESTDIR$2"; }
    configuration() { ! cmp -s "$1" "$DESTDIR$2" || rm -f "$DESTDIR$2"; }
    ;;
*) fail "usage: install.sh install|uninstall" ;;
esac

for program in onbeat scx_onbeat onbeat-lab onbeat-fetch onbeat-play onbeat-work onbeat-runner onbeat-init; do
    file 755 "$built/$program" "$own/$program"
done
for program in onbeat scx_onbeat onbeat-lab onbeat-fetch onbeat-play onbeat-work; do
    link "../lib/onbeat/$program" "$PREFIX/bin/$program"
    file 644 "target/manual/bash/$program" "$PREFIX/share/bash-completion/completions/$program"
    file 644 "target/manual/zsh/_$program" "$PREFIX/share/zsh/vendor-completions/_$program"
    file 644 "target/manual/fish/$program.fish" "$PREFIX/share/fish/vendor_completions.d/$program.fish"
done
for page in target/manual/man/*; do
    file 644 "$page" "$PREFIX/share/man/man${page##*.}/${page##*/}"
done
# Task sets, for `onbeat demo`, which looks beside itself, and to begin with.
find experiments -type f | while read -r set; do
    file 644 "$set" "$PREFIX/share/onbeat/$set"
done
link ../../share/onbeat/experiments "$own/experiments"
filled packaging/scx_onbeat.service "$UNITDIR/scx_onbeat.service"
configuration packaging/onbeat.toml "$SYSCONFDIR/onbeat/onbeat.toml"
file 644 "$built/$library" "$LIBDIR/$library.$version"
link "$library.$version" "$LIBDIR/$soname"
link "$soname" "$LIBDIR/$library"
file 644 client/c/include/onbeat.h "$PREFIX/include/onbeat.h"
filled client/c/onbeat-client.pc.in "$LIBDIR/pkgconfig/onbeat-client.pc"

if [ "$verb" = uninstall ]; then
    for folder in "$own" "$SYSCONFDIR/onbeat" "$PREFIX/share/onbeat"; do
        [ ! -d "$DESTDIR$folder" ] || find "$DESTDIR$folder" -depth -type d -empty -delete
    done
    [ ! -e "$DESTDIR$SYSCONFDIR/onbeat" ] || echo "install: $SYSCONFDIR/onbeat was changed, and stays" >&2
fi
if [ -z "$DESTDIR" ] && [ "$(id -u)" -eq 0 ]; then
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    ldconfig 2>/dev/null || true
fi
