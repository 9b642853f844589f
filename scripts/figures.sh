#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The pictures of docs/img: six movies on four CPUs for the README, from one run of the demo, with the table of
# docs/decisions.md, so that no two places tell different figures; and those of the tutorials, from the files that these
# show. Takes minutes; `make setup` first.
#
#   figures.sh [RESULTS]     from results that are there, such as results/demo of `make demo`
set -eu
cd "$(dirname "$0")/.."

place=${1:-results/figures}
if [ $# -eq 0 ]; then
    target/release/onbeat demo --experiment kato-11 --out "$place" >/dev/null
fi
folder=$(mktemp -d)
page=$folder/page.html
trap 'rm -rf "$folder"' EXIT
target/release/onbeat report "$place/kato-11.json" --html "$page" >/dev/null

# cut PAGE N NAME: the page's Nth picture, of the size that it was drawn for, with nothing of the page around it.
cut() {
    {
        echo '<!-- SPDX-License-Identifier: GPL-2.0-only -->'
        awk -v n="$2" '/<svg/ { i++; sub(/.*<svg/, "<svg") } i == n { print } i == n && /<\/svg>/ { exit }' "$1" |
            sed -E 's/<\/svg>.*/<\/svg>/
                s/style="[^"]*" viewBox="0 0 ([0-9]+) ([0-9]+)"/width="\1" height="\2" viewBox="0 0 \1 \2"/'
    } >"docs/img/$3.svg"
}
cut "$page" 1 late
cut "$page" 2 tardiness
cut "$page" 3 best-effort

# shown PAGE FILE: writes the file that a tutorial shows.
shown() {
    awk -v head="\`$2\`:" '$0 == head { on = 1 } on && /^```$/ { exit } on == 2 { print } on && /^```toml/ { on = 2 }' \
        "docs/tutorials/$1.md" >"$folder/$2"
}
shown dimension three.toml
shown study small.toml
target/release/onbeat sim "$folder/three.toml" --html "$folder/three.html" >/dev/null
cut "$folder/three.html" 2 three
target/release/onbeat sweep "$folder/small.toml" --plot "$folder/small.svg" >/dev/null
{
    echo '<!-- SPDX-License-Identifier: GPL-2.0-only -->'
    cat "$folder/small.svg"
} >docs/img/small.svg

python3 - "$place" <<'EOF'
import json, sys

def figures(name):
    runs = json.load(open(f"{sys.argv[1]}/{name}.json"))["runs"]
    return {r["policy"]: r["metrics"] for r in runs if "metrics" in r}

def cells(m):
    if m is None:
        return "| | | "
    return f"| {m['miss_ratio'] * 100:.1f} % | {m['owed_late']} | {m['tardiness_max_ms']:.1f} ms "

kernel, simulator = figures("kato-11"), figures("kato-11.sim")
print("| policy | kernel: late | owed late | at most | simulator: late | owed late | at most |")
print("| --- | --- | --- | --- | --- | --- | --- |")
for policy in kernel:
    print(f"| `{policy}` {cells(kernel[policy])}{cells(simulator.get(policy))}|")
EOF
