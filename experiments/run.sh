#!/usr/bin/env bash
# Runs experiments and writes their result files: run.sh NAME...
# NAME is a folder beside this script with a program of its own, such as `engine`, or a script NAME.sh
# or, without one, NAME.py, such as `eager`. Programs are built with optimization, without LibTorch if
# possible. Output goes to results/NAME_MACHINE_YYYYMM.md below a header with machine and method. An
# existing "## Reading" is kept; check it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cpu_model() { sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1; }

# "AMD EPYC 7B13 64-Core Processor" becomes amd-epyc-7b13.
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

# prepare_python NAME: builds the whole program for a script; its Python gets LibTorch's own
# package.
prepare_python() {
  bash scripts/build.sh build -- spillway kernels_bench hosts_exchange >/dev/null
  # shellcheck source=scripts/setup.sh
  source scripts/setup.sh >/dev/null
  experiment=(env PYTHONPATH="$(dirname "$SPILLWAY_TORCH_DIR")" python3 "experiments/$1/$1.py"
    build/bin "$(bash scripts/data.sh)" "$(bash scripts/data.sh digits)")
}

# prepare NAME: sets `experiment` to the command that prints the tables.
prepare() {
  local build_dir="${SPILLWAY_EXPERIMENTS_BUILD:-build-experiments}" target="${1}_experiment"
  experiment=(bash "experiments/$1/$1.sh")
  if [[ -f "${experiment[1]}" ]]; then return; fi
  if [[ -f "experiments/$1/$1.py" ]]; then
    prepare_python "$1"
    return
  fi
  cmake -S . -B "$build_dir" -G Ninja -DSPILLWAY_TORCH=OFF >/dev/null
  if ninja -C "$build_dir" -t query "$target" >/dev/null 2>&1; then
    ninja -C "$build_dir" "$target" >/dev/null
  else
    build_dir=build
    bash scripts/build.sh "$build_dir" -- "$target" >/dev/null
  fi
  experiment=("$build_dir/bin/$target")
}

for name in "$@"; do
  prepare "$name"
  result="experiments/results/${name}_$(machine)_$(date +%Y%m).md"
  part="$(mktemp)"
  trap 'rm -f "$part"' EXIT
  { head_of "$name"; "${experiment[@]}"; echo; reading_of "$result"; } >"$part"
  cat "$part" >"$result"
  echo "$result"
done
