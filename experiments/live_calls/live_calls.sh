#!/usr/bin/env bash
# Prints the numbers of runs, live calls and failures as a Markdown table.
# VIRTUAL_RUNS (10000), SESSION_RUNS (60, a multiple of 20), KILLS (50): how many of each.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

bash scripts/build.sh build -- spillway elastic_property_test live_session_test >/dev/null || exit 1
# shellcheck source=experiments/support/as_ctest.sh
source experiments/support/as_ctest.sh
virtual_runs="${VIRTUAL_RUNS:-10000}" session_runs="${SESSION_RUNS:-60}" kills="${KILLS:-50}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
failed=0

# row WHAT COMMAND...: runs it; it prints "N runs, M calls".
row() {
  local what="$1" begin="$SECONDS" failures=0
  shift
  "$@" >"$log" 2>&1 || failures=1
  cat "$log" >&2
  failed=$((failed + failures))
  sed -nE "s/.*\b([0-9]+) runs, ([0-9]+) calls.*/| $what | \1 | \2 | $failures | $((SECONDS - begin)) |/p" "$log"
}

echo "| what | runs | live calls | failed | seconds |"
echo "| --- | ---: | ---: | ---: | ---: |"
row "virtual runs" env SPILLWAY_PROPERTY_RUNS="$virtual_runs" build/tests/elastic_property_test
row "sessions" env SPILLWAY_CAMPAIGN="$((session_runs / 10))" build/tests/live_session_test \
  --gtest_filter='LiveSession.KeepsTheBitsOverCallsAtRandomInstants'
row "killed runs" python3 tests/apps/commands/live_calls_test.py build/bin/spillway \
  docs/architecture.md "$kills" "${SEED:-1}" LiveCalls.test_an_answered_call_survives_kills
exit "$((failed > 0))"
