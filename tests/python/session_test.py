"""The package `spillway`: sessions."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

import numpy as np
import torch

import spillway as sp

STEPS = 12


def model():
    return sp.mlp(hidden_size=64, num_hidden_layers=4)


def samples(count=96):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 17, (count, 64), generator=generator)
    return inputs, inputs[:, :10].argmax(1)


def submit(session, steps=STEPS, **values):
    settings = {"batch_size": 16, "virtual_nodes": 4, "learning_rate": 0.01, **values}
    return session.submit(model(), sp.data(*samples()), max_steps=steps, **settings)


def alone(**values):
    with sp.Session("64MiB") as session:
        trial = submit(session, **values)
        session.wait()
        return session.result(trial).weights_xxh3


def run_python(text, **options):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(text)], text=True,
                          capture_output=True, check=False, timeout=300, **options)


HELPERS = f"""
import os, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from session_test import *
"""


class SessionTest(unittest.TestCase):
    def test_trains_to_the_end(self):
        with sp.Session("64MiB") as session:
            trial = submit(session, name="a")
            self.assertTrue(session.wait(trial))
            result = session.result(trial)
        self.assertEqual((result.name, result.state, result.steps), ("a", "done", STEPS))
        self.assertLess(result.final_loss, result.first_loss)
        self.assertEqual(len(result.losses), STEPS)

    def test_has_equal_bits_under_any_budget_and_in_any_company(self):
        expected = alone()
        with sp.Session("64MiB") as session:
            trial = submit(session, until=1)
            smallest = session.plan(trial).smallest_budget_bytes
        with sp.Session([smallest, smallest]) as session:
            trials = [submit(session, data_parallel=2), submit(session, seed=2), submit(session)]
            session.wait()
            bits = [session.result(trial).weights_xxh3 for trial in trials]
            self.assertGreater(session.result(trials[0]).num_shards, 1)
        self.assertEqual([bits[0], bits[2]], [expected, expected])
        self.assertNotEqual(bits[1], expected)

    def test_trains_graphs_of_convolutions(self):
        pixels, classes = samples()
        conv = {"type": "conv", "out_channels": 8, "kernel_size": 3, "batch_norm": True}
        sizes = {"num_channels": 1, "image_size": 8, "num_classes": 10, "input_scale": 1 / 16}

        def bits(*first):
            layers = [*first, {"type": "linear", "out_features": 10}]
            with sp.Session("64MiB") as session:
                trial = session.submit(sp.cnn(layers=layers, **sizes),
                                       sp.data(pixels.view(-1, 1, 8, 8), classes), batch_size=16,
                                       max_steps=STEPS, learning_rate=0.01)
                session.wait()
                result = session.result(trial)
            self.assertLess(result.final_loss, result.first_loss)
            return result.weights_xxh3

        expected = bits({**conv, "kernel_size": [3, 3], "stride": 1})
        self.assertEqual(bits(conv), expected)
        self.assertNotEqual(bits({**conv, "activation": "relu"}), expected)
        with self.assertRaisesRegex(sp.ConfigError, r"model.layers\[0\].kernel_size: is 9 x 9"):
            sp.cnn(layers=[{**conv, "kernel_size": 9}], **sizes)

    def test_trains_recurrent_networks(self):
        def bits(**fields):
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write("to be or not to be " * 100)
                file.flush()
                with sp.Session("64MiB") as session:
                    trial = session.submit(
                        sp.rnn(preset="rnnlm", hidden_size=16, max_position_embeddings=10,
                               **fields),
                        sp.bytes_data(file.name, 10), batch_size=16, virtual_nodes=4,
                        max_steps=STEPS, learning_rate=0.01)
                    session.wait()
                    result = session.result(trial)
            self.assertLess(result.final_loss, result.first_loss)
            return result.weights_xxh3

        expected = bits()
        self.assertEqual(bits(chunk_steps=10), expected)
        self.assertNotEqual(bits(chunk_steps=4), expected)
        with self.assertRaisesRegex(sp.ConfigError, "chunk_steps: is '0', must be"):
            sp.rnn(chunk_steps=0)

    def test_has_equal_bits_with_a_strategy(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write('{spillway_strategy: 1, place: [{layers: "h.[12]", tracks: [1]}]}')
            file.flush()
            links = [{"between": [0, 1], "rate": "100MB/s", "latency": 1e-4}]
            with sp.Session(["64MiB", "64MiB"], links=links) as session:
                trial = submit(session, strategy=file.name)
                session.wait()
                self.assertEqual(session.plan(trial).order, "strategy")
                self.assertEqual(session.result(trial).weights_xxh3, alone())
            with self.assertRaisesRegex(sp.ConfigError, r"links\[0\].between: names device 1, but"):
                sp.Session("64MiB", links=links)

    def test_searches_for_a_strategy(self):
        # Loading the weights takes so long that no load of the machine changes what is fastest.
        large = sp.mlp(hidden_size=512, num_hidden_layers=4)
        devices = [{"memory": "64MiB", "imitate": {"link": "1MiB/s"}} for _ in range(2)]
        values = {"batch_size": 16, "virtual_nodes": 4, "learning_rate": 0.01, "max_steps": STEPS}

        def bits(devices, **strategy):
            with sp.Session(devices) as session:
                trial = session.submit(large, sp.data(*samples()), **values, **strategy)
                session.wait()
                return session.result(trial).weights_xxh3

        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "found.yaml"
            found = sp.search_strategy(large, sp.data(*samples()), path, devices=devices,
                                       proposals=40, **values)
            self.assertIn("pipeline of 2", [each.name for each in found.known])
            self.assertLessEqual(found.best.cost.step_s, found.known[0].cost.step_s)
            self.assertTrue(found.best.has_strategy)
            with self.assertRaisesRegex(sp.ConfigError, "path: is .*, which exists"):
                sp.search_strategy(large, sp.data(*samples()), path, devices=devices, **values)
            self.assertEqual(bits(["64MiB", "64MiB"], strategy=str(path)), bits("64MiB"))

    def test_waits_at_a_step_and_goes_on_with_the_same_bits(self):
        with sp.Session("64MiB") as session:
            trial = submit(session, until=5)
            session.wait(trial)
            self.assertEqual(session.result(trial).state, "paused")
            self.assertEqual(session.result(trial).steps, 5)
            session.extend(trial, until=STEPS)
            session.wait(trial)
            self.assertEqual(session.result(trial).weights_xxh3, alone())

    def test_tells_what_happens(self):
        with sp.Session("64MiB") as session:
            trial = submit(session, eval_steps=4)
            events = list(session.follow())
        steps = [event.step for event in events if event.kind == "step"]
        self.assertEqual(steps, list(range(1, STEPS + 1)))
        self.assertEqual(events[-1].state, "done")
        self.assertEqual({event.trial for event in events}, {trial})

    def test_gives_weights_predictions_and_evaluations(self):
        with sp.Session("64MiB") as session:
            trial = submit(session)
            session.wait()
            state = session.state_dict(trial)
            inputs, targets = samples(32)
            logits = session.predict(trial, sp.data(inputs, targets))
            evaluation = session.evaluate(trial, sp.data(inputs, targets))
        self.assertEqual(tuple(logits.shape), (32, 10))
        loss = torch.nn.functional.cross_entropy(logits, targets)
        self.assertAlmostEqual(evaluation.loss, loss.item(), places=5)
        self.assertAlmostEqual(evaluation.metrics["accuracy"],
                               (logits.argmax(1) == targets).float().mean().item(), places=6)
        self.assertTrue(all(tensor.dtype == torch.float32 for tensor in state.values()))

    def test_reads_arrays_in_place(self):
        inputs, targets = samples()
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "x.npy"
            np.save(file, inputs.numpy())
            mapped = np.load(file, mmap_mode="r")
            with sp.Session("64MiB") as session:
                trial = session.submit(
                    model(), sp.data(mapped, targets.numpy().astype(np.uint8)), batch_size=16,
                    virtual_nodes=4, learning_rate=0.01, max_steps=STEPS)
                session.wait()
                self.assertEqual(session.result(trial).weights_xxh3, alone())

    def test_changes_values_and_clones(self):
        with tempfile.TemporaryDirectory() as folder, sp.Session("64MiB") as session:
            first = submit(session, until=4, checkpoint_dir=f"{folder}/a", trial_id="a")
            session.wait(first)
            copy = session.clone(first, trial_id="b", checkpoint_dir=f"{folder}/b")
            self.assertEqual(session.set(first, learning_rate=0.02), 4)
            session.extend(first, until=STEPS)
            session.wait()
            self.assertEqual(session.result(copy).weights_xxh3, alone())
            self.assertNotEqual(session.result(first).weights_xxh3, alone())

    def test_stops_and_resumes_from_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            with sp.Session("64MiB") as session:
                trial = submit(session, checkpoint_dir=folder, until=7)
                session.wait()
                session.stop(trial)
                session.wait()
                self.assertEqual(session.result(trial).state, "stopped")
            # The build is that of the extension module, not of the interpreter.
            build = f"build program {os.path.getsize(sp._core.__file__)} "
            manifests = [path.read_text() for path in pathlib.Path(folder).rglob("MANIFEST")]
            self.assertTrue(manifests and all(build in text for text in manifests))
            with sp.Session("64MiB") as session:
                trial = submit(session, checkpoint_dir=folder)
                kinds = [event.kind for event in session.follow()]
                self.assertIn("resumed", kinds)
                self.assertEqual(session.result(trial).weights_xxh3, alone())

    def test_makes_a_table(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            self.skipTest("pandas is not installed")
        with sp.Session("64MiB") as session:
            submit(session, name="a", eval_steps=6)
            session.wait()
            table = session.results().to_pandas()
        self.assertEqual(list(table["name"]), ["a"])
        self.assertEqual(list(table["state"]), ["done"])


class ErrorTest(unittest.TestCase):
    def test_names_the_field(self):
        with sp.Session("64MiB") as session:
            with self.assertRaises(sp.ConfigError) as raised:
                submit(session, learning_rate=-1)
        self.assertEqual(raised.exception.field, "train.learning_rate")
        self.assertIsInstance(raised.exception, ValueError)

    def test_suggests_a_key(self):
        with sp.Session("64MiB") as session:
            with self.assertRaisesRegex(sp.ConfigError, "learning_rate"):
                submit(session, lerning_rate=1)

    def test_gives_the_smallest_budget(self):
        with sp.Session("8KiB") as session:
            with self.assertRaises(sp.DoesNotFit) as raised:
                submit(session)
        smallest = raised.exception.smallest_budget
        self.assertIsInstance(raised.exception, MemoryError)
        with sp.Session(smallest) as session:
            trial = submit(session)
            session.wait()
            self.assertEqual(session.result(trial).weights_xxh3, alone())

    def test_refuses_other_arrays(self):
        with self.assertRaisesRegex(sp.ConfigError, "Double"):
            sp.data(torch.zeros(4, 6, dtype=torch.float64), torch.zeros(4))
        with self.assertRaisesRegex(sp.ConfigError, "same number of samples in each tensor"):
            sp.data(torch.zeros(4, 6), torch.zeros(3))
        with self.assertRaisesRegex(sp.Error, "no trial 7"):
            with sp.Session("64MiB") as session:
                session.pause(7)


class GuestTest(unittest.TestCase):
    """What a session may not do to the process that it is in."""

    def test_hears_ctrl_c_while_it_waits(self):
        with sp.Session("64MiB") as session:
            trial = submit(session, steps=1_000_000)
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            with self.assertRaises(KeyboardInterrupt):
                session.wait()
            self.assertIn(session.result(trial).state, ("running", "waiting"))
            session.stop()

    def test_leaves_threads_and_random_state_alone(self):
        torch.set_num_threads(2)
        torch.manual_seed(5)
        expected = torch.rand(4)
        torch.manual_seed(5)
        alone()
        self.assertEqual(torch.get_num_threads(), 2)
        self.assertTrue(torch.equal(torch.rand(4), expected))

    def test_lives_beside_forked_workers(self):
        ended = run_python(HELPERS + """
from torch.utils.data import DataLoader, TensorDataset
expected = alone()
with sp.Session("64MiB") as session:
    trial = submit(session, steps=400)
    for _ in range(3):
        rows = sum(len(x) for x, _ in DataLoader(TensorDataset(*samples()), 8, num_workers=2))
        assert rows == 96, rows
    if os.fork() == 0:
        try:
            session.results()
        except sp.Error as error:
            sys.exit(0 if "parent" in str(error) else 3)
        sys.exit(4)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    session.wait()
    assert session.result(trial).state == "done"
assert alone() == expected
""")
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_trains_on_while_a_model_is_exported(self):
        """Convolutions, whose bits depend on a flag that torch.export changes."""
        with tempfile.TemporaryDirectory() as folder, sp.Session("64MiB") as session:
            def submit(until):
                return session.submit(sp.resnet(hidden_sizes=[8], depths=[1]), sp.data(*samples()),
                                      batch_size=16, max_steps=STEPS, until=until)

            class Trains(torch.nn.Linear):
                def forward(self, x):
                    session.extend(beside, until=STEPS)
                    session.wait()
                    return super().forward(x)

            alone, beside = submit(STEPS), submit(1)
            session.wait()
            sp.from_torch(Trains(8, 3), torch.zeros(4, 8), path=f"{folder}/net.spw")
            with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
                control = submit(STEPS)
                session.wait()
            self.assertEqual(session.result(beside).reason, "")
            bits = [session.result(trial).weights_xxh3 for trial in (alone, beside, control)]
        self.assertEqual(bits[0], bits[1])
        self.assertNotEqual(bits[0], bits[2])

    def test_saves_trials_when_the_interpreter_exits(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = run_python(HELPERS + f"""
session = sp.Session("64MiB")
trial = submit(session, steps={STEPS}, until=5, checkpoint_dir={folder!r})
session.wait()
submit(session, steps=1_000_000)
""")
            self.assertEqual(ended.returncode, 0, ended.stderr)
            with sp.Session("64MiB") as session:
                trial = submit(session, checkpoint_dir=folder)
                steps = [event.step for event in session.follow() if event.kind == "resumed"]
                self.assertEqual(steps, [5])
                self.assertEqual(session.result(trial).weights_xxh3, alone())


if __name__ == "__main__":
    unittest.main()
