#!/usr/bin/env bash
# Configures and builds: build.sh [BUILD_DIR [CMAKE_ARG...] [-- TARGET...]]
# BUILD_DIR is `build` unless named; the program is BUILD_DIR/bin/spillway.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# As many jobs as cores, but 2 GiB for each: a file that includes LibTorch takes that much.
num_jobs() {
  local available_kib limit by_memory cores
  available_kib="$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)"
  limit="$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)"
  if [[ "$limit" =~ ^[0-9]+$ ]] && ((limit / 1024 < available_kib)); then
    available_kib=$((limit / 1024))
  fi
  by_memory=$((available_kib / (2 << 20)))
  cores="$(nproc)"
  echo $((by_memory < 1 ? 1 : by_memory < cores ? by_memory : cores))
}

build_dir=build
if (($# > 0)) && [[ "$1" != -- ]]; then
  build_dir="$1"
  shift
fi
cmake_args=()
while (($# > 0)) && [[ "$1" != -- ]]; do
  cmake_args+=("$1")
  shift
done
if (($# > 0)); then shift; fi

cmake -S . -B "$build_dir" -G Ninja --no-warn-unused-cli \
  -DSPILLWAY_TORCH_DIR="$SPILLWAY_TORCH_DIR" \
  ${cmake_args[@]+"${cmake_args[@]}"}
ninja -C "$build_dir" -j "$(num_jobs)" "$@"
