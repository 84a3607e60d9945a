"""The package `spillway`: samples of a real `datasets.Dataset`."""

import sys
import tempfile
import unittest

try:
    import datasets
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import numpy as np

import spillway as sp

datasets.disable_progress_bars()
INPUTS = np.random.default_rng(0).integers(0, 17, (96, 64))
CLASSES = INPUTS[:, :10].argmax(1)


def bits(data):
    with sp.Session("64MiB") as session:
        trial = session.submit(sp.mlp(hidden_size=32), data, batch_size=16, max_steps=5)
        session.wait()
        return session.result(trial).weights_xxh3


class DatasetTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        datasets.Dataset.from_dict({"x": INPUTS.tolist(), "y": CLASSES.tolist()}).save_to_disk(
            folder.name)
        self.rows = datasets.load_from_disk(folder.name)  # in mapped files

    def test_has_the_bits_of_the_same_arrays(self):
        expected = bits(sp.data(INPUTS, CLASSES, eval_fraction=0.2))
        self.assertEqual(bits(sp.dataset(self.rows, ["x", "y"], eval_fraction=0.2)), expected)
        self.assertNotEqual(bits(sp.dataset(self.rows, ["x", "y"])), expected)

    def test_follows_the_order_of_a_shuffled_table(self):
        rows = self.rows.shuffle(seed=1)
        arrays = sp.data(np.array(rows["x"]), np.array(rows["y"]))
        self.assertEqual(bits(sp.dataset(rows, ["x", "y"])), bits(arrays))
        self.assertNotEqual(bits(sp.dataset(self.rows, ["x", "y"])), bits(arrays))

    def test_joins_tables_of_several_pieces(self):
        rows = datasets.concatenate_datasets([self.rows, self.rows])
        arrays = sp.data(np.concatenate([INPUTS, INPUTS]), np.concatenate([CLASSES, CLASSES]))
        self.assertEqual(bits(sp.dataset(rows, ["x", "y"])), bits(arrays))

    def test_refuses_rows_of_varying_length(self):
        rows = datasets.Dataset.from_dict({"x": [[1], [1, 2]], "y": [0, 1]})
        with self.assertRaisesRegex(sp.ConfigError, "column 'x' has rows of varying length"):
            sp.dataset(rows, ["x", "y"])


if __name__ == "__main__":
    unittest.main()
