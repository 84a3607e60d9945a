#!/usr/bin/env bash
# Set-up, style, every build and every test. Closes with ctest's summary; fails if any stage did.
# shellcheck disable=SC2317  # functions are reached through stage()
set -euo pipefail
exec </dev/null
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly max_lines=500
# Many tests wait for most of their time.
jobs=$(($(nproc) + 1))
readonly jobs
# Times as many runs of everything that is drawn at random; experiments/ has the large ones.
readonly campaign="${SPILLWAY_CAMPAIGN:-1}"
failed=()

say_stage() { printf '\n== %s\n' "$*"; }

# stage NAME COMMAND...: runs it, prints its time, notes a failure and goes on.
stage() {
  local name="$1" begin=$SECONDS status
  shift
  say_stage "$name"
  # Not as a condition: there `set -e` would be off inside.
  set +e
  (set -e; "$@")
  status=$?
  set -e
  if ((status != 0)); then failed+=("$name"); fi
  printf -- '-- %s: %s, %d s\n' "$name" "$( ((status == 0)) && echo ok || echo FAILED)" \
    $((SECONDS - begin))
  return 0
}

sources() {
  local file
  git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r file; do
    if [[ -f "$file" ]]; then printf '%s\n' "$file"; fi
  done
}

check_format() {
  if ! command -v clang-format-14 >/dev/null; then
    echo "skipped: other versions of clang-format than 14 lay code out otherwise"
    return 0
  fi
  sources '*.h' '*.cpp' '*.inl' '*.cu' | xargs -d '\n' clang-format-14 --dry-run -Werror
}

check_length() {
  sources '*.h' '*.cpp' '*.inl' '*.cu' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' |
    xargs -d '\n' awk -v max="$max_lines" '
      FNR == max + 1 { print FILENAME ": more than " max " lines"; long = 1 }
      END { exit long }'
}

# The address space layout of some kernels is too random for the sanitizers of g++ 12 and 13.
fixed_layout() {
  if setarch -R true 2>/dev/null; then setarch -R "$@"; else "$@"; fi
}

# sanitized DIR KIND [CMAKE_ARG...]: the layers without LibTorch, built with a sanitizer, and their
# tests.
sanitized() {
  bash scripts/build.sh "$1" -DSPILLWAY_TORCH=OFF "-DSPILLWAY_SANITIZE=$2" "${@:3}"
  export ASAN_OPTIONS=halt_on_error=1:detect_stack_use_after_return=1
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
  fixed_layout ctest --test-dir "$1" --output-on-failure --no-tests=error -j "$jobs"
}

# The program by clang has the same bits. Exit code 77 says that this processor's are not known.
by_clang() {
  bash scripts/build.sh build-clang "-DCMAKE_CXX_COMPILER=clang++-$SPILLWAY_CLANG" -- spillway
  python3 tests/golden/weights_test.py build-clang/bin/spillway || (($? == 77))
}

stage set-up bash scripts/setup.sh
# Nothing below works without it.
if ((${#failed[@]} > 0)); then exit 1; fi
# shellcheck source=scripts/setup.sh
source scripts/setup.sh
stage format check_format
stage length check_length
stage tidy bash scripts/tidy.sh
# The sanitizers by clang are in the tree of the fuzz targets.
if [[ -n "$SPILLWAY_CLANG" ]]; then
  # Tidy has read all of it with clang.
  if ((campaign > 1)); then stage "program by clang" by_clang; fi
  stage "address and undefined" sanitized build-asan address,undefined,fuzzer-no-link \
    "-DCMAKE_CXX_COMPILER=clang++-$SPILLWAY_CLANG"
else
  stage "address and undefined" sanitized build-asan address,undefined
fi
stage thread sanitized build-tsan thread
stage fuzzing bash scripts/fuzz.sh $((5 * campaign))
stage build bash scripts/build.sh build
# It needs the compiled files of the stage before.
if bash scripts/data.sh python >/dev/null; then
  stage "python package" bash scripts/python.sh
  SPILLWAY_PACKAGE_PYTHON="$PWD/build-python-venv/bin/python"
fi
stage docs bash scripts/docs.sh build/bin/spillway

if ((${#failed[@]} > 0)); then say_stage "failed before the tests: ${failed[*]}"; fi
if [[ " ${failed[*]} " == *" build "* ]]; then exit 1; fi
say_stage tests
# Tests on data that cannot be had here say so and are skipped.
SPILLWAY_DIGITS="$(bash scripts/data.sh digits)" || SPILLWAY_DIGITS=
SPILLWAY_SAFETENSORS_PYTHON="$(bash scripts/data.sh safetensors)" || SPILLWAY_SAFETENSORS_PYTHON=
SPILLWAY_TENSORBOARD_PYTHON="$(bash scripts/data.sh tensorboard)" || SPILLWAY_TENSORBOARD_PYTHON=
export SPILLWAY_PACKAGE_PYTHON="${SPILLWAY_PACKAGE_PYTHON:-}"
export SPILLWAY_DIGITS SPILLWAY_SAFETENSORS_PYTHON SPILLWAY_TENSORBOARD_PYTHON
# Those labelled gpu are skipped without one; this says why.
build/tests/cuda_device_test --gtest_filter=none --gtest_brief=1 || true
# Brief runs of experiments take minutes.
leave_out=()
if ((campaign == 1)); then leave_out=(--label-exclude bench); fi
status=0
ctest --test-dir build --output-on-failure --no-tests=error -j "$jobs" ${leave_out[@]+"${leave_out[@]}"} ||
  status=$?
if ((${#failed[@]} > 0)); then status=1; fi
exit "$status"
