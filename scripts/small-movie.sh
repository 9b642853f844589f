#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Re-encodes the movie for the experiments with real decoding, once: on the lab's slow CPUs most
# frames at this size take less than 25 ms and the longest about 45, as in Kato et al., figure 6.
# The original is fetched by onbeat-fetch. Fails with a sentence on stderr.
set -eu
cd "$(dirname "$0")/.."

size=448x252
cache=${ONBEAT_CACHE:-.cache}
folder=$cache/movies-small
movie=bigbuckbunny-$size.mp4

# sha256sum's list is written last, so what has one is whole.
if (cd "$folder" 2>/dev/null && grep -qs " $movie\$" MANIFEST &&
    sha256sum --check --quiet --strict MANIFEST >/dev/null 2>&1); then
    exit 0
fi
echo "small-movie: re-encoding the movie at $size" >&2
draft=$(mktemp -d "$cache/.draft-XXXXXX")
trap 'rm -rf "$draft"' EXIT
trap 'exit 130' INT TERM HUP
# One thread, and no mark of version or date: the same file from the same encoder.
ffmpeg -nostdin -loglevel error -i "$cache/movies/bigbuckbunny.mp4" -an -vf "scale=${size%x*}:${size#*x}" \
    -c:v libx264 -threads 1 -fflags +bitexact -flags:v +bitexact "$draft/$movie" || {
    echo "small-movie: ffmpeg cannot re-encode $cache/movies/bigbuckbunny.mp4; run \`make setup\`" >&2
    exit 1
}
(cd "$draft" && sha256sum "$movie" >MANIFEST.tmp && mv MANIFEST.tmp MANIFEST)
chmod 755 "$draft"
rm -rf "$folder"
mv "$draft" "$folder"
