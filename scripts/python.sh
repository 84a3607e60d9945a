#!/usr/bin/env bash
# Installs the Python package as a user does, into an environment of its own that has LibTorch's torch,
# and prints its Python. Fails where LibTorch's torch is for another Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh

readonly venv=build-python-venv
site_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
bash scripts/data.sh python >/dev/null
if [[ ! -x "$venv/bin/python" ]]; then
  rm -rf "$venv"
  make_venv "$venv"
  site="$(site_of "$venv/bin/python")"
  # The wheel of torch, with what it needs, is installed by links.
  for entry in "$(dirname "$SPILLWAY_TORCH_DIR")"/*; do
    if [[ ! -e "$site/$(basename "$entry")" ]]; then ln -s "$entry" "$site/"; fi
  done
fi
# So are the packages that the tests use, some of which cannot be had everywhere.
for name in python libraries trackers; do
  if python="$(bash scripts/data.sh "$name")"; then site_of "$python"; fi
done >"$(site_of "$venv/bin/python")/packages.pth"
# The compiler of the other builds, whose files ccache has.
export CXX="${CXX:-c++}"
retry "$venv/bin/python" -m pip --quiet install --no-deps . >&2
printf '%s\n' "$PWD/$venv/bin/python"
