"""The package `spillway`: sweeps over the nodes of Ray, one of which is lost."""

import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
try:
    import ray
    from ray.cluster_utils import Cluster
except ImportError:
    print("skipped: Ray is not installed; run scripts/python.sh")
    sys.exit(77)

import spillway as sp
from shares_test import CONFIG, rows
from spillway.ray import sweep

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
SLOW = "devices=[{memory: 64MiB, imitate: {slowdown: 30}}]"


class RaySweepTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "text").write_bytes(bytes(range(32, 127)) * 100)
        self.config = self.folder / "sweep.yaml"
        self.config.write_text(json.dumps({**CONFIG, "data_root": str(self.folder)}))
        self.out = self.folder / "out"

    def test_survives_the_loss_of_a_node(self):
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
        self.addCleanup(cluster.shutdown)
        nodes = [cluster.add_node(**NODE) for _ in range(2)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        self.addCleanup(ray.shutdown)

        def lose_a_node():
            while len(list(self.out.glob("shares/*/trials/*/checkpoints/0*/MANIFEST"))) < 2:
                time.sleep(0.01)
            cluster.remove_node(nodes[0], allow_graceful=False)

        loser = threading.Thread(target=lose_a_node)
        loser.start()
        run = sweep(self.config, self.out, shares=3, overrides=[SLOW])
        loser.join()
        self.assertEqual(len(run.trials), 5)
        sp.train(self.config, output_dir=self.folder / "alone", progress=False)
        self.assertEqual([row["weights_xxh3"] for row in rows(self.out)],
                         [row["weights_xxh3"] for row in rows(self.folder / "alone")])

    def test_refuses_no_shares(self):
        with self.assertRaisesRegex(sp.ConfigError, "shares is 0"):
            sweep(self.config, self.out, shares=0)


if __name__ == "__main__":
    unittest.main()
