"""The package `spillway`: sweeps over the nodes of Ray, one of which is lost."""

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
from shares_test import rows, write_sweep
from spillway.ray import sweep

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
SLOW = "devices=[{memory: 64MiB, imitate: {slowdown: 10}}]"


class RaySweepTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.config, self.out = write_sweep(self.folder), self.folder / "out"

    def test_survives_the_loss_of_a_node(self):
        cluster = Cluster(initialize_head=True, head_node_args={
            **NODE, "num_cpus": 0, "_system_config": {
                "health_check_initial_delay_ms": 0, "health_check_period_ms": 500,
                "health_check_failure_threshold": 2}})
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
        run = sweep(self.config, self.out, shares=2, overrides=[SLOW])
        loser.join()
        self.assertEqual(len(run.trials), 4)
        sp.train(self.config, output_dir=self.folder / "alone", progress=False)
        self.assertEqual([row["weights_xxh3"] for row in rows(self.out)],
                         [row["weights_xxh3"] for row in rows(self.folder / "alone")])

    def test_refuses_no_shares(self):
        with self.assertRaisesRegex(sp.ConfigError, "shares is 0"):
            sweep(self.config, self.out, shares=0)


if __name__ == "__main__":
    unittest.main()
