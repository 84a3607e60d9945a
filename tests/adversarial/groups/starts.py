"""Does exactly one of several starts on one folder win, without any losses?"""

import itertools

from campaign import LONG, SLOW_DEVICE
from run import Finish, Run, Send, Start, Until, checkpoints, exists, says, seconds
from scene import Attempt, Surprise
from steps import (furnish, given, is_unchanged, lies_there, remember, same_bits, tree_of)

MODES = {"never": "", "auto": "resume=auto", "overwrite": "--overwrite"}
# The numbers of layers for which the second start finishes planning later or sooner than the first.
DEEPER = "seed=2 model.num_hidden_layers={layers} train.max_steps=1"


def train(*words, **expected):
    return Run(" ".join(("train base.yaml", *words)), **expected)


def second_start(mode, other, moment):
    """The first is running when the second starts."""
    return [furnish(LONG), Start("first", train(SLOW_DEVICE, MODES[mode])),
            Until("first", moment), train(other, MODES[mode], code=2,
                                          err=r"in use by process \d+"),
            Finish("first"), lies_there("r/events.jsonl", "r/journal.sqlite", "r/config.yaml",
                                        "r/trials/base/checkpoints/*/MANIFEST"), same_bits(),
            Run("verify r"), Run("results r")]


def several_at_once(count, mode, gap_s, others):
    """Whoever wins: exactly one exit code is 0, all others are 2, and the folder is the winner's.
    """
    names = [f"number {n}" for n in range(count)]

    def all_started(scene):
        for number, name in enumerate(names):
            words = others[number % len(others)]
            Start(name, train(words, MODES[mode], code=(0, 2)))(scene)
            waiting = scene.processes[name][0].popen
            try:
                waiting.wait(timeout=gap_s)
            except Exception:  # it still runs, as it should
                pass

    def one_won(scene):
        codes = []
        for name in names:
            process, run = scene.processes.pop(name)
            process.finish(run.within_s)
            process.check(run)
            codes.append(process.popen.returncode)
            if codes[-1] == 2 and "in use by process" not in process.text(1) \
                    and "holds" not in process.text(1):
                raise Surprise("who lost does not say why: " + process.text(1))
        if codes.count(0) < 1 or (mode == "never" and codes.count(0) != 1):
            raise Surprise(f"{codes.count(0)} of {count} starts won: exit codes {codes}")
    return [furnish({**LONG, "train.max_steps": 40}), all_started, one_won,
            lies_there("r/events.jsonl", "r/journal.sqlite", "r/config.yaml",
                       "r/trials/base/weights.safetensors"), Run("verify r"), Run("results r"),
            Run("resume r")]


def attempts():
    for mode, (name, moment) in itertools.product(MODES, {
            "as it takes the folder": exists("r/lock"), "after 0.1 s": seconds(0.1),
            "as it trains": says("running"), "after a checkpoint": checkpoints(1)}.items()):
        if mode == "overwrite" and name == "after 0.1 s":
            continue  # the second may be first
        yield Attempt(f"A second train with {mode} {name} is refused and loses nothing",
                      second_start(mode, "seed=2", moment) if name != "after 0.1 s" else
                      several_at_once(2, mode, 0.1, ["", ""]))
    for layers in (40, 300):
        yield Attempt(f"A train that plans {layers} layers and finds another run begun loses "
                      "nothing of it", planned_longer(layers))
    yield Attempt("A train that plans long and finds another run ended loses nothing of it",
                  planned_longer(120, ended=True))
    for count, gap_s, mode in [(2, 0, "never"), (2, 0, "auto"), (2, 0, "overwrite"),
                               (3, 0, "never"), (3, 0, "auto"), (3, 0.02, "never"),
                               (3, 0.2, "never"), (3, 0.5, "auto"), (2, 0.4, "overwrite"),
                               (4, 0.05, "never"), (5, 0, "never")]:
        yield Attempt(f"Of {count} starts with {mode}, {gap_s} s apart, one wins",
                      several_at_once(count, mode, gap_s, [""]), is_basic=gap_s >= 0.2)
    yield Attempt("Of two resumes at once one wins, and the bits are the same",
                  [given("a run that was killed"), Start("a", Run("resume r", code=(0, 2))),
                   Start("b", Run("resume r", code=(0, 2))), Finish(["a", "b"]), same_bits()])
    yield Attempt("A resume of a run under way is refused and changes nothing",
                  [given("a run that was killed"), Start("a", Run(f"resume r {SLOW_DEVICE}")),
                   Until("a", says("resumed after step")), Send("a", 19),
                   Run("resume r --json", code=2, err=r"in use by process \d+"),
                   Run("train base.yaml resume=auto", code=2, err=r"in use by process \d+"),
                   Run("train base.yaml --overwrite", code=2, err=r"in use by process \d+"),
                   Send("a", 18), Finish("a"), same_bits()], is_basic=True)
    yield Attempt("A folder that is used by a process that was stopped stays its own",
                  [furnish(LONG), Start("a", train(SLOW_DEVICE)), Until("a", checkpoints(1)),
                   Send("a", 19), train("--overwrite", code=2, err=r"in use by process \d+"),
                   Send("a", 18), Finish("a"), same_bits()])
    for mode, words in MODES.items():
        yield Attempt(f"A train with {mode} that is itself refused changes nothing of a run",
                      [given("a run that has ended"), remember("r"),
                       train(words, "train.data_parallel=7", code=2), is_unchanged("r")])
        yield Attempt(f"A train with {mode} that does not fit changes nothing of a run",
                      [given("a run that has ended"), remember("r"),
                       train(words, "devices='[{memory: 100KiB}]'",
                             code=3 if mode != "never" and mode != "auto" else (0, 2, 3)),
                       is_unchanged("r") if mode != "auto" else lies_there("r/events.jsonl")])
    yield Attempt("A train without --overwrite on a run that has ended changes nothing",
                  [given("a run that has ended"), remember("r"),
                   train(code=2, err="holds an earlier run"), is_unchanged("r")])
    yield Attempt("Twelve runs that share an empty cache of costs all end with the same bits",
                  twelve())


def planned_longer(layers, ended=False):
    """The first start plans for seconds; the second comes meanwhile. One of them gets the folder,
    and the other one is refused and changes nothing."""
    def end_of(scene, name):
        process, run = scene.processes.pop(name)
        process.finish(run.within_s)
        process.check(run)
        return process.popen.returncode

    def meanwhile(scene):
        words = "train.max_steps=6" if ended else SLOW_DEVICE
        Start("second", train(words, code=(0, 2)))(scene)
        scene.remembered["second"] = end_of(scene, "second")
        scene.remembered["won"] = tree_of(scene.path("r"))

    def one_won(scene):
        codes = [end_of(scene, "first"), scene.remembered["second"]]
        if sorted(codes) != [0, 2]:
            raise Surprise(f"not one of the two starts has won: exit codes {codes}")
        if codes[0] == 2 and scene.remembered["won"] != tree_of(scene.path("r")):
            raise Surprise("who lost changed the folder of who won")
    first = train(DEEPER.format(layers=layers), code=(0, 2), within_s=180)
    return [furnish(LONG), Start("first", first), Until("first", seconds(0.4)), meanwhile,
            one_won, Run("results r"), Run("verify r"), Run("resume r")]


def twelve():
    def step(scene):
        for number in range(12):
            Start(f"n{number}", Run(f"train base.yaml output_dir=run{number}", within_s=200,
                                    env={"XDG_CACHE_HOME": "HERE/cache"}))(scene)
    return [furnish(), step, Finish([f"n{number}" for number in range(12)]),
            same_bits("run0"), same_bits("run11")]
