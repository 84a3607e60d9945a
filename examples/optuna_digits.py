"""Optuna searches an MLP for handwritten digits: the same study on any number of devices.

    python examples/optuna_digits.py DIGITS.csv [DEVICES]
"""

import sys

import numpy as np
import optuna

import spillway as sp
from spillway.optuna import optimize

rows = np.loadtxt(sys.argv[1], delimiter=",", dtype=np.int64)
devices = int(sys.argv[2]) if len(sys.argv) > 2 else 1
data = sp.data(rows[:, :64], rows[:, 64], eval_fraction=0.2)


def space(trial):
    return {
        "model": sp.mlp(hidden_size=trial.suggest_int("hidden_size", 32, 128, step=32)),
        "data": data,
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 0.1, log=True),
        "batch_size": 32,
        "max_steps": 90,
    }


optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=10))
with sp.Session(["64MiB"] * devices) as session:
    optimize(study, session, space, n_trials=12, quantum=10, at_once=6)
for trial in study.trials:
    print(trial.number, trial.state.name, trial.last_step, trial.params,
          list(trial.intermediate_values.values())[-1])
print("best:", study.best_trial.number, study.best_value)
