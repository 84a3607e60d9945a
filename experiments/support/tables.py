"""Medians with their spread, and Markdown tables, like support/spread.h."""

import statistics


def spread(values, digits):
    """"1.012 (1.004-1.031)"."""
    middle, least, most = (f"{v:,.{digits}f}" for v in
                           (statistics.median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least}-{most})"


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def print_head(cells):
    """The first column is text, the others are numbers."""
    print_row(cells)
    print_row(["---"] + ["---:"] * (len(cells) - 1))
