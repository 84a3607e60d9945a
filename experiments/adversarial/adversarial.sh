#!/usr/bin/env bash
# Prints the numbers of attempts to break the program and of surprises, as a table.
# SPILLWAY_ADVERSARIAL (1500): attempts; those beyond the listed ones are random.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash scripts/build.sh build -- spillway >/dev/null
SPILLWAY_DIGITS="$(bash scripts/data.sh digits)"
export SPILLWAY_DIGITS SPILLWAY_ADVERSARIAL="${SPILLWAY_ADVERSARIAL:-1500}"
# As in ctest; see cmake/Spillway.cmake.
if grep -q GenuineIntel /proc/cpuinfo; then export MKL_ENABLE_INSTRUCTIONS=SSE4_2; fi
python3 tests/adversarial/adversarial.py build/bin/spillway docs/architecture.md | tee /dev/stderr |
  sed -n '/^|/,$p'
