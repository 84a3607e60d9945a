#!/usr/bin/env bash
# Checks Spillway on this machine's GPU: gpu_check.sh [BUILD_DIR [REPORT]]
# Builds for that GPU, runs the tests labelled gpu, CUDA's memory and race checks, and measures copies and
# GPTs. Prints Markdown tables, which REPORT (BUILD_DIR/gpu_check.md) holds too; logs lie in BUILD_DIR.
# Fails if any check fails. No network: LibTorch is that of SPILLWAY_TORCH_DIR, or of this machine's
# Python, and without one nothing is trained; what the system lacks of Boost 1.81, fmt, GoogleTest,
# nlohmann_json, SQLite, xxHash and libsodium (and of CLI11, TBB and yaml-cpp, to train) is looked for in
# SPILLWAY_DEPS, a folder with include/ and lib/, or usr/ with these in it: for example Debian
# packages downloaded on another machine by apt-get download, unpacked there by dpkg -x. The Python
# package is tested if SPILLWAY_PACKAGE_PYTHON is a Python that has it.
# shellcheck disable=SC2317  # functions are reached through check()
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly build="${1:-build-gpu}" report="${2:-${1:-build-gpu}/gpu_check.md}"
readonly deps="${SPILLWAY_DEPS:-}"
export SPILLWAY_REQUIRE_GPU=1  # a test without its GPU fails
failed=0
mkdir -p "$build"

row() { printf '| %s | %s |\n' "$1" "$2" | tee -a "$report"; }

# check NAME LOG COMMAND...: adds a result row. The output goes to the log.
check() {
  local name="$1" log="$build/$2" begin=$SECONDS
  shift 2
  if "$@" >"$log" 2>&1; then
    row "$name" "ok, $((SECONDS - begin)) s"
  else
    failed=1
    row "$name" "FAILED, see $log"
    tail -n 20 "$log" >&2
    return 1
  fi
}

# The folder of LibTorch 2.11 with its GPU part, if there is one.
find_torch() {
  local folder="${SPILLWAY_TORCH_DIR:-}"
  if [[ -z "$folder" ]]; then
    folder="$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null || true)"
  fi
  if [[ -f "$folder/lib/libtorch_cuda.so" ]]; then echo "$folder"; fi
}

build_all() {
  local how=(-DSPILLWAY_CUDA=ON)
  local targets=(cuda_device_test cuda_kernels_test fake_cuda_device_test shell_gpu_test
    gpu_copies_experiment)
  if [[ -n "$torch" ]]; then
    how+=(-DSPILLWAY_TORCH=ON "-DSPILLWAY_TORCH_DIR=$torch")
    targets+=(gpu_training_test torch_gpu_test nccl_peers_test gpu_gpt_experiment spillway)
  else
    how+=(-DSPILLWAY_TORCH=OFF)
  fi
  if command -v ninja >/dev/null; then how+=(-G Ninja); fi
  if [[ -n "$found" ]]; then how+=(-DCMAKE_CUDA_ARCHITECTURES=native); fi
  if [[ -n "$deps" ]]; then how+=("-DCMAKE_PREFIX_PATH=$deps;$deps/usr"); fi
  cmake -S . -B "$build" "${how[@]}" || return 1
  cmake --build "$build" --parallel --target "${targets[@]}"
}

# sanitized TOOL TEST: a check by compute-sanitizer, if the toolkit has it.
sanitized() {
  if ! command -v compute-sanitizer >/dev/null; then
    row "$1 of $2" "not run: there is no compute-sanitizer in the PATH"
    return 0
  fi
  check "$1 of $2" "$1.log" compute-sanitizer --tool "$1" --error-exitcode 9 "$build/tests/$2" ||
    return 0
}

gpu() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null |
    head -n 1 || true
}

# Adds the rows of the experiment's table to this one.
copies() {
  awk -F ' *[|] *' '/GPU|both/ && NF == 6 && $3 ~ /^[0-9]/ {
    printf "| copies of 256 MiB %s | %s GB/s, raw %s, ratio %s |\n", $2, $4, $3, $5
  }' "$build/copies.log" | tee -a "$report"
}

: >"$report"
row check result
row --- ---
found="$(gpu)"
torch="$(find_torch)"
row GPU "${found:-none that nvidia-smi shows}"
row toolkit "$("$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)" --version 2>/dev/null |
  sed -n 's/.*\(release [0-9.]*\).*/\1/p' || true)"
row LibTorch "${torch:-none with a GPU part: nothing is trained}"
check build build.log build_all || exit 1
check "tests labelled gpu" tests.log \
  ctest --test-dir "$build" -L '^gpu$' -E experiment --output-on-failure --no-tests=error || true
if (("$(nvidia-smi --list-gpus 2>/dev/null | wc -l)" < 4)); then
  row "hosts by NCCL" "not run whole: programs need two GPUs, and nccl_peers_test four"
fi
check "the same without a GPU" fake.log ctest --test-dir "$build" --output-on-failure \
  -R '^(fake_cuda_device_test|shell_gpu_test)$' --no-tests=error || true
sanitized memcheck cuda_device_test
sanitized racecheck cuda_kernels_test
if check "copies measured" copies.log "$build/bin/gpu_copies_experiment"; then copies; fi
if [[ -n "$torch" ]]; then
  check "rates" doctor.log "$build/bin/spillway" doctor || true
  if check "GPTs trained" gpt.log "$build/bin/gpu_gpt_experiment"; then
    { echo && cat "$build/gpt.log"; } | tee -a "$report"
  fi
fi
exit "$failed"
