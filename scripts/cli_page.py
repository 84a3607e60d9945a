#!/usr/bin/env python3
"""Prints docs/cli.md, made from the --help of a built program.

    python3 scripts/cli_page.py build/bin/spillway > docs/cli.md
"""
import re
import subprocess
import sys

HEAD = """# Command line

This page is the `--help` of the program. `scripts/cli_page.py` makes it, and `scripts/docs.sh` compares it with the program.
"""


def help_of(*command):
    result = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    lines = [line.rstrip() for line in result.stdout.strip().splitlines()]
    return "\n".join(lines)


def page(program):
    overview = help_of(program)
    names = re.findall(r"^  (\w+) {2,}", overview.split("Subcommands:")[1].split("\n\n")[0], re.M)
    parts = [HEAD, f"## spillway\n\n```text\n{overview}\n```\n"]
    for name in names:
        parts.append(f"## spillway {name}\n\n```text\n{help_of(program, name)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(sys.argv[1]), end="")
