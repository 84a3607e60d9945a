#!/usr/bin/env bash
# Builds the documentation in build-docs/site: docs.sh [PROGRAM]
# Fails on a broken link or anchor, on a public name without documentation and, with PROGRAM, if
# docs/cli.md is not the program's --help or docs/configuration.md lacks one of its keys.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/setup.sh
source scripts/setup.sh
python="$(bash scripts/data.sh mkdocs)"
readonly python

if (($# > 0)); then
  python3 scripts/cli_page.py "$1" | diff -u docs/cli.md - ||
    die "docs/cli.md differs from --help; run: python3 scripts/cli_page.py '$1' > docs/cli.md"
  python3 scripts/configuration_page.py "$1" | diff -u docs/configuration.md - ||
    die "docs/configuration.md differs from the program's keys; see scripts/configuration_page.py"
fi

# The site has the layout of the tree, so links between files hold on both.
rm -rf build-docs
mkdir -p build-docs/src/docs/api
cp -r README.md CONTRIBUTING.md CHANGELOG.md docs examples experiments build-docs/src
cp --parents tests/package/CMakeLists.txt build-docs/src

doxygen Doxyfile || die "Doxygen found public names without documentation"
"$python" -m mkdocs build --strict --config-file mkdocs.yml
say "the site is in build-docs/site; open build-docs/site/index.html"
