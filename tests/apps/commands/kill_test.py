#!/usr/bin/env python3
"""A sweep that is killed repeatedly, by SIGKILL at random times, and resumed on other devices, ends
like an undisturbed one: the same weights and metrics, no trial lost or doubled. Two times of three
it uses early stopping, which must stop the same trials for the same reasons.

Usage: kill_test.py SPILLWAY TEXT [KILLS] [SEED]
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "adversarial"))
from outcome import outcome  # noqa: E402

CONFIG = {
    "name": "killed",
    "devices": [{"memory": "16MiB"}],
    "model": {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2,
              "max_position_embeddings": 16, "dropout": 0.1},
    "train": {"batch_size": 8, "virtual_nodes": 4, "max_steps": 150, "eval_steps": 10,
              "eval_batches": 1},
    "checkpoint": {"every_steps": 4},
    "sweep": {"parameters": {"train.learning_rate": {"values": [1e-3, 2e-3, 3e-3]}}},
}
EARLY = {**CONFIG, "sweep": {
    "parameters": {"train.learning_rate": {"values": [1e-3, 2e-3, 3e-3, 4e-3, 5e-3]}},
    "early_terminate": {"type": "hyperband", "min_iter": 20, "eta": 2}}}
ASHA = {**CONFIG, "sweep": {**EARLY["sweep"], "early_terminate": {
    "type": "asha", "min_iter": 20, "eta": 2, "max_concurrent_trials": 2}}}
CONFIGS = (CONFIG, EARLY, ASHA)
DEVICES = ["[{memory: 16MiB}]", "[{memory: 1MiB}]", "[{memory: 16MiB}, {memory: 1MiB}]"]
class Instants:
    """The times of kills: later if the program takes longer to start, so that most runs make
    progress.
    """
    def __init__(self, chance):
        self.chance, self.latest_s = chance, 1.5

    def draw(self):
        return self.chance.uniform(0, self.latest_s)

    def killed(self, run):
        self.latest_s = max(1.5, self.latest_s * (1 / 1.02 if run.has_begun() else 1.5))


class Run:
    def __init__(self, program, config, folder, chance):
        self.program, self.config, self.folder, self.chance = program, config, folder, chance
        self.resumes = 0

    def has_begun(self):
        log = self.folder / "events.jsonl"
        return log.exists() and log.read_bytes().count(b"\n") > 0

    def command(self):
        if self.has_begun():
            self.resumes += 1
            devices = f"devices={self.chance.choice(DEVICES)}"
            if self.chance.random() < 0.5:
                return [self.program, "resume", self.folder, devices]
            return [self.program, "train", self.config, f"output_dir={self.folder}", devices,
                    "resume=auto"]
        again = self.chance.choice(["--overwrite", "resume=auto"])
        return [self.program, "train", self.config, f"output_dir={self.folder}", again]

    def attempt(self, seconds):
        """True if it ran to its end, False if it was killed after `seconds` seconds."""
        process = subprocess.Popen(self.command(), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        try:
            text, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return False
        if process.returncode != 0:
            sys.exit(f"{process.args}: exit code {process.returncode}\n{text}")
        return True


def main():
    program, text = sys.argv[1:3]
    usual = 20 * int(os.environ.get("SPILLWAY_CAMPAIGN", "1"))
    kills_wanted = int(sys.argv[3]) if len(sys.argv) > 3 else usual
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        configs, wholes = [], []
        for number, values in enumerate(CONFIGS):
            configs.append(root / f"config{number}.yaml")
            configs[-1].write_text(json.dumps({**values, "data": {"path": text}}))
            Run(program, configs[-1], root / f"whole{number}", chance).attempt(None)
            wholes.append(outcome(root / f"whole{number}"))
        if sum(trial[1] == "stopped early" for trial in wholes[1]["trials"]) != 4:
            sys.exit(f"not all but one of five were stopped early: {wholes[1]['trials']}")
        if all(trial[1] == "done" for trial in wholes[2]["trials"]):
            sys.exit(f"asha stopped nobody: {wholes[2]['trials']}")
        kills = runs = resumes = 0
        instants = Instants(chance)
        while kills < kills_wanted:
            which = (seed + runs) % len(CONFIGS)
            run = Run(program, configs[which], root / f"run{runs}", chance)
            while not run.attempt(instants.draw()):
                instants.killed(run)
                kills += 1
                if kills >= kills_wanted and run.attempt(None):
                    break
            if outcome(run.folder) != wholes[which]:
                sys.exit(f"run {runs} of seed {seed} ended otherwise than the undisturbed one")
            runs, resumes = runs + 1, resumes + run.resumes
        print(f"{kills} kills, {resumes} resumes, {runs} runs: all ended as the undisturbed one")
        if resumes < kills_wanted / 4:
            sys.exit("hardly any run was resumed: the test proves nothing here")


if __name__ == "__main__":
    main()
