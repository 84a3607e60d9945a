"""Runs that are killed repeatedly, and resumed elsewhere or with a change."""

from campaign import LONG, SLOW_DEVICE
from run import Run, checkpoints, exists, seconds, says
from scene import Attempt
from steps import (append, cut, flip, furnish, given, is_absent, is_unchanged, lies_there,
                   made_folder, remember, remove, same_bits, text_of)

KILLED, ENDED = "a run that was killed", "a run that has ended"
SIGNALS = {"SIGKILL": 9, "SIGINT": 2, "SIGTERM": 15, "SIGHUP": 1, "SIGABRT": 6, "SIGSEGV": 11}
ENDS_WITH = {2: 130, 15: 130, 1: 130}  # after a checkpoint; the others kill
DEVICES = {
    "a small device": "devices='[{memory: 640KiB}]'",
    "two devices": "devices='[{memory: 64MiB}, {memory: 1MiB}]' train.data_parallel=2",
    "three devices": "devices='[{memory: 1MiB}, {memory: 2MiB}, {memory: 64MiB}]'",
    "homes in files": "offload_path=HERE",
    "a device that fails": "devices='[{memory: 64MiB, imitate: {fault: {kind: fail, after_ops: 40}}}, "
                           "{memory: 64MiB}]'",
    "another order": "scheduling.order=shard_major scheduling.double_buffer=false",
}
FAILS = "devices='[{memory: 64MiB, imitate: {fault: {kind: fail, after_ops: 100}}}]'"
# An override of a resume, and the field of its refusal; none if the bits stay the same.
OVERRIDES = [
    ("train.learning_rate=0.5", "train.learning_rate"), ("seed=2", "seed"),
    ("train.virtual_nodes=2", "train.virtual_nodes"), ("train.batch_size=16", "train.batch_size"),
    ("train.max_steps=121", "train.lr_scheduler_extend"), ("train.max_steps=90", "train.max_steps"), ("train.dtype=bf16", "train.dtype"),
    ("train.gradient_dtype=bf16", "train.gradient_dtype"), ("model.dropout=0.2", "model.dropout"),
    ("model.hidden_size=16", "model.hidden_size"), ("model.num_hidden_layers=3", "model"),
    ("train.optimizer=sgd", "train.optimizer"), ("train.weight_decay=0.5", "train.weight_decay"),
    ("train.max_grad_norm=2", "train.max_grad_norm"), ("data.path=base.yaml", "data"),
    ("data.eval_fraction=0.2", "data"), ("model.freeze='[h.0.*]'", "model"),
    ("sweep='{parameters: {seed: {values: [1, 2]}}}'", "sweep|trial"),
    ("name=other", "name|trial|sweep"), ("train.data_parallel=9", "train.data_parallel"),
    ("nothing=1", "nothing"),
    ("train.lr_scheduler_type=linear", "train.lr_scheduler_type"),
    ("train.warmup_ratio=0.1", "train.warmup_ratio"),
    ("train.reduction_groups=2", "train.reduction_groups"),
    ("host_memory=1GiB", None), ("activation_share=0.3", None), ("scheduling.policy=fifo", None),
    ("checkpoint.every_steps=50", None), ("checkpoint.keep=1", None), ("checkpoint.keep=0", None),
    ("train.priority=3", None), ("scheduling.sharing=wfs", None), ("train.data_parallel=auto", None),
    ("scheduling.device_timeout=5", None), ("offload_path=HERE", None),
]


def ended_by(number):
    return ENDS_WITH.get(number, -number)


def chain(numbers, devices, contract):
    """A start that each signal ends in turn; each resume uses other devices."""
    steps = [furnish(contract),
             Run(f"train base.yaml {SLOW_DEVICE}", code=ended_by(numbers[0]),
                 during=[(checkpoints(1), numbers[0])])]
    for place, number in zip(devices, numbers[1:]):
        steps.append(Run(f"resume r {place}", code=(ended_by(number), 0),
                         during=[(says("resumed after step"), number)], may_end=True))
    return [*steps, Run("resume r"), same_bits(), Run("verify r"), Run("results r")]


def of_chains():
    for name, number in SIGNALS.items():
        for place in ("two devices", "a small device"):
            yield Attempt(f"A run that {name} ends goes on with {place} and has the same bits",
                          chain([number], [], LONG)[:2]
                          + [Run(f"resume r {DEVICES[place]}"), same_bits(), Run("verify r")],
                          is_basic=name == "SIGHUP")
    for place, words in DEVICES.items():
        yield Attempt(f"A run that was killed goes on with {place} and has the same bits",
                      [given(KILLED), Run(f"resume r {words}"), same_bits()])
    numbers = list(SIGNALS.values())
    for first in range(len(numbers)):
        signals = [numbers[(first + i) % len(numbers)] for i in range(3)]
        yield Attempt(f"A chain of signals {signals} changes no bit",
                      chain(signals, list(DEVICES.values())[first:] + [""] * 3, LONG))
    yield Attempt("A run that is stopped for two seconds with a timeout of one has the same bits",
                  [furnish(LONG), Run(f"train base.yaml {SLOW_DEVICE} "
                                      "scheduling.device_timeout=1",
                                      during=[(checkpoints(1), 19), (seconds(2.2), 18)]),
                   same_bits()])
    yield Attempt("A run under nohup goes on after its terminal",
                  [furnish(LONG), Run(f"train base.yaml {SLOW_DEVICE}", shell="exec nohup {}",
                                      during=[(checkpoints(1), 1)]), same_bits()], is_basic=True)
    yield Attempt("A trial whose only device failed goes on with --retry-failed and the same bits",
                  [furnish(LONG), Run(f"train base.yaml {FAILS}", code=1),
                   Run("resume r", code=1,
                       err="all trials of this run have ended; --retry-failed resumes"),
                   Run(f"resume r --retry-failed {DEVICES['two devices']}",
                       out=r"resumed after step [1-9]"), same_bits(),
                   Run("resume r --retry-failed")], is_basic=True)
    yield Attempt("Two Ctrl-C end a run at once, and it goes on with the same bits",
                  [furnish(LONG), Run(f"train base.yaml {SLOW_DEVICE}", code=(130, -2),
                                      during=[(checkpoints(1), 2), (seconds(0.02), 2)]),
                   Run("resume r"), same_bits()])
    for number, after_s in ((9, 0.3), (9, 0.45), (9, 0.6), (15, 0.05), (15, 0.3), (2, 0.5)):
        yield Attempt(f"A run that signal {number} ends after {after_s} s goes on or begins anew",
                      [furnish(LONG), Run(f"train base.yaml {SLOW_DEVICE}",
                                          code=(ended_by(number), -number),
                                          during=[(seconds(after_s), number)]),
                       Run("train base.yaml resume=auto"), same_bits(), Run("verify r")])
    yield Attempt("A run that is killed as its folder appears can be started without --overwrite",
                  [furnish(LONG), Run(f"train base.yaml {SLOW_DEVICE}", code=-9,
                                      during=[(exists("r"), 9)]),
                   Run("resume r", code=(0, 2), err="train|resumed|begins"),
                   Run("train base.yaml resume=auto"), same_bits()])
    yield Attempt("A run that is killed as its lock appears can be started without --overwrite",
                  [furnish(LONG), Run(f"train base.yaml {SLOW_DEVICE}", code=-9,
                                      during=[(exists("r/lock"), 9)]),
                   Run("train base.yaml resume=auto"), same_bits()])


def of_leftovers():
    """Leftovers of a start that was killed early count as the program's own."""
    marker = "This folder belongs to a run of spillway train, which may replace it.\n"
    for name, steps in (("only .spillway", [text_of("r/.spillway", marker)]),
                        ("only .spillway.tmp", [text_of("r/.spillway.tmp", "")]),
                        ("only a lock", [text_of("r/lock", "123\n")]),
                        ("only a probe", [made_folder("r/.spillway-a1B2c3")]),
                        (".spillway and trials", [text_of("r/.spillway", marker),
                                                  made_folder("r/trials/base")]),
                        (".spillway, lock and config.yaml", [
                            text_of("r/.spillway", marker), text_of("r/lock", ""),
                            text_of("r/config.yaml", "name: base\n")]),
                        ("nothing", [made_folder("r")])):
        yield Attempt(f"Where a start left {name}, train begins",
                      [furnish(), *steps, Run("train base.yaml"), same_bits()])
        said = "holds no run" if name == "nothing" else "spillway train"
        yield Attempt(f"Where a start left {name}, resume says what to do",
                      [furnish(), *steps, Run("resume r", code=2, err=said),
                       Run("train base.yaml resume=auto"), same_bits()],
                      is_basic=name == "only .spillway.tmp")


def of_names():
    for name in ("[y]", "{x}", "a b", "it's", "x: y", "#x", "&x", "*x", "!x", "ünï", "%41", "-- r",
                 "null", "1e3", "true", "a=b", "a,b", "'q'", "\\n"):
        folder = f'"HERE/{name}"' if name.startswith("-") else f'"{name}"'
        yield Attempt(f"resume takes the folder's name {name} as it is",
                      [given(KILLED), lambda scene, name=name: scene.path("r").rename(
                          scene.path(name)),
                       Run(f"resume {folder}"), same_bits(name)], is_basic=name == "[y]")
    yield Attempt("resume works from another folder, by a whole path and by a link",
                  [given(KILLED), lambda scene: scene.path("link").symlink_to("r"),
                   Run("resume link"), same_bits(),
                   Run("resume HERE/r", shell="cd /; exec {}"), same_bits()], is_basic=True)


def of_overrides():
    for words, field in OVERRIDES:
        if field is None:
            yield Attempt(f"resume with {words} has the same bits",
                          [given(KILLED), Run(f"resume r {words}"), same_bits()])
        else:
            yield Attempt(f"resume with {words} is refused and changes nothing",
                          [given(KILLED), remember("r"),
                           Run(f"resume r {words} --json", code=2, err=field),
                           is_unchanged("r"), Run("resume r"), same_bits()],
                          is_basic=field in ("train.learning_rate", "model.hidden_size"))


def of_changed_data():
    yield Attempt("A run whose data are gone is refused by path, and goes on once they are back",
                  [given(KILLED), remember("text.txt"), remove("text.txt"),
                   Run("resume r", code=2, err="text.txt"),
                   lambda scene: scene.path("text.txt").write_bytes(scene.campaign.text),
                   Run("resume r"), same_bits()])
    for name, change in (("have one other bit", flip("text.txt")),
                         ("are longer", append("text.txt", b"more" * 100)),
                         ("are shorter", cut("text.txt", 0.9))):
        yield Attempt(f"A run whose data {name} is refused, and goes on once they are back",
                      [given(KILLED), change, remember("r"),
                       Run("resume r --json", code=2, err=[
                           "has another contract:\n +data: was [0-9a-f]{32}, is [0-9a-f]{32}",
                           "the files of data.path, or the way they are read, have changed; "
                           "restore them, or choose another output_dir"]), is_unchanged("r"),
                       lambda scene: scene.path("text.txt").write_bytes(scene.campaign.text),
                       Run("resume r"), same_bits()], is_basic=name == "have one other bit")


def attempts():
    yield from of_chains()
    yield from of_leftovers()
    yield from of_names()
    yield from of_overrides()
    yield from of_changed_data()
    yield Attempt("resume of a run that has ended changes nothing and exits with 0",
                  [given(ENDED), remember("r/trials"), Run("resume r --json"),
                   is_unchanged("r/trials"), same_bits()])
    yield Attempt("resume=auto on a run that has ended changes nothing and exits with 0",
                  [given(ENDED), remember("r/trials"), Run("train base.yaml resume=auto"),
                   is_unchanged("r/trials")])
    yield Attempt("A run with the checkpoints of another one is refused with the difference",
                  [given(KILLED), Run("train base.yaml output_dir=other model.hidden_size=16 "
                                      "train.max_steps=8"),
                   remove("r/trials/base/checkpoints"),
                   lambda scene: scene.path("other/trials/base/checkpoints").rename(
                       scene.path("r/trials/base/checkpoints")), remember("r"),
                   Run("resume r", code=2, err="model.hidden_size: was 16, is 32"),
                   is_unchanged("r")], is_basic=True)
    for name in ("events.jsonl", "the whole folder"):
        gone = "r" if name == "the whole folder" else "r/events.jsonl"
        yield Attempt(f"A run that loses {name} while it trains says so",
                      [furnish({**LONG, "train.max_steps": 60}),
                       Run(f"train base.yaml {SLOW_DEVICE}", code=(0, 1),
                           err="events.jsonl|gone|removed|No such file",
                           during=[(checkpoints(1), remove(gone))])], is_basic=gone != "r")
    yield Attempt("A killed sweep goes on with the same bits, also if it is killed again",
                  [given("a sweep that was killed"),
                   Run("resume r", code=(-9, 0), during=[(says("resumed after step"), 9)],
                       may_end=True),
                   Run("resume r devices='[{memory: 1MiB}, {memory: 1MiB}]'"), same_bits()])
    for words, command in (("a folder that is not there", "resume nowhere"),
                           ("a file", "resume text.txt"), ("an empty name", "resume ''"),
                           ("a folder without a run", "resume empty")):
        yield Attempt(f"resume of {words} is refused and makes nothing",
                      [furnish(), made_folder("empty"), Run(command + " --json", code=2),
                       is_absent("nowhere"), lies_there("empty")])


def random_attempt(chance, number):
    signals = [chance.choice(list(SIGNALS.values())) for _ in range(chance.randint(1, 4))]
    devices = [chance.choice(list(DEVICES.values())) for _ in signals]
    contract = {**LONG, "seed": chance.randrange(2**32),
                "train.max_steps": chance.randint(40, 120),
                "train.dtype": chance.choice(["fp32", "bf16"]),
                "checkpoint.every_steps": chance.randint(1, 9)}
    return Attempt(f"seed {number}: the signals {signals}, resumed elsewhere, change no bit",
                   chain(signals, devices, contract))
