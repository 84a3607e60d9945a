"""Prints what holds for each architecture; names of some as arguments; --gpu: on the first GPU."""

import argparse
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
import matrix
from models import ARCHITECTURES


def word(holds: bool) -> str:
    return "yes" if holds else "**no**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--gpu", action="store_true")
    given = parser.parse_args()
    matrix.on_gpu = given.gpu
    chosen = [each for each in ARCHITECTURES if not given.names or each.name in given.names]
    print(f"transformers {transformers.__version__}\n")
    print("| architecture | layers | shards | equal bits | other nodes differ | largest difference "
          "of a loss | control | logits equal | in pieces | bits of pieces equal | difference of "
          "their losses |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    failed = []
    for architecture in chosen:
        row = matrix.measure(architecture)
        if not row.holds:
            failed.append(row.name)
        print(f"| {row.name} | {row.layers} | {row.shards} | {word(row.equal_bits)} | "
              f"{word(row.control_differs)} | {row.largest_difference:.1e} | "
              f"{row.control_difference:.1e} | {word(row.equal_logits)} | "
              f"{', '.join(row.pieces)} | {word(row.equal_pieces)} | "
              f"{row.pieces_difference:.1e} |", flush=True)
    print(f"\n{len(chosen) - len(failed)} of {len(chosen)} architectures hold.")
    if failed:
        sys.exit(f"these do not: {', '.join(failed)}")


if __name__ == "__main__":
    main()
