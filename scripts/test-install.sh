#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Tests the packages of `make deb`: lintian finds no error; they install into a fresh Debian of this machine's release,
# where systemd takes the unit, programs start and a program in C is linked as pkg-config says. That Debian then boots,
# with the lab's kernel and its own systemd (scripts/test-install/guest.sh): the service starts, reserves, reads its
# configuration, comes back after a kill, and is gone when the package is removed.
#
# Needs root. The Debian is kept in the cache (ONBEAT_CACHE, else .cache), for a day.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "test-install: $*" >&2
    exit 1
}
step() { echo "test-install: $*"; }

[ "$(id -u)" -eq 0 ] || fail "run this as root: it makes a Debian"
ls target/deb/*.deb >/dev/null 2>&1 || fail "no packages in target/deb; run \`make deb\`"
store=${ONBEAT_CACHE:-.cache}
kernel=$store/kernel/plain
[ -e "$kernel/vmlinuz" ] || fail "no kernel in the cache; run \`make setup\`"
work=$(mktemp -d)
trap 'umount -q "$work/tree/proc" "$work/tree/sys" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
tree=$work/tree

step "make install, make uninstall"
for verb in install uninstall; do
    DESTDIR=$work/other PREFIX=/opt/onbeat scripts/install.sh $verb
    left=$(find "$work/other" -type f -o -type l)
    [ $verb = install ] || [ -z "$left" ] || fail "make uninstall leaves $left"
done

step "lintian"
lintian --fail-on error target/deb/*.deb

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
cache=$store/install-test/$release.tar
if [ -z "$(find "$cache" -mtime -1 2>/dev/null)" ]; then
    step "making a Debian $release"
    mkdir -p "${cache%/*}"
    mmdebstrap --quiet --variant=apt --skip=cleanup/apt/lists \
        --include=systemd,systemd-sysv,dbus,gcc,libc6-dev,pkg-config "$release" "$work/new.tar"
    mv "$work/new.tar" "$cache"
fi
mkdir "$tree"
tar -C "$tree" -xpf "$cache"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$tree" "$@"; }
mount -t proc proc "$tree/proc"
mount -t sysfs -o ro sys "$tree/sys"

step "installing the packages"
mkdir "$tree/root/deb"
cp target/deb/*.deb "$tree/root/deb"
[ -s "$tree/etc/resolv.conf" ] || cp /etc/resolv.conf "$tree/etc/resolv.conf"
inside sh -c 'apt-get -qq -y --no-install-recommends install /root/deb/*.deb' >"$work/apt.log" 2>&1 || {
    tail -n 20 "$work/apt.log" >&2
    fail "apt cannot install the packages"
}
for program in onbeat scx_onbeat onbeat-lab onbeat-fetch onbeat-play onbeat-work; do
    inside "$program" --version >/dev/null || fail "$program does not start"
    [ -e "$tree/usr/share/bash-completion/completions/$program" ] || fail "$program has no completions"
    inside sh -c "ls /usr/share/man/man*/$program.*.gz" >/dev/null || fail "$program has no manual page"
done
inside scx_onbeat --config /etc/onbeat/onbeat.toml --check || fail "the installed configuration is wrong"
inside systemd-analyze --man=no verify scx_onbeat.service || fail "systemd does not take the unit"

step "linking a program in C"
inside sh -ec 'gunzip -fk /usr/share/doc/libonbeat-client-dev/examples/*.gz 2>/dev/null || true
    cc -o /usr/bin/beat /usr/share/doc/libonbeat-client-dev/examples/beat.c $(pkg-config --cflags --libs onbeat-client)'

step "booting it"
# In memory: only what is needed there.
inside sh -c 'dpkg -r libonbeat-client-dev onbeat-play; apt-get -qq -y purge gcc libc6-dev pkg-config
    apt-get -qq -y autoremove --purge' >"$work/apt.log" 2>&1
rm -rf "$tree/root/deb" "$tree"/usr/share/doc/* "$tree"/usr/share/locale/* "$tree"/var/lib/apt/lists/* \
    "$tree"/var/cache/apt/*
cp "$kernel/config" "$tree/boot/config-$(sed -n "s/^release //p" "$kernel/version")"
inside useradd -m anna
inside useradd -m -G audio bert
install -m 755 scripts/test-install/guest.sh "$tree/root/guest.sh"
cat >"$tree/etc/systemd/system/guest.service" <<END
[Unit]
Wants=multi-user.target
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/root/guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END
umount "$tree/proc" "$tree/sys"
(cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null) | zstd -q -1 >"$work/initrd"
rm -rf "$tree"
# As the lab does it, the host's other work cannot make anybody late: one instruction is a nanosecond.
timeout 1200 qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -machine pc -smp 2 -m 3072 \
    -accel tcg -cpu max,-erms,-fsrm -icount shift=0,sleep=off -rtc base=2026-01-01,clock=vm -seed 42 \
    -kernel "$kernel/vmlinuz" -initrd "$work/initrd" -serial "file:$work/console" \
    -append "console=ttyS0 quiet rdinit=/lib/systemd/systemd systemd.unit=guest.service systemd.show_status=0" || true
tr -d '\r' <"$work/console" >"$work/said"
grep '^guest: ' "$work/said" || true
grep -q '^guest: all is well$' "$work/said" || {
    tail -n 60 "$work/said" >&2
    fail "the guest is not well"
}
step "all is well"
