"""Fits a table as AutoGluon does: many networks at once on one small device, the best one predicts.

    python examples/autogluon_fit.py DIGITS.csv [SECONDS]
"""

import sys
import tempfile

import numpy as np
import pandas as pd
import torch
from torch import nn

import spillway as sp

# Hidden sizes, dropout and learning rate of each network.
PRESETS = {
    "medium_quality": [((64,), 0.0, 3e-3), ((128, 128), 0.1, 1e-3)],
    "best_quality": [(sizes, dropout, rate)
                     for sizes in ((64,), (128, 128), (256, 256, 256))
                     for dropout in (0.0, 0.2) for rate in (3e-3, 1e-3)],
}
BATCH = 32


class Predictor:
    """Predicts the column `label` of a table of numbers."""

    def __init__(self, label):
        self.label = label

    def fit(self, table, presets="medium_quality", time_limit=None, epochs=20, devices="8MiB"):
        """Trains the networks of `presets`, for at most `time_limit` seconds."""
        table = table.sample(frac=1, random_state=0)  # the last rows are for evaluation
        features = table.drop(columns=self.label).to_numpy(np.float32)
        self.mean, self.std = features.mean(0), features.std(0) + 1e-6
        self.classes, targets = np.unique(table[self.label], return_inverse=True)
        inputs = (features - self.mean) / self.std
        data = sp.data(inputs, targets, eval_fraction=0.2)
        steps = epochs * data.num_samples // BATCH
        self.fitted = [self._network(sizes, dropout) for sizes, dropout, _ in PRESETS[presets]]
        example = {"targets": torch.tensor(targets[:4]), "batch_size": 4, "metrics": ["accuracy"]}
        with tempfile.TemporaryDirectory() as folder, sp.Session(devices) as session:
            models = [sp.from_torch(net, torch.tensor(inputs[:4]), path=f"{folder}/{number}.spw",
                                    **example) for number, net in enumerate(self.fitted)]
            for model, (sizes, dropout, rate) in zip(models, PRESETS[presets], strict=True):
                session.submit(model, data, name=f"NN{sizes} dropout={dropout} lr={rate}",
                               batch_size=BATCH, max_steps=steps, learning_rate=rate,
                               eval_steps=max(1, steps // 20))
            if not session.wait(timeout=time_limit):
                for number in range(len(self.fitted)):
                    session.pause(number)
                session.wait()
            self._results = session.results()
            for number, net in enumerate(self.fitted):
                net.load_state_dict(session.state_dict(number))
        return self

    def leaderboard(self):
        """The networks, the best one first."""
        return pd.DataFrame(
            [{"model": result.name, "score_val": result.metrics.get("accuracy", 0.0),
              "eval_loss": result.eval_loss, "steps": result.steps, "state": result.state}
             for result in self._results]
        ).sort_values("score_val", ascending=False)

    def predict(self, table):
        """The label of each row."""
        features = table.drop(columns=self.label, errors="ignore").to_numpy(np.float32)
        best = self.fitted[self.leaderboard().index[0]].eval()
        with torch.no_grad():
            logits = best(torch.tensor((features - self.mean) / self.std))
        return pd.Series(self.classes[logits.argmax(1).numpy()], table.index, name=self.label)

    def _network(self, sizes, dropout):
        torch.manual_seed(0)
        layers, width = [], len(self.mean)
        for size in sizes:
            layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout)]
            width = size
        return nn.Sequential(*layers, nn.Linear(width, len(self.classes)))


if __name__ == "__main__":
    digits = pd.read_csv(sys.argv[1], header=None).rename(columns={64: "digit"})
    train, test = digits[:1400], digits[1400:]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else None
    predictor = Predictor("digit").fit(train, presets="best_quality", time_limit=seconds)
    print(predictor.leaderboard().to_string(index=False))
    print(f"accuracy on new digits: {(predictor.predict(test) == test.digit).mean():.3f}")
