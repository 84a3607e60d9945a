"""The problems and the methods of both systems. Times of trials are in units, see `unit`."""

FULL = 27  # units of a whole trial; with eta 3 and min_iter 1 unit it has rungs at 1, 3 and 9
ETA = 3
BUDGET = 6 * FULL  # units that each method may train in total

# `unit`: in steps.
PROBLEMS = {
    "digits": {"family": "mlp", "layers": 2, "width": 256, "batch": 64, "unit": 16},
    "cancer": {"family": "mlp", "layers": 2, "width": 256, "batch": 64, "unit": 16},
    "text": {"family": "gpt", "blocks": 2, "width": 64, "heads": 4, "positions": 32, "batch": 16,
             "unit": 8},
}
EVAL_BATCHES = 5
EVAL_FRACTION = 0.2

# `trials`: as many as use up the budget; where the rule decides how many that are, about as many.
# `at`: the units at which a trial is evaluated.
RUNGS = [1, 3, 9, FULL]
EVERY_THIRD = list(range(3, FULL + 1, 3))
METHODS = {
    "random": {"trials": 6, "at": EVERY_THIRD},
    "hyperband": {"trials": 54, "at": RUNGS,
                  "rule": {"type": "hyperband", "min_iter": 1, "eta": ETA}},
    "hyperband, all brackets": {"trials": 18, "at": RUNGS, "rule": {
        "type": "hyperband", "min_iter": 1, "eta": ETA, "brackets": "all"}},
    "asha": {"trials": 60, "at": RUNGS,
             "rule": {"type": "asha", "min_iter": 1, "eta": ETA, "max_concurrent_trials": 2}},
    "median": {"trials": 14, "at": EVERY_THIRD,
               "rule": {"type": "median", "min_iter": 3, "interval": 3}},
    "pbt": {"trials": 6, "at": [6, 12, 18, 24, FULL],
            "rule": {"type": "pbt", "min_iter": 6, "interval": 6}},
}
RAY_METHODS = ["asha", "pbt"]

# What is drawn, in the configuration's names. Ray's trials get the values that Spillway drew.
DRAWN = {
    "train.learning_rate": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-1},
    "train.weight_decay": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0},
    "model.dropout": {"min": 0.0, "max": 0.6},
}


def spillway_model(problem):
    if problem["family"] == "mlp":
        return {"family": "mlp", "num_hidden_layers": problem["layers"],
                "hidden_size": problem["width"]}
    return {"family": "gpt", "num_hidden_layers": problem["blocks"],
            "hidden_size": problem["width"], "num_attention_heads": problem["heads"],
            "max_position_embeddings": problem["positions"]}


def in_steps(rule, unit):
    return {key: value * unit if key in ("min_iter", "interval") else value
            for key, value in rule.items()}


def spillway_config(problem, path, method, seed):
    unit, rule = problem["unit"], method.get("rule")
    config = {
        "seed": seed,
        "devices": [{"kind": "cpu", "memory": "1GiB"}] * 2,
        "model": spillway_model(problem),
        "data": {"format": "digits" if problem["family"] == "mlp" else "bytes", "path": path,
                 "eval_fraction": EVAL_FRACTION},
        "train": {"batch_size": problem["batch"], "virtual_nodes": 1,
                  "max_steps": FULL * unit, "lr_scheduler_type": "constant",
                  "eval_batches": EVAL_BATCHES,
                  "eval_steps": 0 if rule else method["at"][0] * unit},
        "checkpoint": {"keep": 0},
        "sweep": {"method": "random", "run_cap": method["trials"], "parameters": DRAWN,
                  "metric": {"name": "eval_loss", "goal": "minimize"}},
    }
    if rule:
        config["sweep"]["early_terminate"] = in_steps(rule, unit)
    return config
