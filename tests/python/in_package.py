"""Runs a test of the Python package in the environment that scripts/python.sh makes.

Usage: in_package.py TEST.py ARG...; the Python is $SPILLWAY_PACKAGE_PYTHON. Exit code 77: none.
"""
import os
import sys

python = os.environ.get("SPILLWAY_PACKAGE_PYTHON", "")
if not python:
    print("skipped: SPILLWAY_PACKAGE_PYTHON names no Python with the package; "
          "run scripts/python.sh")
    sys.exit(77)
os.execv(python, [python, *sys.argv[1:]])
