#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Measures what Onbeat costs; tables on stdout, everything measured in results/bench.
#
#   bench.sh [sim|loads|latency|fairness|desktop|costs|sweeps|frames|videos|srt|auto]...   all of them if none is given
#
# loads, latency, fairness, desktop and srt play the same under the kernel's own EEVDF, under published sched_ext
# schedulers and under Onbeat's orders of best effort, without reservations; SCHEDULERS names others than all, LENGTH
# the seconds of each of srt's experiments (120).
#
#   sim    jobs a second of CPU time in the simulator, 24 tasks on 4 CPUs: the command as a whole (events kept, metrics
#          made, table printed), and the simulator alone
#   loads  usual loads in the lab, on 1 and on 4 CPUs
#   latency  how long an ordinary thread that wakes waits beside hogs, a build and messages, on 2 CPUs
#   fairness  how far the CPU time of busy threads is from their weights within a second, on 2 CPUs
#   desktop  audio, video, keys and a browser's bursts beside a build, on 2 CPUs: who is late, what the build takes
#   costs  guest nanoseconds per call of the scheduler's entry points with 1 to 1000 tasks
#   sweeps three figures of 20,000 task sets each through all their tests, in seconds
#   frames CPU time of a decoded frame under SCHED_DEADLINE and Onbeat, on one CPU of the lab
#   videos six movies of the pool, decoded and shown beside best effort on 4 CPUs of the lab (docs/kenna.md)
#   srt    soft real-time work that reserves nothing, beside CPU-bound processes on one CPU of the lab (docs/srt.md)
#   auto   three programs that are measured by `onbeat run`, on 2 CPUs of the lab (docs/auto.md)
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- sim loads latency fairness desktop costs sweeps frames videos srt auto
out=results/bench
mkdir -p "$out"
bin=target/release
schedulers=${SCHEDULERS:-eevdf flash bpfland lavd rusty fair berate best}

lab() {
    "$bin/onbeat-lab" --program "$bin/scx_onbeat" --file scripts/bench/scheduler.sh:/bin/scheduler "$@"
}

# The options that bring the program of scheduler $1 into the lab, if it is a published one.
peer() {
    case $1 in
    flash | bpfland | lavd | rusty) echo "--program .cache/peers/bin/scx_$1" ;;
    esac
}

# Builds the published ones among the schedulers.
fetch() {
    peers=
    for scheduler in $schedulers; do
        [ -z "$(peer "$scheduler")" ] || peers="$peers $scheduler"
    done
    # shellcheck disable=SC2086 # words
    [ -z "$peers" ] || scripts/fetch-peers.sh $peers
}

# Plays scripts/bench/$1.sh under each scheduler on $2 CPUs, with the other words for the lab; each line it prints
# begins with the scheduler's name.
play() {
    part=$1
    cpus=$2
    shift 2
    fetch
    for scheduler in $schedulers; do
        echo "bench: $part under $scheduler on $cpus CPUs" >&2
        # shellcheck disable=SC2046 # two words or none
        lab --cpus "$cpus" $(peer "$scheduler") "$@" --file "scripts/bench/$part.sh:/bin/$part" -- \
            sh "/bin/$part" "$scheduler" | sed "s/^/$scheduler /"
    done
}

# A table of lines "SCHEDULER KEY KEY VALUE": a row for each pair of keys, a column for each scheduler.
table() {
    awk -v names="$schedulers" '
        {
            key = $2 " " $3
            if (!(key in seen)) { order[++n] = key; seen[key] = 1 }
            value[key " " $1] = $5 == "" ? $4 : $4 " / " $5
            if ($6 != "") value[key " " $1] = value[key " " $1] " / " $6
        }
        END {
            count = split(names, name)
            printf "%-9s %7s", "", ""
            for (i = 1; i <= count; i++) printf " %20s", name[i]
            print ""
            for (k = 1; k <= n; k++) {
                split(order[k], part)
                printf "%-9s %7s", part[1], part[2]
                for (i = 1; i <= count; i++) printf " %20s", value[order[k] " " name[i]]
                print ""
            }
        }' "$1"
}

sim() {
    echo "Simulator (jobs a second; SimSo does 6 to 8 thousand)"
    for policy in $(sed -n '/^policies/s/[^"]*"\([^"]*\)"[^"]*/\1 /gp' scripts/bench/speed.toml); do
        jobs=$("$bin/onbeat" sim scripts/bench/speed.toml --policy "$policy" --json |
            sed -n 's/.*"jobs": *\([0-9]*\).*/\1/p' | head -n 1)
        # User and system time of the fastest of three; the last line of `times` is that of the children.
        for _ in 1 2 3; do
            sh -c '"$1" sim scripts/bench/speed.toml --policy "$2" >/dev/null; times' - "$bin/onbeat" "$policy" |
                tail -n 1
        done | awk -v policy="$policy" -v jobs="$jobs" '
            { split($1, u, /[ms]/); split($2, s, /[ms]/); t = 60 * (u[1] + s[1]) + u[2] + s[2] }
            NR == 1 || t < least { least = t }
            END { printf "onbeat sim: %s: %.2f million jobs/s\n", policy, jobs / least / 1e6 }'
    done | tee "$out/sim"
    cargo bench --quiet -p onbeat-sim --bench speed 2>&1 >"$out/sim.json"
}

loads() {
    for cpus in 1 4; do
        play loads "$cpus" --program "$(command -v perf)" --program "$(command -v hackbench)" \
            --program "$(command -v stress-ng)" | sed "s/ / $cpus /"
    done >"$out/loads.all"
    # Medians of three.
    sort -k1,1 -k2,2n -k3,3 -k4,4g "$out/loads.all" |
        awk '{ key = $1 " " $2 " " $3; if (++n[key] == 2) print key, $4 }' | sort -s -k2,2n >"$out/loads"
    echo "Usual loads, seconds; CPUs first"
    table "$out/loads"
}

latency() {
    play latency 2 --program "$(command -v cyclictest)" --program "$(command -v hackbench)" \
        --program "$(command -v nice)" --program "$(command -v setsid)" >"$out/latency"
    echo "Wake-up latency in microseconds: mean / 99 % / greatest of 400, of loads and niceness"
    table "$out/latency"
}

fairness() {
    play fairness 2 --program "$(command -v nice)" --program "$(command -v chrt)" >"$out/fairness"
    echo "CPU time in a second beside what weights say: greatest difference, per cent of that / ms"
    table "$out/fairness"
}

desktop() {
    play desktop 2 --program "$bin/onbeat-srt" --program "$(command -v cyclictest)" \
        --program "$(command -v setsid)" >"$out/desktop"
    echo "A desktop: jobs late, per cent; keys: mean / 99 % / greatest latency, us; jobs of the build"
    table "$out/desktop"
}

costs() {
    echo "Scheduler, guest nanoseconds per call on 1 CPU"
    for kind in fair reserved; do
        for count in 1 10 100 1000; do
            echo "bench: cost with $count $kind tasks" >&2
            lab --cpus 1 --memory 4096 --program "$bin/onbeat-crowd" \
                --file scripts/bench/costs.sh:/bin/costs -- sh /bin/costs "$count" "$kind" |
                sed "s/^/$kind $count /"
        done
    done >"$out/costs"
    printf '%-9s %6s %9s %9s %9s %9s %9s\n' tasks number enqueue dispatch running stopping budget
    while read -r kind count json; do
        printf '%-9s %6s' "$kind" "$count"
        for entry in enqueue dispatch running stopping budget; do
            cost=$(echo "$json" | sed -n "s/.*\"$entry\":{[^}]*\"mean_ns\":\([0-9]*\).*/\1/p")
            printf ' %9s' "${cost:--}"
        done
        echo
    done <"$out/costs"
}

sweeps() {
    echo "Analysis, seconds for 20 points of 1000 sets, all tests of the file"
    begin=$(date +%s)
    for figure in 21 22 23; do
        from=$(date +%s)
        "$bin/onbeat" sweep "experiments/sweeps/kato-$figure.toml" --plot "$out/kato-$figure.svg" >"$out/kato-$figure"
        echo "kato-$figure $(($(date +%s) - from))"
    done
    echo "all     $(($(date +%s) - begin))"
}

frames() {
    echo "CPU time of a frame, microseconds (the player's and the kernel's in its name)"
    for experiment in kato-13 kato-19; do
        "$bin/onbeat" lab "experiments/$experiment.toml" --json >"$out/$experiment.json"
        awk -v experiment="$experiment" '
            /"cpu_per_job_us"/ { gsub(/[^0-9.]/, "", $2); cost = $2 }
            /"policy"/ { gsub(/[",]/, "", $2); policy = $2; value[++n] = cost; name[n] = policy; cost = "" }
            END { for (i = 1; i <= n; i++) print experiment, name[i], value[i] }' "$out/$experiment.json"
    done
}

videos() {
    scripts/movie-pool.sh
    echo "Six movies beside 13 best-effort processes of 0.1 CPUs, 4 CPUs: frames due, late and dropped; mean tardiness"
    echo "and relative jitter, ms; best effort, CPUs; frames lost, damaged and missing in the movies"
    for how in edf-hsb edf-hsb-ns g-edzl+cbs-predict eevdf eevdf-nice5 fifo; do
        # Onbeat takes a fifth CPU for interrupts.
        case $how in
        eevdf* | fifo) cpus=4 ;;
        *) cpus=5 ;;
        esac
        lab --cpus $cpus --program "$bin/onbeat-play" --program "$bin/onbeat-work" \
            --program "$(command -v chrt)" --program "$(command -v nice)" \
            --file scripts/bench/videos.sh:/bin/videos --file .cache/movies-pool:/movies -- \
            sh /bin/videos "$how" 6 13 6 22ms 1200us 10 >"$out/videos-$how"
        awk -v how="$how" '
            function figure(name) {
                match($0, "\"" name "\":[0-9]+")
                return substr($0, RSTART + length(name) + 3, RLENGTH) + 0
            }
            /^best/ { best = $3 }
            /^play/ {
                n++
                due += figure("due"); late += figure("late"); dropped += figure("dropped")
                tardy += figure("tardiness_mean_ns"); jitter += figure("jitter_mean_ns")
                bad += figure("lost") + figure("damaged") + figure("missing")
                if (!figure("due")) failed++
            }
            END {
                printf "%-18s due %d late %d dropped %d tardiness %.3f jitter %.3f best effort %.3f ",
                    how, due, late, dropped, tardy / n / 1e6, jitter / n / 1e6, best
                printf "bad %d not played %d\n", bad, failed
            }' "$out/videos-$how"
    done
}

srt() {
    play srt 1 --env "LENGTH=${LENGTH:-120}" --program "$bin/onbeat-srt" --program "$bin/onbeat-work" \
        --program "$(command -v nice)" >"$out/srt"
    echo "Videos that reserve nothing: jobs late in ${LENGTH:-120} s, per cent; CPU-bound processes beside them: CPUs"
    table "$out/srt"
}

auto() {
    scripts/small-movie.sh
    lab --cpus 2 --program "$bin/onbeat" --program "$bin/onbeat-play" --program "$bin/onbeat-srt" \
        --program "$bin/onbeat-work" --file scripts/bench/auto.sh:/bin/auto \
        --file "$(find .cache/movies-small -name '*.mp4' | head -n 1):/movie" -- sh /bin/auto 20 >"$out/auto"
    cat "$out/auto"
}

for part in "$@"; do
    case $part in
    sim | loads | latency | fairness | desktop | costs | sweeps | frames | videos | srt | auto) "$part" ;;
    *)
        parts="sim, loads, latency, fairness, desktop, costs, sweeps, frames, videos, srt, auto"
        echo "bench: there is no part '$part'; choose from $parts" >&2
        exit 2
        ;;
    esac
    echo
done
