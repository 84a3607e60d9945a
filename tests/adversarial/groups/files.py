"""Damaged, missing or replaced files; disks and data that change meanwhile."""

from campaign import LONG, SLOW_DEVICE
from run import Run, checkpoints
from scene import Attempt, Skip
from steps import (append, both, cut, edit, fifo_at, flip, flip_all, folder_at, furnish, given,
                   has_text, is_absent, is_unchanged, lies_there, link_at, loop_at, made_folder,
                   overwrite_in_place, remember, remove, remove_last, renamed_over, same_bits,
                   text_of, tree_of)

ENDED, KILLED = "a run that has ended", "a run that was killed"
INTERRUPTED = "a run that was interrupted"
CHECKPOINT = "r/trials/base/checkpoints/*/"
WEIGHTS = "r/trials/base/weights.safetensors"
DAMAGES = {
    "has a flipped bit": flip, "lost half of its bytes": cut,
    "is empty": lambda file: cut(file, 0), "is gone": remove_last,
    "is a folder": folder_at, "is a FIFO": fifo_at,
    "is a symlink to itself": loop_at,
    "is a dangling symlink": lambda file: link_at(file, "/nowhere/at/all"),
}
OF_A_CHECKPOINT = ["MANIFEST", "weights.safetensors", "moments.safetensors", "history.json"]
# Files that a run writes for others; it rewrites them but never reads them.
DERIVED = ["results.csv", "plan.json", "trace.json", "trials/base/metrics.csv"]

# For the event log: the damage, and the exit codes of verify and of results. Lines cut off at its
# end may have been lost by a crash.
LOG_DAMAGES = [
    ("a bit flipped in the middle", flip("r/events.jsonl", 0.5), 1, 1),
    ("a bit flipped in its first line", flip("r/events.jsonl", 0.01), 1, (1, 2)),
    ("a bit flipped at the end", flip("r/events.jsonl", 0.98), 1, 1),
    ("lost half of its bytes", cut("r/events.jsonl", 0.5), (0, 1), (0, 1)),
    ("lost the end of its last line", cut("r/events.jsonl", 0.995), 0, 0),
    ("nothing in it", cut("r/events.jsonl", 0), 1, (1, 2)),
    ("been removed", remove("r/events.jsonl"), 1, (1, 2)),
    ("random bytes behind it", append("r/events.jsonl", b"\x00\xffgarbage\n{}\n"), 1, 1),
    ("a line behind it that is no event", append("r/events.jsonl", b'{"event":"eval"}\n'), 1, 1),
    ("a number behind it", append("r/events.jsonl", b"7\n"), 1, 1),
    ("an event behind it whose kind is a number", append("r/events.jsonl", b'{"event":7}\n'), 1, 1),
    ("one digit of a loss altered",
     edit("r/events.jsonl", r'"loss":(\d)\.(\d)', r'"loss":\1.9\2'), 1, 1),
]
JOURNAL_DAMAGES = {
    "a bit flipped in the middle": flip("r/journal.sqlite", 0.6),
    "a bit flipped in its header": flip("r/journal.sqlite", 0.002),
    "half of it gone": cut("r/journal.sqlite", 0.5),
    "a folder in its place": folder_at("r/journal.sqlite"),
    "a FIFO in its place": fifo_at("r/journal.sqlite"),
    "text in its place": text_of("r/journal.sqlite", "no database " * 100),
}
# Data that change during training, and the expected outcome.
DATA_CHANGES = [
    ("overwritten in place", overwrite_in_place("text.txt", b"other bytes" * 900), 1, "text.txt"),
    ("truncated to nothing", cut("text.txt", 0), 1, "text.txt"),
    ("cut to half", cut("text.txt", 0.5), 1, "text.txt"),
    ("appended to", append("text.txt", b"more" * 100), (0, 1), ()),
    ("replaced by rename", renamed_over("text.txt", b"other" * 9000), (0, 1), ()),
    ("deleted", remove("text.txt"), (0, 1), ()),
]
ODD_DATA = [
    ("a FIFO", fifo_at("odd"), "odd"), ("an empty folder", made_folder("odd"), "odd"),
    ("a symlink to itself", loop_at("odd"), "odd"),
    ("a dangling symlink", link_at("odd", "/proc/nowhere"), "odd"),
    ("/dev/zero", link_at("odd", "/dev/zero"), "odd"),
    ("/proc/self/mem", link_at("odd", "/proc/self/mem"), "odd"),
    ("an empty file", text_of("odd", ""), "odd"),
    ("a file of three bytes", text_of("odd", "abc"), "data.path"),
    ("a folder with a FIFO in it", fifo_at("odd/pipe"), "odd"),
    ("a folder with a link to itself in it", both(text_of("odd/a.txt", "abc"),
                                                  link_at("odd/b", "../odd")), "data.path"),
]
ODD_PLACES = [
    ("a dangling symlink", link_at("out", "/nowhere/at/all"), "link"),
    ("a symlink to itself", loop_at("out"), "link"),
    ("below a symlink to itself", loop_at("out"), "link"),
    ("a FIFO", fifo_at("out"), "out"),
    ("a file", text_of("out", "mine"), "file"),
    ("a folder with files of someone else", text_of("out/thesis.tex", "mine"), "out"),
    ("a folder with a file .spillway of someone else", both(
        text_of("out/.spillway", "mine"), text_of("out/thesis.tex", "mine")), "out"),
    ("a folder with a folder .spillway", both(
        made_folder("out/.spillway"), text_of("out/thesis.tex", "mine")), "out"),
]
# Foreign files within a run, which no start may remove.
FOREIGN = ["notes.txt", "trials/notes.txt", "trials/base/analysis/plot.png",
           "trials/base/checkpoints/mine.txt", "trials/other/thesis.tex", "trials/base/notes",
           "trials/base/checkpoints/000000000099.mine/data"]


def of_checkpoints():
    """verify lists it; resume reports it, uses the previous generation, and ends with the same
    bits.
    """
    for file in OF_A_CHECKPOINT:
        for words, damage in DAMAGES.items():
            yield Attempt(f"verify tells that a checkpoint's {file} {words}",
                          [given(ENDED), damage(CHECKPOINT + file),
                           Run("verify r --json", code=1, within_s=20),
                           Run("verify r", code=1, out="base")])
            yield Attempt(f"resume goes on where a checkpoint's {file} {words}",
                          [given(KILLED), damage(CHECKPOINT + file),
                           Run("resume r --json", err="DAMAGED|damaged|missing"), same_bits(),
                           Run("verify r")])


def of_final_weights():
    for words, damage in DAMAGES.items():
        yield Attempt(f"verify tells that the file of final weights {words}",
                      [given(ENDED), damage(WEIGHTS),
                       Run("verify r", code=1, out="weights"), Run("results r")])
        yield Attempt(f"resume restores the file of final weights that {words}",
                      [given(ENDED), damage(WEIGHTS), Run("resume r --json", err="weights"),
                       same_bits(), Run("verify r")],
                      is_basic=words in ("has a flipped bit", "is gone"))
    yield Attempt("resume says by name that a folder stands in place of the final weights",
                  [given(ENDED), folder_at(WEIGHTS), text_of(WEIGHTS + "/mine", "mine"),
                   Run("resume r --json", code=1, err="weights.safetensors"),
                   has_text(WEIGHTS + "/mine", "mine")])
    yield Attempt("verify and resume notice a flipped bit in the first byte of the final weights",
                  [given(ENDED), flip(WEIGHTS, 0.0), Run("verify r", code=1, out="weights"),
                   Run("resume r --json", err="weights"), same_bits()])


def of_logs():
    for words, damage, verify, results in LOG_DAMAGES:
        said = () if words.startswith("lost") else "events.jsonl"
        yield Attempt(f"A killed run goes on though its log has {words}",
                      [given(KILLED), damage, Run("resume r --json", err=said),
                       same_bits(only_weights=True), Run("results r")],
                      is_basic=words in ("a bit flipped in the middle", "been removed"))
        yield Attempt(f"verify tells that a log has {words}, and reads all checkpoints",
                      [given(KILLED), damage, Run("verify r --json", code=verify,
                                                  doc=two_checkpoints)])
        yield Attempt(f"results shows the rest of a log that has {words}",
                      [given(KILLED), damage, Run("results r", code=results)])
    yield Attempt("A digit altered in weights_xxh3 of the log is not shown as a result",
                  [given(ENDED), edit("r/events.jsonl", r'"weights_xxh3":"(.)(.)',
                                      r'"weights_xxh3":"\g<2>0'),
                   Run("results r", code=1, err="events.jsonl|line"), Run("verify r", code=1)])
    for words, damage in JOURNAL_DAMAGES.items():
        yield Attempt(f"A journal with {words} is told; the bits are right, or nothing is trained",
                      [given(KILLED), damage, remember("r/trials"),
                       Run("resume r --json", code=(0, 2), err="journal|resumed", within_s=30),
                       unchanged_or_right])


def two_checkpoints(document):
    found = document.get("checkpoints", [])
    return "" if len(found) >= 2 else f"the checkpoints are {found}"


def unchanged_or_right(scene):
    """Trained nothing, or everything with the bits of an undisturbed run."""
    if list(scene.folder.glob(WEIGHTS)):
        same_bits()(scene)
    else:
        is_unchanged("r/trials")(scene)


def of_missing_checkpoints():
    # A kill may come before the journal records the newest checkpoint.
    for kind in (ENDED, INTERRUPTED):
        yield Attempt(f"verify misses the newest checkpoint of {kind}",
                      [given(kind), remove_last("r/trials/base/checkpoints/0*"),
                       Run("verify r --json", code=1), Run("verify r", code=1, out="missing|gone")])
    yield Attempt("The newest checkpoint that is gone is said by resume, with the step",
                  [given(INTERRUPTED), remove_last("r/trials/base/checkpoints/0*"),
                   Run("resume r --json", err=["missing|gone", r"step \d+"]), same_bits()],
                  is_basic=True)
    for kind in (ENDED, KILLED):
        for name, gone in (("checkpoints of its trial", "r/trials/base/checkpoints"),
                           ("trials", "r/trials")):
            yield Attempt(f"verify misses the {name} of {kind}",
                          [given(kind), remove(gone), Run("verify r", code=1)])
    yield Attempt("A trial whose checkpoints are all gone begins again, and it is said",
                  [given(KILLED), remove("r/trials/base/checkpoints"),
                   Run("resume r --json", err="missing|gone|DAMAGED"), same_bits()])
    yield Attempt("A trial whose checkpoints are all damaged begins again, and it is said",
                  [given("a sweep that was killed"),
                   flip_all("r/trials/learning_rate=0.002/checkpoints/*/weights.safetensors"),
                   Run("resume r --json",
                       err=["DAMAGED", "learning_rate=0.002: .*it resumes from the beginning"]),
                   same_bits(), Run("verify r")], is_basic=True)
    yield Attempt("Trials whose checkpoints are all damaged begin again under resume=auto",
                  [given("a sweep that was killed"),
                   flip_all("r/trials/*/checkpoints/*/MANIFEST"),
                   Run("train base.yaml resume=auto", err="DAMAGED|damaged"), same_bits()])


def of_data():
    for words, change, code, said in DATA_CHANGES:
        yield Attempt(f"Data that are {words} during a run are noticed, or change nothing",
                      [furnish({**LONG, "train.max_steps": 60}),
                       Run(f"train base.yaml {SLOW_DEVICE}", code=code,
                           out=said, during=[(checkpoints(2), change)]),
                       *([] if code == 1 else [verdict()])])
    for words, make, said in ODD_DATA:
        yield Attempt(f"Data that are {words} are refused within seconds, or trained on",
                      [furnish({"data.path": "odd"}), make,
                       Run("train base.yaml --json", code=2, err=said, within_s=30),
                       is_absent("r")])
    for name, place in (("the run's folder in the data's", "corpus/run"),
                        ("the run's folder as the data's", "corpus")):
        yield Attempt(f"{name} is refused with both paths",
                      [furnish({"data.path": "corpus"}), text_of("corpus/a.txt", "abc " * 999),
                       Run(f"train base.yaml output_dir={place} --json", code=2,
                           err=["output_dir: .* lies inside data.path", "corpus"]),
                       is_absent("corpus/run")], is_basic=place != "corpus")
    yield Attempt("Data in the folder that --overwrite replaces are refused and stay",
                  [furnish({"data.path": "r/trials/a.txt"}), given(ENDED),
                   text_of("r/trials/a.txt", "abc " * 999), remember("r"),
                   Run("train base.yaml data.path=r/trials/a.txt --overwrite", code=2,
                       err="data.path: 'r/trials/a.txt' lies inside output_dir 'r'"),
                   is_unchanged("r")], is_basic=True)
    yield Attempt("The folder from which train is called as data is refused by default",
                  [furnish({"data.path": ".", "output_dir": None}),
                   Run("train base.yaml", code=2, err="output_dir"), is_absent("runs")])


def verdict():
    """After a change that may be detected: either it was, or the bits are right."""
    def step(scene):
        if tree_of(scene.path("r")).get("trials/base/weights.safetensors"):
            same_bits(only_weights=True)(scene)
    return step


def of_places():
    for words, make, said in ODD_PLACES:
        place = "out/run" if words.startswith("below") else "out"
        yield Attempt(f"An output_dir that is {words} is refused and left as it is",
                      [furnish(), make, remember("out"),
                       Run(f"train base.yaml output_dir={place} --json --overwrite", code=2,
                           err=["output_dir", said]), is_unchanged("out")])
    yield Attempt("An output_dir through a folder that is not there and back works or is refused",
                  [furnish(), Run("train base.yaml output_dir=runs/x/../y", code=(0, 2))])
    for name in FOREIGN:
        yield Attempt(f"--overwrite leaves {name} of someone else",
                      [given(ENDED), text_of(f"r/{name}", "mine"),
                       Run("train base.yaml --overwrite"), has_text(f"r/{name}", "mine"),
                       same_bits()])
    yield Attempt("--overwrite removes what an earlier sweep wrote",
                  [given("a sweep that has ended"),
                   Run("train base.yaml --overwrite sweep={} train.max_steps=2"),
                   is_absent("r/trials/learning_rate=0.002"), lies_there("r/trials/base")])
    for kind in ("fifo", "folder"):
        make = fifo_at if kind == "fifo" else folder_at
        for name in ("config.yaml", ".spillway", "lock"):
            yield Attempt(f"A {kind} in place of {name} is told at once by resume",
                          [given(KILLED), make(f"r/{name}"),
                           Run("resume r", code=(0, 1, 2), within_s=30)],
                          is_basic=kind == "fifo")
    for name in DERIVED:
        for words, damage in DAMAGES.items():
            told = name.endswith("metrics.csv") and words == "is a folder"
            if told or words not in ("is a folder", "is a FIFO", "is gone"):
                continue  # the attempts on output cover its report by name
            yield Attempt(f"resume trains to the end where {name} {words}",
                          [given(KILLED), text_of(f"r/{name}", "old"), damage(f"r/{name}"),
                           Run("resume r", code=(0, 1), within_s=60), lies_there(WEIGHTS)])


def attempts():
    for group in (of_checkpoints, of_final_weights, of_logs, of_missing_checkpoints, of_data,
                  of_places):
        yield from group()


def random_attempt(chance, number):
    """Flips one random bit of one random file of a killed run: the same bits or a refusal."""
    at, bit = chance.random(), 1 << chance.randrange(8)
    pick = chance.random()

    def damage(scene):
        found = [file for file in sorted(scene.path("r").rglob("*"))
                 if file.is_file() and file.stat().st_size > 0]
        if not found:
            raise Skip("the run has no files")
        name = str(found[int(pick * len(found))].relative_to(scene.folder))
        scene.commands.append(f"# one bit of {name} at {at:.4f}")
        flip(name, at, bit)(scene)

    def right_or_refused(scene):
        if scene.remembered.get("refused"):
            return
        same_bits(only_weights=True)(scene)

    def resume(scene):
        Run("verify r", code=(0, 1, 2), within_s=30)(scene)
        Run("resume r", code=(0, 2), within_s=60)(scene)
        scene.remembered["refused"] = not list(scene.folder.glob(WEIGHTS))
    return Attempt(f"seed {number}: one bit of any file of a killed run is told or does no harm",
                   [given(KILLED), damage, resume, right_or_refused,
                    Run("results r", code=(0, 1, 2))])
