#!/usr/bin/env bash
# Runs the fuzz targets, two at a time: fuzz.sh [SECONDS [TARGET...]]. 60 s each by default.
# Prints executions and coverage of each target, and fails on a finding: its input then lies in
# build-asan/findings/; fix it and keep the input in tests/fuzz/corpus/TARGET/.
# RUNS=N: a campaign. One target at a time, in rounds of SECONDS, until each has N executions.
# Executions of earlier calls count until the program changes; RUNS=0 only prints the table.
# INPUT_SECONDS (20): an input that takes longer is a finding.
# Use more if fuzzers may be stopped meanwhile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

readonly seconds="${1:-60}" build=build-asan runs="${RUNS:-}"
targets=("${@:2}")
if ((${#targets[@]} == 0)); then
  for folder in tests/fuzz/corpus/*/; do targets+=("$(basename "$folder")"); done
fi

# The address space layout of some kernels is too random for the sanitizers.
fixed_layout() {
  if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

# Maximum input length. Long configurations are slow, and few are longer than this.
most_bytes() { if [[ "$1" == config ]]; then echo 1024; else echo 4096; fi; }

# fuzz TARGET [FLAG...]: one round. New inputs are kept in build-asan/corpus/ for the next round.
# Two stack frames per allocation: deeper stacks cost a third of the time.
fuzz() {
  local target="$1"
  mkdir -p "$build/findings" "$build/corpus/$target"
  ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=1 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    fixed_layout "$build/tests/fuzz_$target" -max_total_time="$seconds" \
    -max_len="$(most_bytes "$target")" \
    -timeout="${INPUT_SECONDS:-20}" -report_slow_units="${INPUT_SECONDS:-20}" \
    -malloc_limit_mb=256 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 \
    -artifact_prefix="$build/findings/$target-" "${@:2}" \
    "$build/corpus/$target" "tests/fuzz/corpus/$target" 2>&1
}

# The log of a target: of its last round, or of all rounds of a campaign with the same program.
log_of() {
  if [[ -z "$runs" ]]; then
    echo "$build/$1.log"
  else
    echo "$build/campaign/$1-$(sha256sum "$build/tests/fuzz_$1" | cut -c1-12).log"
  fi
}

executions() {
  awk '/^stat::number_of_executed_units/ {n += $2} END {print n + 0}' "$1"
}

say_finding() {
  echo "finding of $1:"
  tail -60 "$(log_of "$1")"
}

# two_at_a_time: one round of every target.
two_at_a_time() {
  local i each target status=0 pids
  for ((i = 0; i < ${#targets[@]}; i += 2)); do
    pids=()
    for target in "${targets[@]:i:2}"; do
      fuzz "$target" >"$(log_of "$target")" &
      pids+=("$!:$target")
    done
    for each in "${pids[@]}"; do
      wait "${each%%:*}" && continue
      status=1
      say_finding "${each#*:}"
    done
  done
  return "$status"
}

# campaign: as many rounds as necessary. For configurations only every eighth round uses long
# inputs: a short one is read ten times as fast, and reaches 19 of 20 edges.
campaign() {
  local target log go short status=0
  mkdir -p "$build/campaign"
  for target in "${targets[@]}"; do
    log="$(log_of "$target")"
    touch "$log"
    for ((go = 1; $(executions "$log") < runs; ++go)); do
      short=()
      if [[ "$target" == config ]] && ((go % 8 != 0)); then short=(-max_len=256); fi
      fuzz "$target" -runs=$((runs - $(executions "$log"))) "${short[@]}" >>"$log" && continue
      status=1
      say_finding "$target"
      break
    done
  done
  return "$status"
}

# A row of a table: executions, covered edges of the code, findings.
report() {
  local log
  log="$(log_of "$1")"
  printf '| %s | %s | %s | %s | %s |\n' "$1" "$(executions "$log")" \
    "$(grep -oE ' cov: [0-9]+' "$log" | tr -dc '0-9\n' | sort -n | tail -1)" \
    "$(grep -oE '^INFO: Loaded .*\(([0-9]+) inline' "$log" | tail -1 | grep -oE '\([0-9]+' |
      tr -dc '0-9')" "$(grep -c '^SUMMARY: ' "$log")"
}

if [[ -z "$SPILLWAY_CLANG" ]]; then
  echo "skipped: there is no clang 16 or newer, which has libFuzzer"
  exit 0
fi
bash scripts/build.sh "$build" "-DCMAKE_CXX_COMPILER=clang++-$SPILLWAY_CLANG" -DSPILLWAY_TORCH=OFF \
  -DSPILLWAY_SANITIZE=address,undefined,fuzzer-no-link -- fuzz_targets

status=0
if [[ -z "$runs" ]]; then two_at_a_time || status=1; else campaign || status=1; fi
printf '\n| target | executions | edges taken | of | findings |\n'
printf '| --- | ---: | ---: | ---: | ---: |\n'
for target in "${targets[@]}"; do report "$target"; done
exit "$status"
