"""The package `spillway`: Ray Tune chooses what a session trains."""

import os
import sys
import tempfile
import time
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
STEPS=12
QUANTUM=3
def samples():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randint(0, 17, (120, 64), generator=generator)
    return sp.data(inputs, inputs[:, :10].argmax(1), eval_fraction=0.2)

def space(config):
    return {
        "model": sp.mlp(hidden_size=32),
        "data": samples(),
        "learning_rate": config["learning_rate"],
        "batch_size": 8,
        "max_steps": STEPS,
    }
if __name__=="__main__":
    t=time.time()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=80<<20)
    print("init", time.time()-t)
    actor = SessionActor.remote(space, ["64MiB"]*2)
    tuner = tune.Tuner(trainable(actor, quantum=QUANTUM), param_space={"learning_rate": tune.grid_search([0.1,0.01,0.001,1e-4,1e-5,0.3])},
        tune_config=tune.TuneConfig(metric="eval_loss", mode="min", max_concurrent_trials=3, reuse_actors=True,
          scheduler=ASHAScheduler(time_attr="steps", grace_period=3, max_t=STEPS, reduction_factor=2)),
        run_config=tune.RunConfig(storage_path=tempfile.mkdtemp(), verbose=0))
    r=tuner.fit()
    print("fit", time.time()-t)
    for x in r: print(x.metrics["config"], x.metrics["steps"], x.metrics["eval_loss"], x.metrics["trial_id"], x.error)
    b=r.get_best_result()
    print({k:v.shape for k,v in ray.get(actor.state_dict.remote(b.metrics["trial_id"])).items()})
    ray.shutdown()
    print("end", time.time()-t)
