#!/usr/bin/env bash
# Reads every room and the program with clang: its warnings, thread safety among them, and the
# checks of .clang-tidy. tidy.sh [ROOM...]: those whose name has one of these words, or all.
# Clang reads a room as one file, so it reads LibTorch's headers once a room: minutes, not an hour.
# What has passed is not read again until some of its text changes.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export tidy="clang-tidy-$SPILLWAY_CLANG" passed="$spillway_cache/tidy" build=build-clang
if ! command -v "$tidy" >/dev/null; then
  echo "skipped: there is no clang-tidy 18 or newer"
  exit 0
fi

# FILE, tab, COMMAND of every file except tests and experiments.
units() {
  python3 - "$build/compile_commands.json" "$@" <<'END'
import json, re, sys
for unit in json.load(open(sys.argv[1])):
    words = sys.argv[2:] or [""]
    target = re.search(r" -o (\S+)", unit["command"])[1]
    if unit["file"].endswith(".cu") or re.match("(tests|examples|experiments)/", target):
        continue
    if any(word in target for word in words):
        print(unit["file"], unit["command"].split(" -o ")[0], sep="\t")
END
}

# read_unit FILE COMMAND
read_unit() {
  local hash begin=$SECONDS
  hash="$({ cd "$build" && eval "$2" -E -C -P "$1" && "$tidy" --version && cat ../.clang-tidy; } |
    sha256sum | cut -c1-32)"
  if [[ -e "$passed/$hash" ]]; then return 0; fi
  "$tidy" -p "$build" --quiet "$1" 2> >(grep -v ' warnings\? generated\.$' >&2) || return 1
  echo "${1#"$PWD/"}: $((SECONDS - begin)) s"
  touch "$passed/$hash"
}
export -f read_unit

mkdir -p "$passed"
find "$passed" -type f -mtime +30 -delete
# The tree in which scripts/test.sh builds the program by clang.
cmake -S . -B "$build" -G Ninja --no-warn-unused-cli "-DSPILLWAY_TORCH_DIR=$SPILLWAY_TORCH_DIR" \
  "-DCMAKE_CXX_COMPILER=clang++-$SPILLWAY_CLANG" >/dev/null
units "$@" | tr '\t' '\n' | xargs -d '\n' -n 2 -P "$(nproc)" bash -c 'set -e; read_unit "$@"' read
