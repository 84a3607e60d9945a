"""Searches with Ray Tune on request. Reads a line of JSON per search from standard input and
answers with one. It needs Ray and PyTorch; Ray is started once, before the first search.
"""

import json
import os
import pathlib
import sys
import tempfile
import time

os.environ["PYTHONPATH"] += os.pathsep + str(pathlib.Path(__file__).resolve().parent)
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_AIR_NEW_OUTPUT="0",
                  RAY_worker_niceness="0")  # not below all other programs, which is the default

import ray  # noqa: E402
from ray import tune  # noqa: E402
from ray.tune import schedulers  # noqa: E402

CPUS = 2


def trainable(config, request):
    import torch  # noqa: PLC0415  # in Ray's process
    from torch_trial import TorchTrial  # noqa: PLC0415

    began = time.time()
    trial = TorchTrial(request["problem"], config, request["seed"] * 1000 + config["number"],
                       request["eval_batches"], request["eval_fraction"])
    given = tune.get_checkpoint()
    if given:
        with given.as_directory() as folder:
            trial.take(torch.load(f"{folder}/state.pt"), config["learning_rate"])
    for step in request["at_steps"]:
        if step <= trial.step:
            continue
        before = trial.step
        trial.train_to(step)
        result = {"loss": trial.evaluate(), "step": step, "trained": step - before,
                  "began": began, "at": time.time()}
        if request["method"] != "pbt":
            tune.report(result)
            continue
        with tempfile.TemporaryDirectory() as folder:
            torch.save(trial.state(), f"{folder}/state.pt")
            tune.report(result, checkpoint=tune.Checkpoint.from_directory(folder))


class Watch(tune.Callback):
    def __init__(self):
        self.results = []

    def on_trial_result(self, iteration, trials, trial, result, **info):
        taken = {key: result[key] for key in ("step", "loss", "trained", "began", "at")}
        self.results.append({**taken, "number": trials.index(trial)})


def scheduler_of(request):
    at = request["at_steps"]
    if request["method"] == "asha":
        return schedulers.ASHAScheduler(
            time_attr="step", metric="loss", mode="min", max_t=at[-1], grace_period=at[0],
            reduction_factor=request["eta"])
    if request["method"] == "pbt":
        return schedulers.PopulationBasedTraining(
            time_attr="step", metric="loss", mode="min", perturbation_interval=at[0],
            hyperparam_mutations={"learning_rate": tune.loguniform(1e-9, 1e3)},
            resample_probability=0, synch=True)
    return schedulers.FIFOScheduler()


def search(request, folder):
    watch, begin = Watch(), time.time()
    values = [{**one, "number": i} for i, one in enumerate(request["trials"])]
    tune.Tuner(
        tune.with_resources(tune.with_parameters(trainable, request=request), {"cpu": 1}),
        param_space={key: tune.uniform(0, 1) for key in values[0]},  # replaced by the points
        tune_config=tune.TuneConfig(
            search_alg=tune.search.BasicVariantGenerator(points_to_evaluate=values),
            num_samples=len(values), scheduler=scheduler_of(request), reuse_actors=True),
        run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[watch]),
    ).fit()
    wall_s = time.time() - begin
    first = min(result["began"] for result in watch.results)
    evals = sorted((result["at"] - begin, result["number"], result["step"], result["loss"],
                    result["trained"]) for result in watch.results)
    return {"start_s": first - begin, "wall_s": wall_s, "evals": evals,
            "steps": sum(result["trained"] for result in watch.results)}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints
    begin = time.time()
    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="error")
    print(json.dumps({"init_s": time.time() - begin, "ray": ray.__version__}), file=answers,
          flush=True)
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder:
            answer = search(json.loads(line), folder)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
