#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Records what decoding the pool's movies takes on this machine, and scales it to Kenna, Herman, Brandenburg, Mills and
# Anderson, "Soft real-time on multiprocessors: are analysis-based schedulers really worth it?", section 4.1: in the
# training set decoding takes 14.49 ms with a deviation of 5.19 ms, and showing 4 ms at most. Every fifth movie is in
# the training set, 11 in all, and the other 47 are played. The files of experiments/traces/kenna were made so, once.
#     scripts/record-pool.sh FOLDER      (a few minutes; the programs are built)
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 1 ] || {
    echo "record-pool: name the folder for the traces: scripts/record-pool.sh FOLDER" >&2
    exit 1
}
mkdir -p "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
scripts/movie-pool.sh "$work/pool" 30

for movie in "$work"/pool/*.mp4; do
    echo "record-pool: $(basename "$movie")" >&2
    size=$(ffprobe -v error -select_streams v -show_entries stream=width,height -of csv=p=0 "$movie")
    target/release/onbeat-play "$movie" --record --passes 4 2>/dev/null |
        awk -v name="$(basename "$movie" .mp4)" -v size="$size" '
            !/^#/ { times = times " " $1 }
            END { split(size, side, ","); print name, side[1] * side[2] times }'
done >"$work/recorded"
short=$(awk 'NF < 700' "$work/recorded" | wc -l)
if [ "$short" -ne 0 ] || [ "$(wc -l <"$work/recorded")" -ne 58 ]; then
    echo "record-pool: $short of the movies could not be decoded to their ends; run it again" >&2
    exit 1
fi

# The first pass over the file finds mean, deviation and the largest picture of the training set, the second writes.
# t -> a + b t: that keeps the correlation of successive frames. Copying a picture takes as long as it is large.
awk -v folder="$1" '
    function training() { return (FNR - 1) % 5 == 3 }
    NR == FNR && training() {
        for (i = 3; i <= NF; i++) { n++; sum += $i; squares += $i * $i }
        if ($2 > largest) largest = $2
    }
    NR == FNR { next }
    FNR == 1 {
        mean = sum / n
        b = 5.19 / sqrt(squares / n - mean * mean)
        a = 14.49 - b * mean
        printf "record-pool: t -> %.3f ms + %.3f t\n", a, b * 1e6 >"/dev/stderr"
        head = "# SPDX-License-Identifier: GPL-2.0-only\n"
        head = head "# A movie a line: its name and, in ms, the time of each frame for "
        made = sprintf("\n# Made by scripts/record-pool.sh: the least of 4 passes, t -> %.2f ms + %.2f t.", a, b * 1e6)
        for (i = 0; i < 2; i++) {
            set = i ? "training" : "test"
            print head "decoding it." made >(folder "/" set "-decode.csv")
            print head "showing it, 4 ms for the largest picture." >(folder "/" set "-display.csv")
        }
    }
    {
        set = training() ? "training" : "test"
        line = $1
        for (i = 3; i <= NF; i++) line = line sprintf(",%.2f", a + b * $i)
        print line >(folder "/" set "-decode.csv")
        printf "%s,%.2f\n", $1, 4 * $2 / largest >(folder "/" set "-display.csv")
    }' "$work/recorded" "$work/recorded"
