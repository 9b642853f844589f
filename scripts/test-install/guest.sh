#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The part of test-install.sh that runs in the Debian it has booted, under systemd.
set -u

say() { echo "guest: $*"; }
fail() {
    say "FAILED: $*"
    systemctl status --no-pager scx_onbeat
    journalctl --no-pager -q -n 40 -u scx_onbeat
    exit 1
}
# until_state STATE: waits for the kernel's word on its sched_ext scheduler.
until_state() {
    for _ in $(seq 100); do
        [ "$(cat /sys/kernel/sched_ext/state)" != "$1" ] || return 0
        sleep 0.2
    done
    fail "sched_ext is $(cat /sys/kernel/sched_ext/state), not $1"
}
as() {
    user=$1
    shift
    runuser -u "$user" -- "$@"
}
masks() { cat /proc/irq/*/smp_affinity /sys/devices/virtual/workqueue/cpumask; }

until_state disabled
[ "$(systemctl is-enabled scx_onbeat)" = disabled ] || fail "installing it has it started at boot"
cat >/etc/onbeat/onbeat.toml <<END
interrupt-cpu = 1
max-share = "20%"
limit = ["@audio=60%"]
END
before=$(masks)
systemctl start scx_onbeat || fail "the service does not start"
until_state enabled
say "$(cat /sys/kernel/sched_ext/root/ops) schedules"
words=$(journalctl -q -u scx_onbeat)
case $words in
*"device interrupts and the kernel's unbound work"*) ;;
*) fail "it cannot steer interrupts" ;;
esac
case $words in
*"can delay reservations"* | *"cannot "* | *"no statistics"*) fail "it lacks rights for something" ;;
esac
say "$(systemd-analyze security --no-pager scx_onbeat 2>/dev/null | tail -n 1)"

# Half of the CPU that is left for reservations: more than all may have, and less than those in audio.
as anna onbeat run --period 20ms --budget 10ms -- true
[ $? -eq 75 ] || fail "anna has more than max-share"
as bert onbeat run --period 20ms --budget 10ms -- sh -c 'sleep 1; test -s /run/onbeat/ext_server' ||
    fail "bert, who is in audio, has not got what audio may, or is not protected from real-time threads"
as bert beat || fail "the program in C gets no reservation"
say "reservations are granted by the limits of users and groups"

systemctl kill -s KILL scx_onbeat
sleep 2
for _ in $(seq 100); do
    [ "$(systemctl is-active scx_onbeat)" != active ] || break
    sleep 0.5
done
[ "$(systemctl is-active scx_onbeat)" = active ] || fail "it does not come back after a kill"
until_state enabled
say "it comes back after a kill"

echo 'max-shore = "5%"' >>/etc/onbeat/onbeat.toml
systemctl restart scx_onbeat && fail "a mistake in the configuration is taken"
journalctl -q -u scx_onbeat | grep -F '/etc/onbeat/onbeat.toml:4: unknown key "max-shore"; did you mean max-share?' ||
    fail "the mistake is not told with its line"
[ "$(systemctl show -P ExecMainStatus scx_onbeat)" = 2 ] || fail "the exit status is not 2"
[ "$(systemctl is-active scx_onbeat)" = failed ] || fail "it is tried again, though nobody has corrected the mistake"
until_state disabled
sed -i '$d' /etc/onbeat/onbeat.toml
systemctl start scx_onbeat || fail "it does not start after the mistake is corrected"
until_state enabled

dpkg -r onbeat || fail "the package cannot be removed"
until_state disabled
[ -z "$(pidof scx_onbeat)" ] || fail "the service outlives its package"
[ "$(masks)" = "$before" ] || fail "interrupts do not go where they went before"
say "removing the package ends the service; the kernel's own scheduler is back"
say "all is well"
