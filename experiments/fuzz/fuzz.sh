#!/usr/bin/env bash
# Prints the executions of the fuzz targets as a Markdown table; runs each until it has enough.
# RUNS (10000000): executions per target; 0 runs none. TARGETS: only these.
# INPUT_SECONDS: see scripts/fuzz.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

read -ra targets <<<"${TARGETS:-}"
table="$(RUNS="${RUNS:-10000000}" bash scripts/fuzz.sh 600 ${targets[@]+"${targets[@]}"} | tee /dev/stderr)"
grep '^|' <<<"$table"
