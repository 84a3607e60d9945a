#!/usr/bin/env python3
"""Prints docs/configuration.md with the tables of a built program; its other text stays.

    python3 scripts/configuration_page.py build/bin/spillway > page && mv page docs/configuration.md
"""
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs/configuration.md"


def tables_of(program):
    """By name."""
    text = subprocess.run([program, "configuration-tables"], capture_output=True, text=True,
                          check=True).stdout
    return dict(re.findall(r"^\[(\w+)\]\n((?:\|.*\n)+)", text, re.M))


def page(program):
    tables = tables_of(program)

    def block(match):
        return f"<!-- keys: {match[1]} -->\n\n{tables.pop(match[1])}\n<!-- end -->"

    text = re.sub(r"<!-- keys: (\w+) -->\n.*?<!-- end -->", block, PAGE.read_text(), flags=re.S)
    if tables:
        sys.exit(f"{PAGE} has no place for: {', '.join(tables)}")
    return text


if __name__ == "__main__":
    print(page(sys.argv[1]), end="")
