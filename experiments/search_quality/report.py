"""Tables of the searches, a row of rows.jsonl each."""

import statistics

import problems
import tables

SECONDS = [2, 4, 8, 16, 32]
SLACK = 1.03  # the brackets of Hyperband cannot use up the budget exactly


def within_budget(row):
    """(seconds, loss) of the evaluations until the budget is used up."""
    budget, trained, found = problems.BUDGET * problems.PROBLEMS[row["problem"]]["unit"], 0, []
    for seconds, _, _, loss, steps in row["evals"]:
        trained += steps
        if trained > SLACK * budget:
            break
        found.append((seconds, loss))
    return found


def best(row):
    return min(loss for _, loss in within_budget(row))


def best_until(row, seconds):
    return min((loss for time, loss in within_budget(row) if time <= seconds), default=None)


def seconds_to(row, loss):
    return next(time for time, seen in within_budget(row) if seen <= loss)


def groups(rows):
    """((problem, method), rows of Spillway by seed, rows of Ray by seed)."""
    for problem in problems.PROBLEMS:
        for method in problems.METHODS:
            ours, theirs = ({row["seed"]: row for row in rows
                             if (row["problem"], row["method"], row["system"]) ==
                             (problem, method, system)} for system in ("spillway", "ray"))
            if ours:
                yield (problem, method), ours, theirs


def print_quality(rows):
    print("\n## Best evaluation loss for the same number of steps\n")
    tables.print_head(["problem, method", "seeds", "steps over budget", "Spillway", "Ray Tune"])
    for (problem, method), ours, theirs in groups(rows):
        budget = problems.BUDGET * problems.PROBLEMS[problem]["unit"]
        tables.print_row([
            f"{problem}, {method}", str(len(ours)),
            tables.spread([row["steps"] / budget for row in ours.values()], 2),
            *(tables.spread([best(row) for row in side.values()], 3) if side else ""
              for side in (ours, theirs))])


def print_curves(rows):
    print("\n## Median of the best loss so far, by seconds since the start\n")
    tables.print_head(["problem, method", *(f"{seconds} s" for seconds in SECONDS), "end"])
    for (problem, method), ours, theirs in groups(rows):
        for system, side in (("Spillway", ours), ("Ray Tune", theirs)):
            if not side:
                continue
            cells = []
            for seconds in [*SECONDS, float("inf")]:
                seen = [best_until(row, seconds) for row in side.values()]
                cells.append("-" if None in seen else f"{statistics.median(seen):.3f}")
            tables.print_row([f"{problem}, {method}, {system}", *cells])


def print_times(rows):
    print("\n## Seconds to the same loss: the worse one of both sides' best\n")
    tables.print_head(["problem, method", "pairs", "Spillway", "Ray Tune", "ratio",
                       "start, Spillway", "start, Ray Tune", "ratio without start"])
    for (problem, method), ours, theirs in groups(rows):
        pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
        if not pairs:
            continue
        reached = [[seconds_to(row, max(map(best, pair))) for row in pair] for pair in pairs]
        trained = [[time - row["start_s"] for time, row in zip(times, pair)]
                   for times, pair in zip(reached, pairs)]
        tables.print_row([
            f"{problem}, {method}", str(len(pairs)),
            *(tables.spread([times[side] for times in reached], 1) for side in (0, 1)),
            tables.spread([a / b for a, b in reached], 2),
            *(tables.spread([pair[side]["start_s"] for pair in pairs], 1) for side in (0, 1)),
            tables.spread([a / b for a, b in trained], 2)])


def print_tables(rows):
    print_quality(rows)
    print_times(rows)
    print_curves(rows)
    print(f"\nLoad of the machine before a search: "
          f"{tables.spread([row['load'] for row in rows], 1)}.")
