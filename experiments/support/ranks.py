"""Comparisons of orders."""

import itertools


def kendall_tau(first, second):
    """Kendall's rank correlation of two lists without ties: 1 for the same order, -1 for the
    reverse."""
    pairs = list(itertools.combinations(zip(first, second), 2))
    agree = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs)
    return 2 * agree / len(pairs) - 1
