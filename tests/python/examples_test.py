"""The package `spillway`: its examples.

Usage: examples_test.py SOURCE_TREE
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
DIGITS = pathlib.Path(os.environ.get("SPILLWAY_DIGITS") or
                      pathlib.Path.home() / ".cache/spillway/scikit-learn-1.6.1/digits.csv")


def needs(*modules):
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}; run scripts/python.sh")


needs_digits = unittest.skipIf(not DIGITS.is_file(), "run: bash scripts/data.sh digits")


class ExamplesTest(unittest.TestCase):
    def run_example(self, name, *arguments):
        done = subprocess.run([sys.executable, str(ROOT / "examples" / name), *map(str, arguments)],
                              text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @needs("pandas")
    @needs_digits
    def test_fits_a_table(self):
        shown = self.run_example("autogluon_fit.py", DIGITS, 1)
        scores = [float(score) for score in re.findall(r"lr=\S+ +(\S+)", shown)]
        self.assertEqual(len(scores), 12)
        self.assertEqual(scores, sorted(scores, reverse=True))
        accuracy = float(re.search(r"accuracy on new digits: (\S+)", shown)[1])
        self.assertGreater(accuracy, 0.6)  # by chance: 0.1

    @needs("optuna", "transformers", "accelerate")
    def test_searches_as_a_trainer_does(self):
        shown = self.run_example("hyperparameter_search.py", ROOT / "README.md", 6)
        self.assertRegex(shown, "6 trials, [1-5] of them pruned")
        loss = float(re.search(r"evaluation loss (\S+),", shown)[1])
        self.assertLess(loss, 4.5)  # of 256 equal bytes: 5.5
        self.assertRegex(shown, "'learning_rate': .*'per_device_train_batch_size': (8|16)")

    @needs("optuna")
    @needs_digits
    def test_searches_with_optuna(self):
        shown = self.run_example("optuna_digits.py", DIGITS)
        self.assertEqual(shown, self.run_example("optuna_digits.py", DIGITS, 2))
        self.assertEqual(len(re.findall("COMPLETE|PRUNED", shown)), 12)


if __name__ == "__main__":
    unittest.main()
