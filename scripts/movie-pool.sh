#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Makes the pool of 58 movies that stands for the 58 movie trailers of Kenna, Herman, Brandenburg, Mills and Anderson,
# "Soft real-time on multiprocessors: are analysis-based schedulers really worth it?", section 5: H.264 of three sizes
# and eight bit rates, from sources that FFmpeg computes. Quiet and noisy scenes take turns, each movie in its own way.
# Made once, into the cache, and made again if damaged. With a folder and a length in seconds: there, and so long.
#     scripts/movie-pool.sh [FOLDER SECONDS]
# Fails with a sentence on stderr.
set -eu
cd "$(dirname "$0")/.."

cache=${ONBEAT_CACHE:-.cache}
folder=${1:-$cache/movies-pool}
seconds=${2:-3}

# sha256sum's list is written last, so what has one is whole.
if (cd "$folder" 2>/dev/null && [ -f MANIFEST ] && [ "$(wc -l <MANIFEST)" -eq 58 ] &&
    sha256sum --check --quiet --strict MANIFEST >/dev/null 2>&1); then
    exit 0
fi
# It is removed below: only what this script has made may be.
if [ -e "$folder" ] && { [ ! -s "$folder/MANIFEST" ] ||
    grep -Eqv '^[0-9a-f]{64}  [0-9]{2}-[a-z]+\.mp4$' "$folder/MANIFEST"; }; then
    echo "movie-pool: $folder is there and holds no pool; name another folder, or remove it" >&2
    exit 1
fi
echo "movie-pool: making 58 movies of $seconds s" >&2
mkdir -p "$(dirname "$folder")"
draft=$(mktemp -d "$(dirname "$folder")/.draft-XXXXXX")
trap 'rm -rf "$draft"' EXIT
trap 'exit 130' INT TERM HUP

# list: NAME:SOURCE for each movie, 58 lines. A source begins its parameters with the size and ends with its filters.
list() {
    # Fractals: eight places of Mandelbrot's set, four of Sierpinski's.
    for place in 0:0.7 -0.7436:0.1318 -0.16:1.0405 -1.25066:0.02012 0.2850:0.0115 -0.7269:0.1889 -1.7491:0.0004 \
        -0.1011:0.9563; do
        echo "fractal:mandelbrot=SIZE:start_x=${place%:*}:start_y=${place#*:}:end_scale=0.01:end_pts=600"
    done
    for seed in 1 2; do
        echo "fractal:sierpinski=SIZE:type=carpet:seed=$seed:jump=40"
        echo "fractal:sierpinski=SIZE:type=triangle:seed=$seed:jump=40"
    done
    # Cellular automata in two dimensions and in one.
    for ratio in 0.1 0.2 0.3 0.4 0.5; do
        echo "automaton:life=SIZE:seed=1:ratio=$ratio:mold=10:death_color=#C83232:life_color=#00ff00"
    done
    for rule in 18 30 54 90 110; do
        echo "automaton:cellauto=SIZE:rule=$rule:seed=1:scroll=1"
    done
    # Noise upon still pictures.
    for strength in 4 8 12 16; do
        echo "noise:smptehdbars=SIZE,noise=alls=$strength:allf=t:all_seed=1"
        echo "noise:rgbtestsrc=SIZE,noise=alls=$strength:allf=t:all_seed=2"
    done
    # Colours that are not named are drawn by FFmpeg without the seed.
    colours="c0=red:c1=0x20a0ff:c2=yellow:c3=0x102080:c4=0x00c060:c5=white:c6=black:c7=0xff40c0"
    for seed in 1 2 3 4 5 6 7 8 9 10; do
        echo "gradients:gradients=SIZE:seed=$seed:nb_colors=$((2 + seed % 6)):speed=0.0$seed:$colours"
    done
    # Digits and letters that move past.
    for speed in 2 4 6 8; do
        echo "text:testsrc=SIZE,scroll=h=0.00$speed:v=0.003"
        echo "text:testsrc2=SIZE,scroll=h=0.001:v=0.00$speed"
    done
    # Shapes that turn, one within the other.
    for speed in 0.2 0.5 0.8 1.1 1.4; do
        echo "shapes:testsrc2=SIZE,rotate=a=t*$speed:c=black"
        echo "shapes:testsrc=SIZE,rotate=a=sin(t*$speed):c=blue,scroll=h=0.005"
    done
}

# movie NUMBER NAME SOURCE: makes one. One thread, and no mark of version or date: the same file from the same encoder.
# The index stands first, so that of a file that breaks off what there is can be played.
movie() {
    case $(($1 % 3)) in
    0) size=320x180 ;;
    1) size=336x192 ;;
    2) size=304x176 ;;
    esac
    scenes="noise=alls=7:allf=t:all_seed=$1"
    scenes="$scenes,noise=alls=$((8 + $1 % 4 * 3)):allf=t:all_seed=$1"
    scenes="$scenes:enable='lt(mod(t+$1*1.3,$((5 + $1 % 5))),$((1 + $1 % 3)))'"
    rate=$((700 + $1 % 8 * 60))
    source=$(echo "$3" | sed "s/SIZE/size=$size:rate=24000\/1001/")
    ffmpeg -nostdin -loglevel error -f lavfi -i "$source,$scenes" -t "$seconds" -pix_fmt yuv420p -c:v libx264 \
        -preset veryfast -b:v ${rate}k -maxrate $((rate * 3 / 2))k -bufsize $((rate / 2))k -threads 1 \
        -movflags +faststart -fflags +bitexact -flags:v +bitexact "$draft/$(printf '%02d-%s.mp4' "$1" "$2")"
}

# Two at a time.
number=0
list | while IFS=: read -r name source; do
    movie $number "$name" "$source" &
    number=$((number + 1))
    [ $((number % 2)) -ne 0 ] || wait
done || true
wait
count=$(find "$draft" -name '*.mp4' | wc -l)
if [ "$count" -ne 58 ]; then
    echo "movie-pool: ffmpeg made only $count of 58 movies; run \`make setup\`" >&2
    exit 1
fi
(cd "$draft" && sha256sum -- *.mp4 >MANIFEST.tmp && mv MANIFEST.tmp MANIFEST)
chmod 755 "$draft"
rm -rf "$folder"
mv "$draft" "$folder"
