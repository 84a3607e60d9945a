#!/usr/bin/env bash
# Prints what the fuzz targets executed, as a Markdown table; runs them until each has enough.
# RUNS (10000000): executions of each; 0 runs none. TARGETS: those alone. INPUT_SECONDS: see scripts/fuzz.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

read -ra targets <<<"${TARGETS:-}"
table="$(RUNS="${RUNS:-10000000}" bash scripts/fuzz.sh 600 ${targets[@]+"${targets[@]}"} | tee /dev/stderr)"
grep '^|' <<<"$table"
