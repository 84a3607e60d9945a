#!/usr/bin/env bash
# Runs experiments and writes their result files: run.sh NAME...
# NAME is a folder beside this script. One such as `engine` has a program of its own, which is built
# without LibTorch; one such as `eager` has a script NAME.py, which runs the whole program. What either
# prints goes, below a head that says where and how, into results/NAME_MACHINE_YYYYMM.md. A
# "## Reading" that is there already stays: check it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cpu_model() { sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1; }

# "AMD EPYC 7B13 64-Core Processor" is amd-epyc-7b13.
machine() {
  cpu_model | sed -E 's/\((R|TM)\)//g; s/ (CPU|Processor|[0-9]+-Core)//g; s/ *@.*//' |
    tr '[:upper:]' '[:lower:]' | tr -cs '[:alnum:]\n' '-' | sed 's/-$//'
}

commit() {
  git rev-parse --short=10 HEAD
  git diff --quiet HEAD -- . ':(exclude)experiments/results' || echo "(with changes)"
}

head_of() {
  echo "# $1"
  echo
  sed -n '3,/^$/p' "experiments/$1/README.md"
  echo "- Hardware: $(cpu_model), $(nproc) cores; load when it started: $(cut -d' ' -f1 /proc/loadavg)"
  echo "- Commit: $(commit | paste -sd " ")"
  echo "- Command: \`bash experiments/run.sh $1\`"
  echo "- Method: [README](../$1/README.md)"
  echo
}

reading_of() {
  if [[ -f "$1" ]]; then sed -n '/^## Reading/,$p' "$1"; fi
}

build_dir="${SPILLWAY_EXPERIMENTS_BUILD:-build-experiments}"

build_alone() {
  cmake -S . -B "$build_dir" -G Ninja -DSPILLWAY_TORCH=OFF
  ninja -C "$build_dir" "$1_experiment"
}

# Also finds LibTorch and data; the Python of a script gets LibTorch's own package.
build_program() {
  # shellcheck source=scripts/setup.sh
  source scripts/setup.sh
  bash scripts/build.sh "$build_dir-torch" -- spillway kernels_bench
  data=("$(bash scripts/data.sh)" "$(bash scripts/data.sh digits)")
  PYTHONPATH="$(dirname "$SPILLWAY_TORCH_DIR")"
  export PYTHONPATH
}

run() {
  local script="experiments/$1/$1.py"
  if [[ -f "$script" ]]; then
    python3 "$script" "$build_dir-torch/bin" "${data[@]}"
  else
    "$build_dir/bin/$1_experiment"
  fi
}

for name in "$@"; do
  if [[ -f "experiments/$name/$name.py" ]]; then
    build_program >/dev/null
  else
    build_alone "$name" >/dev/null
  fi
  result="experiments/results/${name}_$(machine)_$(date +%Y%m).md"
  part="$(mktemp)"
  trap 'rm -f "$part"' EXIT
  { head_of "$name" && run "$name" && echo && reading_of "$result"; } >"$part"
  cat "$part" >"$result"
  echo "$result"
done
