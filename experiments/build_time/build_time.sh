#!/usr/bin/env bash
# Prints how long builds take, as a Markdown table. Works on a copy of the tree in a folder of its
# own. INCREMENTAL_ONLY=1: the build before the first change is as fast as possible, and not
# measured. REPETITIONS (3): how often each file is changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh >&2

readonly num_jobs=2 repetitions="${REPETITIONS:-3}" incremental_only="${INCREMENTAL_ONLY:-}"
# Of each layer.
readonly changed=(
  core/base/error.cpp scheduler/engine/engine.cpp spilling/transfer/copier.cpp models/families/gpt.cpp
  trainer/compute/training_job.cpp trainer/session/session.cpp runs/config/config.cpp
)

folder="$(mktemp -d "$PWD/build-time-XXXXXX")"
trap 'rm -rf "$folder"' EXIT

# timed COMMAND...: prints the seconds that it takes.
timed() {
  local begin end
  begin="$(date +%s.%N)"
  "$@" >&2
  end="$(date +%s.%N)"
  echo "$begin $end" | awk '{ printf "%.1f\n", $2 - $1 }'
}

configure() {
  cmake -S "$folder" -B "$folder/build" -G Ninja "-DSPILLWAY_TORCH_DIR=$SPILLWAY_TORCH_DIR"
}

build() { ninja -C "$folder/build" -j "$num_jobs" "$@"; }

# Formats lines of seconds as "median (least-most)".
spread() {
  sort -n | awk '{ s[NR] = $1 } END { printf "%s (%s-%s)\n", s[int((NR + 1) / 2)], s[1], s[NR] }'
}

after_changing() {
  local i
  for ((i = 0; i < repetitions; ++i)); do
    echo "// Changed." >>"$folder/$1"
    timed build "${@:2}"
  done | spread
}

# row WHAT PROGRAM ALL: prints a table row. Its parts are measured before, so that a failure counts.
row() { echo "| $1 | $2 | $3 |"; }

git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$folder"

row built "program, s" "program and tests, s"
echo "| --- | ---: | ---: |"
if [[ -z "$incremental_only" ]]; then export CCACHE_DISABLE=1; fi
configured="$(timed configure)"
program="$(timed build spillway)"
all="$(timed build)"
if [[ -z "$incremental_only" ]]; then
  sum() { echo "$*" | awk '{ for (i = 1; i <= NF; ++i) s += $i; printf "%.0f\n", s }'; }
  row "from nothing" "$(sum "$configured" "$program")" "$(sum "$configured" "$program" "$all")"
fi
export CCACHE_DISABLE=1
program="$(timed build spillway)"
all="$(timed build)"
row "nothing changed" "$program" "$all"
for file in "${changed[@]}"; do
  program="$(after_changing "$file" spillway)"
  all="$(after_changing "$file")"
  row "after a change of \`$file\`" "$program" "$all"
done
