"""What Ray Tune's schedulers and Optuna's pruner choose, given recorded losses. Reads JSON from
standard input and prints JSON; times are in units.

`sequential`: trials come one after the other. `brackets`: lists of trials, the one that is compared
first as the last. `population`: losses of all trials at each of several times.
"""

import json
import sys

import optuna
from ray.tune import schedulers, uniform
from ray.tune.experiment import Trial
from ray.tune.schedulers.pbt import _PBTTrialState


class FakeTrial:
    """As much of a trial as schedulers look at."""

    is_saving, experiment_tag = False, ""

    def __init__(self, number):
        self.trial_id, self.status = str(number), Trial.RUNNING

    def is_finished(self):
        return False


class FakeController:
    """As much of Ray's controller as schedulers call."""

    def __init__(self, scheduler):
        self.scheduler = scheduler

    def get_live_trials(self):
        return []

    def stop_trial(self, trial):
        trial.status = Trial.TERMINATED
        self.scheduler.on_trial_remove(self, trial)


def ends_with(scheduler, times, traces):
    """The time at which each trial ends."""
    ends = []
    for number, trace in enumerate(traces):
        trial = FakeTrial(number)
        scheduler.on_trial_add(None, trial)
        for time, loss in zip(times, trace):
            ends += [time] * (time == times[-1])
            result = {"time": time, "loss": loss}
            action = scheduler.on_trial_result(FakeController(scheduler), trial, result)
            if action == schedulers.TrialScheduler.STOP and time != times[-1]:
                ends.append(time)
                break
    return ends


def ends_with_optuna(eta, times, traces):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner(
        min_resource=times[0], reduction_factor=eta))
    ends = []
    for trace in traces:
        trial = study.ask()
        for time, loss in zip(times, trace):
            trial.report(loss, time)
            if time == times[-1] or trial.should_prune():
                break
        study.tell(trial, loss)
        ends.append(time)
    return ends


def ends_in_brackets(eta, full, brackets, traces):
    """`traces`: by trial, losses by time."""
    scheduler = schedulers.HyperBandScheduler(time_attr="time", metric="loss", mode="min",
                                              max_t=full, reduction_factor=eta)
    controller, ends, first = FakeController(scheduler), {}, full
    added = [[FakeTrial(number) for number in bracket] for bracket in brackets]
    for bracket in added:
        for trial in bracket:
            scheduler.on_trial_add(controller, trial)
    for bracket in added:
        time = first
        while bracket:
            for trial in bracket:
                trial.status = Trial.RUNNING
                result = {"time": time, "loss": traces[trial.trial_id][str(time)]}
                action = scheduler.on_trial_result(controller, trial, result)
                if trial.status == Trial.RUNNING and action != schedulers.TrialScheduler.CONTINUE:
                    trial.status = (Trial.TERMINATED if action == schedulers.TrialScheduler.STOP
                                    else Trial.PAUSED)
            ends.update((int(trial.trial_id), time) for trial in bracket
                        if trial.status == Trial.TERMINATED)
            bracket = [trial for trial in bracket if trial.status != Trial.TERMINATED]
            time *= eta
        first //= eta
    return [ends[number] for number in sorted(ends)]


def quantiles(population):
    """(worst, best) at each time."""
    found = []
    for losses in population:
        scheduler = schedulers.PopulationBasedTraining(
            time_attr="time", metric="loss", mode="min",
            hyperparam_mutations={"learning_rate": uniform(0, 1)})
        for number, loss in enumerate(losses):
            trial = FakeTrial(number)
            state = scheduler._trial_state[trial] = _PBTTrialState(trial)
            state.last_score = -loss
        found.append([sorted(int(trial.trial_id) for trial in part)
                      for part in scheduler._quantiles()])
    return found


def main():
    asked = json.load(sys.stdin)
    eta, full = asked["eta"], asked["full"]
    asha, median = asked["asha"], asked["median"]
    by_metric = {"time_attr": "time", "metric": "loss", "mode": "min"}
    print(json.dumps({
        "asha of Optuna": ends_with_optuna(eta, asha["times"], asha["traces"]),
        "asha of Ray": ends_with(
            schedulers.ASHAScheduler(**by_metric, max_t=full, grace_period=asha["times"][0],
                                     reduction_factor=eta), asha["times"], asha["traces"]),
        "median": ends_with(
            schedulers.MedianStoppingRule(**by_metric, grace_period=median["times"][0]),
            median["times"], median["traces"]),
        "hyperband": ends_in_brackets(eta, full, **asked["hyperband"]),
        "pbt": quantiles(asked["pbt"]),
    }))


if __name__ == "__main__":
    main()
