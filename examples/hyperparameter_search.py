"""The hyperparameter search of a Trainer of Hugging Face, whose trials share one small device.

    python examples/hyperparameter_search.py TEXT [TRIALS]
"""

import sys
import tempfile

import optuna
import torch
import transformers
from transformers.trainer_utils import BestRun

import spillway as sp
from spillway.optuna import optimize

# Names of TrainingArguments that Spillway spells in another way.
NAMES = {"per_device_train_batch_size": "batch_size"}
PASSED = ("learning_rate", "weight_decay", "max_grad_norm", "per_device_train_batch_size",
          "max_steps", "seed")


class SpillwayTrainer(transformers.Trainer):
    """A Trainer of language models; its datasets have `input_ids` of one length."""

    def hyperparameter_search(self, hp_space, n_trials=20, direction="minimize",
                              backend=optuna.samplers.TPESampler, *, devices="2MiB"):
        """Trains `n_trials` trials of `hp_space` at once; `backend` is the sampler of Optuna."""
        train, evaluation = map(self._samples, (self.train_dataset, self.eval_dataset))
        data = sp.data(train, eval=[evaluation])

        def space(trial):
            arguments = {name: getattr(self.args, name) for name in PASSED} | hp_space(trial)
            values = {NAMES.get(name, name): value for name, value in arguments.items()}
            return {"model": model, "data": data, **values}

        quantum = max(1, self.args.max_steps // 4)
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=quantum, reduction_factor=2)
        study = optuna.create_study(direction=direction, pruner=pruner)
        with tempfile.TemporaryDirectory() as folder, sp.Session(devices) as session:
            self.model.save_pretrained(folder)
            model = sp.from_pretrained(folder, path=f"{folder}/net.spw",
                                       sequence_length=train.shape[1] - 1)
            optimize(study, session, space, n_trials=n_trials, quantum=quantum, sampler=backend)
        best = study.best_trial
        return BestRun(str(best.number), best.value, best.params, study)

    @staticmethod
    def _samples(dataset):
        return torch.stack([torch.as_tensor(row["input_ids"]) for row in dataset])


def samples(path, length=33):
    """Pieces of a text as bytes, for training and for evaluation."""
    with open(path, "rb") as file:
        ids = torch.frombuffer(bytearray(file.read(length * 400)), dtype=torch.uint8).long()
    pieces = ids[: len(ids) // length * length].view(-1, length)
    rows = [{"input_ids": piece, "labels": piece} for piece in pieces]
    return rows[len(rows) // 5:], rows[: len(rows) // 5]


def model_init():
    transformers.set_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=32, n_embd=64, n_layer=2, n_head=4,
        bos_token_id=None, eos_token_id=None))


def hp_space(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        "weight_decay": trial.suggest_float("weight_decay", 0.0, 0.1),
        "per_device_train_batch_size": trial.suggest_categorical(
            "per_device_train_batch_size", [8, 16]),
    }


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    train, evaluation = samples(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(folder, max_steps=40, report_to="none",
                                                   use_cpu=True)
        trainer = SpillwayTrainer(model_init=model_init, args=arguments, train_dataset=train,
                                  eval_dataset=evaluation)
        trials = int(sys.argv[2]) if len(sys.argv) > 2 else 12
        best = trainer.hyperparameter_search(hp_space, n_trials=trials)
    pruned = sum(trial.state.name == "PRUNED" for trial in best.run_summary.trials)
    print(f"{trials} trials, {pruned} of them pruned")
    print(f"best: trial {best.run_id}, evaluation loss {best.objective:.3f}, "
          f"{best.hyperparameters}")
