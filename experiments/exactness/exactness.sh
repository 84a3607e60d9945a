#!/usr/bin/env bash
# Prints the numbers of tests and failures as a Markdown table. CAMPAIGN (6, at least 6): see README.md.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

bash scripts/build.sh build -- exactness_matrix_test random_configuration_test \
  families_exactness_test >/dev/null || exit 1
# shellcheck source=experiments/support/as_ctest.sh
source experiments/support/as_ctest.sh
export SPILLWAY_CAMPAIGN="${CAMPAIGN:-6}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
failed=0

# count WORD: GoogleTest's number of tests that PASSED, FAILED or were SKIPPED.
count() { sed -nE "s/^\[ +$1 +\] ([0-9]+) tests?.*/\1/p" "$log" | head -1; }

# row WHAT PROGRAM [FILTER]
row() {
  local begin="$SECONDS" failures skipped
  "build/tests/$2" --gtest_filter="${3:-*}" >"$log" 2>&1
  cat "$log" >&2
  failures="$(count FAILED)" skipped="$(count SKIPPED)"
  if [[ -z "$(count PASSED)" ]]; then failures=1; fi
  failed=$((failed + ${failures:-0}))
  echo "| $1 | $(count PASSED) | ${skipped:-0} | ${failures:-0} | $((SECONDS - begin)) |"
}

echo "| what | passed | skipped | failed | seconds |"
echo "| --- | ---: | ---: | ---: | ---: |"
row matrix exactness_matrix_test '-*Control*'
row "controls of the matrix" exactness_matrix_test '*Control*'
row "random configurations" random_configuration_test
row "random strategies" families_exactness_test 'Strategies.*'
exit "$((failed > 0))"
