#!/usr/bin/env python3
"""Searches of hyperparameters by Spillway and by Ray Tune, in turns; prints Markdown tables.

Usage: search_quality.py BIN TEXT [DIGITS] [--brief], BIN: folder of the programs; PYTHONPATH must
contain PyTorch.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "support"))
import cancer  # noqa: E402
import choices  # noqa: E402
import problems  # noqa: E402
import report  # noqa: E402
import spillway_run  # noqa: E402
import spillway_search  # noqa: E402


class Ray:
    """The process that searches with Ray Tune."""

    def __init__(self, python):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([python, str(HERE / "ray_search.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        self.started = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"ray_search.py ended: {self.errors.read()}")
        return json.loads(line)

    def search(self, problem, path, method, seed, trials):
        rule = problems.METHODS[method]
        request = {"problem": {**problem, "path": path}, "method": method, "seed": seed,
                   "trials": trials[:rule["trials"]], "eta": problems.ETA,
                   "at_steps": [unit * problem["unit"] for unit in rule["at"]],
                   "eval_batches": problems.EVAL_BATCHES,
                   "eval_fraction": problems.EVAL_FRACTION}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Rows:
    """The results of all searches, one line of JSON each; a later call continues them."""

    def __init__(self, path):
        self.path = path
        self.rows = ([json.loads(line) for line in path.read_text().splitlines()]
                     if path.exists() else [])

    def has(self, **key):
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, row):
        self.rows.append(row)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def data_script(name):
    return subprocess.run(["bash", str(ROOT / "scripts/data.sh"), name], check=True,
                          capture_output=True, text=True).stdout.strip()


def searches(seed):
    """(method, system): each system is the first for every other seed."""
    systems = ["spillway", "ray"] if seed % 2 else ["ray", "spillway"]
    for method in problems.METHODS:
        for system in systems:
            if system == "spillway" or method in problems.RAY_METHODS:
                yield method, system


def run_seed(program, ray, rows, name, path, seed, only):
    problem = problems.PROBLEMS[name]
    missing = [(method, system) for method, system in searches(seed)
               if (ray or system == "spillway") and only in ("", f"{name},{method}") and not
               rows.has(problem=name, seed=seed, method=method, system=system)]
    if not missing:
        return
    most = max(problems.METHODS.values(), key=lambda method: method["trials"])
    trials = spillway_search.draws(
        program, problems.spillway_config(problem, path, {**most, "at": [problems.FULL]}, seed))
    for method, system in missing:
        load = os.getloadavg()[0]
        if system == "spillway":
            config = problems.spillway_config(problem, path, problems.METHODS[method], seed)
            found = spillway_search.search(program, config)
        else:
            found = ray.search(problem, path, method, seed, trials)
        rows.add({"problem": name, "seed": seed, "method": method, "system": system,
                  "load": load, **found})


def run_searches(arguments, paths, ray, seeds, rows_file):
    rows = Rows(rows_file)
    for seed in range(1, seeds + 1):
        for name, path in paths.items():
            run_seed(f"{arguments.bin}/spillway", ray, rows, name, path, seed, arguments.only)
    report.print_tables(rows.rows)


def run_brief(arguments, folder):
    """A seed of Spillway alone: Ray is not a package of the build."""
    problems.PROBLEMS["text"]["unit"] = 1
    run_searches(arguments, {"text": arguments.text}, None, 1, folder / "rows.jsonl")


def run_all(arguments, folder):
    paths = {"digits": arguments.digits, "cancer": str(folder / "cancer.csv"),
             "text": arguments.text}
    cancer.write(data_script("breast_cancer"), paths["cancer"])
    python = data_script("ray")
    if not arguments.only:
        print("## Choices on recorded losses\n")
        choices.print_table(f"{arguments.bin}/spillway", python, paths)
    ray = Ray(python)
    try:
        run_searches(arguments, paths, ray, arguments.seeds, arguments.rows)
    finally:
        ray.close()


def main():
    parser = spillway_run.parser("one seed of tiny searches, no Ray")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", metavar="PROBLEM,METHOD")
    parser.add_argument("--rows", type=pathlib.Path, default=ROOT / "build/search_quality.jsonl",
                        help="searches so far, which are not repeated; delete it to begin again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (run_brief if arguments.brief else run_all)(arguments, pathlib.Path(folder))


if __name__ == "__main__":
    main()
