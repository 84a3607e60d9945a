#!/usr/bin/env bash
# From a fresh machine to a trained sweep: set-up, build, data, `spillway train`.
# Arguments go to the program, e.g. `bash scripts/quickstart.sh train.max_steps=200`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

say "building build/bin/spillway"
bash scripts/build.sh build -- spillway >&2

data=()
if [[ " $* " != *" data.path="* ]]; then data=("data.path=$(bash scripts/data.sh)"); fi
exec build/bin/spillway train examples/quickstart.yaml ${data[@]+"${data[@]}"} --overwrite "$@"
