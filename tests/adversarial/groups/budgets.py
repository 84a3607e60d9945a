"""Is a budget kept to the byte, and does what is told to fit, fit?"""

import json
import subprocess

from groups.contracts import CONTRACTS, smallest_budget
from run import Run, seconds, takes
from scene import Attempt, Surprise
from steps import (error_of_kind, furnish, is_absent, peaks_within_budgets, same_bits, text_of)

ROWS = ["a GPT", "a GPT in bf16", "a GPT with bf16 gradients", "a GPT with a frozen embedding",
        "a GPT of eight virtual nodes in two groups", "a GPT of one virtual node",
        "a GPT with momentum and a linear schedule", "a perceptron", "a residual network",
        "a residual network in bf16 with shifted pictures",
        "a graph of convolutions in pieces", "a graph of convolutions in bf16"]
PAGE = 4096
DEEP = "model.num_hidden_layers=1024 devices='[{memory: 1MiB}]'"


def plan(scene, *words):
    done = subprocess.run([scene.campaign.program, "plan", "base.yaml", "--json", *words],
                          cwd=scene.folder, env=scene.campaign.environment(), timeout=120,
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise Surprise(f"the plan exits with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def at_smallest(change, **expected):
    """Trains with the smallest budget of the plan, and so many bytes more."""
    def step(scene):
        budget = smallest_budget(plan(scene)) + change
        Run(f"train base.yaml --json devices='[{{memory: {budget}}}]'", **expected)(scene)
    return step


def with_host_memory(change, **expected):
    def step(scene):
        budget = plan(scene)["trials"][0]["offload_bytes"] + change
        Run(f"train base.yaml host_memory={budget}", **expected)(scene)
    return step


def promise_is_kept(*words):
    """The smallest budget that a plan names is enough where all else stays as it is, or the plan
    says which other budget is too small."""
    def step(scene):
        document = plan(scene, *words)
        if document["fits"]:
            return
        budget = document["trials"][0].get("smallest_budget_bytes")
        again = plan(scene, *words, f"devices=[{{memory: {budget}}}]") if budget else document
        if not again["fits"] and "host" not in json.dumps(document["trials"][0]).lower():
            raise Surprise(f"the budget {budget} does not do, and nothing is said of the host")
    return step


REFUSED = {"code": 3, "err": "does not fit"}
# What is tried, the words, what comes.
PLANS = [
    ("A device that is too small for its lane is named with what it would need",
     Run("train base.yaml devices='[{memory: 2MiB}, {memory: 100KiB}]' train.data_parallel=2",
         code=(2, 3), err=["cpu:1|devices\\[1\\]", r"\d+(\.\d+)? [KM]iB"])),
    ("A home that is larger than host_memory is refused with both numbers",
     Run("train base.yaml host_memory=400KiB", code=3, err=["host memory", "400.0 KiB"])),
    ("A home that is larger than host_memory is refused by a plan too",
     Run("plan base.yaml host_memory=400KiB --json", code=3)),
    ("Two trials in host memory for one wait for each other",
     Run("train base.yaml host_memory=700KiB "
         "sweep='{parameters: {seed: {values: [1, 2]}}}'", out="done")),
    ("Thirty trials in host memory for two all end",
     Run("train base.yaml host_memory=1300KiB train.max_steps=2 "
         "sweep='{method: random, run_cap: 30, parameters: {train.learning_rate: "
         "{min: 0.0001, max: 0.01}}}' --json",
         doc=lambda d: "" if [t["state"] for t in d["trials"]] == ["done"] * 30 else "not done")),
    ("Sixty-four devices on two cores train",
     Run("train base.yaml devices='["
         + ",".join(["{memory: 4MiB}"] * 64) + "]'", out="done")),
    ("A layer that is too large for any cut is named",
     Run("train base.yaml model.hidden_size=2048 devices='[{memory: 1MiB}]'", code=3,
         err=["does not fit", r"1(\.00)? MiB"])),
    ("A batch that is too large says what would help",
     Run("plan base.yaml train.batch_size=1048576 train.virtual_nodes=1 --no-pilot", code=3,
         out="train.virtual_nodes=")),
    ("A budget of sixteen tebibytes is planned",
     Run("plan base.yaml devices='[{memory: 16TiB}]'")),
    ("A dedicated activation pool that is too small is refused with a share that would do",
     Run("train base.yaml devices='[{memory: 560KiB}]' activation_share=0.9", code=3,
         err="activation_share")),
    ("A thousand layers are planned within seconds",
     Run(f"plan base.yaml --no-pilot {DEEP}", code=(0, 3), within_s=45)),
    ("Five hundred layers are planned within seconds",
     Run("plan base.yaml --no-pilot model.num_hidden_layers=512 devices='[{memory: 1MiB}]'",
         code=(0, 3), within_s=20)),
    ("A thousand trials are planned within a minute",
     Run("plan base.yaml --no-pilot sweep='{method: random, run_cap: 1000, parameters: "
         "{train.learning_rate: {min: 0.0001, max: 0.01}}}'", within_s=60)),
]


def attempts():
    for name in ROWS:
        contract = CONTRACTS[name]
        yield Attempt(f"{name} trains with the smallest budget of its plan, with the same bits",
                      [furnish(contract), at_smallest(0, doc=peaks_within_budgets), same_bits()])
        for change, words in ((-1, "One byte less"), (-PAGE, "One page less")):
            yield Attempt(f"{words} than the smallest budget of {name} is refused",
                          [furnish(contract), at_smallest(change, **REFUSED),
                           is_absent("r/events.jsonl")])
    yield Attempt("The host memory that a plan names is enough",
                  [furnish(), with_host_memory(0), same_bits()])
    yield Attempt("One byte less host memory than a plan names is refused",
                  [furnish(), with_host_memory(-1, code=3, err="host memory")])
    for words in (["host_memory=616KiB"], ["devices=[{memory: 100KiB}]"],
                  ["devices=[{memory: 300KiB}]", "scheduling.order=vn_major"],
                  ["devices=[{memory: 100KiB}]", "activation_share=0.3"],
                  ["devices=[{memory: 100KiB}]", "scheduling.double_buffer=false"],
                  ["devices=[{memory: 100KiB}]", "train.virtual_nodes=8"]):
        yield Attempt(f"The smallest budget that a plan names is enough: {' '.join(words)}",
                      [furnish(), promise_is_kept(*words)])
    for name, run in PLANS:
        slow = "thousand" in name or "hundred" in name
        yield Attempt(name, [furnish(), run], is_slow=slow)
    for number, word in ((2, "Ctrl-C"), (15, "SIGTERM")):
        yield Attempt(f"{word} while a thousand layers are planned ends the command, and says it",
                      [furnish(), Run("train base.yaml model.num_hidden_layers=1000 --json",
                                      code=130, within_s=5, err="interrupted before training",
                                      doc=error_of_kind(code=130), during=[
                                          (takes(number), 0), (seconds(0.3), number)]),
                       is_absent("r")], is_basic=number == 2)
        yield Attempt(f"{word} while thousands of trials are planned ends the command within a second",
                      [furnish(), text_of("note", "before"), stopped_while_planning(number),
                       is_absent("r")])


def stopped_while_planning(number):
    """Planning so many trials takes longer than any wait here."""
    def step(scene):
        sweep = "sweep={method: random, run_cap: 9000, parameters: {seed: {min: 1, max: 999999}}}"
        run = Run(f"train base.yaml '{sweep}'",
                  code=(130, 3, -number), within_s=3, during=[(seconds(1.0), number)])
        run(scene)
    return step
