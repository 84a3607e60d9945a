"""The package `spillway`: Ray Tune chooses what a session trains."""

import os
import sys
import tempfile
import unittest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
try:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
except ImportError:
    print("skipped: Ray is not installed; run scripts/python.sh")
    sys.exit(77)
import torch

import spillway as sp
from spillway.ray import SessionActor, trainable

STEPS = 12
QUANTUM = 3
RATES = [0.003, 0.001, 0.1, 0.3]


def space(config):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 17, (120, 64), generator=generator)
    return {
        "model": sp.mlp(hidden_size=32),
        "data": sp.data(inputs, inputs[:, :10].argmax(1), eval_fraction=0.2),
        "batch_size": 8,
        "max_steps": STEPS,
        **config,
    }


def alone(rate):
    """The evaluations of a trial that trains without Ray, by step."""
    with sp.Session("64MiB") as session:
        trial = session.submit(**space({"learning_rate": rate}), eval_steps=QUANTUM)
        session.wait()
        return dict(session.result(trial).eval_losses)


class Killer(tune.Callback):
    """Kills the session after its second report."""

    def __init__(self, actor):
        self._actor = actor

    def on_trial_result(self, iteration, trials, trial, result, **info):
        if result["steps"] == 2 * QUANTUM:
            ray.kill(self._actor)


def states(actor):
    """What became of trials in the session, by name."""
    return ray.get(actor.__ray_call__.remote(
        lambda self: {result.name: result.state for result in self._session.results()}))


class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=80 << 20)
        cls.addClassCleanup(ray.shutdown)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def tune(self, actor, rates, *callbacks, **options):
        tuner = tune.Tuner(
            trainable(actor, quantum=QUANTUM),
            param_space={"learning_rate": tune.grid_search(rates)},
            tune_config=tune.TuneConfig(metric="eval_loss", mode="min", max_concurrent_trials=2,
                                        reuse_actors=True, **options),
            run_config=tune.RunConfig(
                name="digits", storage_path=self.folder, verbose=0, callbacks=list(callbacks),
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1)),
        )
        return tuner.fit()

    def assert_reports(self, result, rate, steps):
        reported = result.metrics_dataframe
        self.assertEqual(list(reported["steps"]), steps)
        expected = alone(rate)
        self.assertEqual(list(reported["eval_loss"]), [expected[step] for step in steps])

    def test_trains_all_trials_in_one_session(self):
        actor = SessionActor.remote(space, ["64MiB"] * 2)
        scheduler = ASHAScheduler(time_attr="steps", grace_period=QUANTUM, max_t=STEPS + 1,
                                  reduction_factor=2)
        results = self.tune(actor, RATES, scheduler=scheduler)
        self.assertEqual(results.num_errors, 0)
        ends = {}
        for rate, result in zip(RATES, results, strict=True):
            end = result.metrics["steps"]
            self.assert_reports(result, rate, list(range(QUANTUM, end + 1, QUANTUM)))
            ends[result.metrics["trial_id"]] = "done" if end == STEPS else "stopped"
        self.assertEqual(states(actor), ends)
        self.assertEqual(set(ends.values()), {"done", "stopped"})
        self.assertNotEqual(alone(RATES[0]), alone(RATES[1]))
        best = results.get_best_result().metrics
        weights = ray.get(actor.state_dict.remote(best["trial_id"]))
        self.assertIn("head.weight", weights)

    def test_goes_on_with_a_restored_experiment(self):
        lost = SessionActor.remote(space, "64MiB")
        interrupted = self.tune(lost, RATES[:1], Killer(lost))
        self.assertEqual(interrupted.num_errors, 1)
        self.assertEqual(interrupted[0].metrics["steps"], 2 * QUANTUM)
        actor = SessionActor.remote(space, "64MiB")
        restored = tune.Tuner.restore(f"{self.folder}/digits", trainable(actor, quantum=QUANTUM),
                                      resume_errored=True).fit()
        self.assertEqual(restored.num_errors, 0)
        self.assert_reports(restored[0], RATES[0], list(range(QUANTUM, STEPS + 1, QUANTUM)))

    def test_says_why_a_trial_cannot_go_on(self):
        actor = SessionActor.remote(space, "64MiB")
        config = {"learning_rate": 0.01}
        ray.get(actor.train.remote("a", config, QUANTUM))
        ray.get(actor.stop.remote("a"))
        with self.assertRaisesRegex(sp.Error, "trial a is stopped: .*use ASHAScheduler"):
            ray.get(actor.train.remote("a", config, 2 * QUANTUM))
        with self.assertRaisesRegex(sp.ConfigError, "max_steps"):
            ray.get(actor.train.remote("b", {**config, "max_steps": 0}, QUANTUM))
        with self.assertRaisesRegex(sp.ConfigError, "quantum is 0"):
            trainable(actor, quantum=0)
        small = SessionActor.remote(space, "8KiB")
        with self.assertRaises(sp.DoesNotFit) as raised:
            ray.get(small.train.remote("a", config, QUANTUM))
        self.assertGreater(raised.exception.cause.smallest_budget, 8 << 10)


if __name__ == "__main__":
    unittest.main()
