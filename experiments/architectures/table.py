"""Prints what holds for each architecture; names of some as arguments."""

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from matrix import measure
from models import ARCHITECTURES


def word(holds: bool) -> str:
    return "yes" if holds else "**no**"


def main() -> None:
    chosen = [each for each in ARCHITECTURES if not sys.argv[1:] or each.name in sys.argv[1:]]
    print(f"transformers {transformers.__version__}\n")
    print("| architecture | layers | shards | equal bits | other nodes differ | largest difference "
          "of a loss | control | logits equal |")
    print("|---|---|---|---|---|---|---|---|")
    failed = []
    for architecture in chosen:
        row = measure(architecture)
        if not row.holds:
            failed.append(row.name)
        print(f"| {row.name} | {row.layers} | {row.shards} | {word(row.equal_bits)} | "
              f"{word(row.control_differs)} | {row.largest_difference:.1e} | "
              f"{row.control_difference:.1e} | {word(row.equal_logits)} |", flush=True)
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} architectures hold.")
    if failed:
        sys.exit(f"these do not: {', '.join(failed)}")


if __name__ == "__main__":
    main()
