#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs a command with an apt of our own: its package lists and downloads live in one folder, the
# host's sources, lists and package choices stay as they are. Mirror and keyring are the host's.
#
#   private-apt.sh FOLDER SUITE[,SUITE...] COMMAND [ARGUMENT...]
#
# The suites' lists are brought up to date first. COMMAND finds apt-get, apt-cache and so on
# working on these suites alone. Fails with a sentence on stderr.
set -eu

fail() {
    echo "private-apt: $*" >&2
    exit 1
}

[ $# -ge 3 ] || fail "usage: private-apt.sh FOLDER SUITE[,SUITE...] COMMAND [ARGUMENT...]"
mkdir -p "$1" || fail "cannot create $1"
folder=$(cd "$1" && pwd)
suites=$2
shift 2
command -v apt-get >/dev/null || fail "apt-get is missing; this needs Debian"

# The host's main archive: not its updates, not the security archive. Without downloaded lists
# apt does not know a source's origin, so the suite's name decides.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# shellcheck disable=SC2016 # apt replaces these, not the shell
target=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SOURCESENTRY)' \
    'Created-By: Packages' 'Target-Of: deb' |
    awk -v codename="$codename" '
        $3 == "main" && $1 !~ /security/ && ($2 == codename || $2 == "stable" || $2 == "testing" ||
            $2 == "sid" || $2 == "unstable") { print; exit }')
[ -n "$target" ] || fail "the host's apt sources name no Debian archive for '$codename'"
mirror=${target%% *}
source_file=${target##* }
source_file=${source_file%:*}

# deb822 files say "Signed-By: PATH", one-line files "[signed-by=PATH]".
keyring=$(sed -n -e 's/^[Ss]igned-[Bb]y: *\(\/[^ ,]*\).*/\1/p' \
    -e 's/^deb .*signed-by=\(\/[^] ,]*\).*/\1/p' "$source_file" 2>/dev/null | head -n 1)
for known in "$keyring" /usr/share/keyrings/debian-archive-keyring.gpg \
    /usr/share/keyrings/debian-archive-keyring.pgp; do
    if [ -n "$known" ] && [ -e "$known" ]; then
        keyring=$known
        break
    fi
done
[ -e "$keyring" ] || fail "no keyring of the Debian archive found; install debian-archive-keyring"

state=$folder/$suites
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
for suite in $(echo "$suites" | tr , ' '); do
    echo "deb [arch=amd64 signed-by=$keyring] $mirror $suite main"
done >"$state/sources.list"
cat >"$state/apt.conf" <<END
Dir::Etc::sourcelist "$state/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "$state/lists";
Dir::Cache "$state/cache";
Dir::Cache::pkgcache "$state/cache/pkgcache.bin";
Dir::Cache::srcpkgcache "$state/cache/srcpkgcache.bin";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::Retries "3";
END
# Run as root, apt would download as the user _apt, who has no access to our folder.
[ "$(id -u)" -ne 0 ] || echo 'APT::Sandbox::User "root";' >>"$state/apt.conf"
APT_CONFIG=$state/apt.conf
export APT_CONFIG

# apt-get update keeps quiet about unreachable servers unless told otherwise.
if ! apt-get -qq -o APT::Update::Error-Mode=any update >"$state/update.log" 2>&1; then
    sed 's/^/private-apt: /' "$state/update.log" >&2
    fail "cannot read the package lists of $suites from $mirror (no network?)"
fi
exec "$@"
