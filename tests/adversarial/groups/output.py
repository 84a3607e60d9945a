"""Output: documents on every exit code, closed streams, live runs, help."""

import json

from campaign import LONG, SLOW_DEVICE
from run import Finish, Run, Send, Start, Until, checkpoints, says, takes
from scene import Attempt, Surprise
from steps import (both, cut, error_of_kind, every, folder_at, furnish, given, is_absent, is_json,
                   lies_there, peaks_within_budgets, remove, same_bits, trials_are)

ENDED, KILLED = "a run that has ended", "a run that was killed"
DIVERGES = ("train.learning_rate=9e5 train.max_grad_norm=0 train.max_steps=20 "
            "train.optimizer=sgd")
# The command, its exit code, and the checks of its document.
DOCUMENTS = [
    ("train that is done", "train base.yaml --json", 0, trials_are("done")),
    ("train with --overwrite", "train base.yaml --json --overwrite", 0, trials_are("done")),
    ("plan", "plan base.yaml --json", 0, lambda d: "" if d["fits"] else "it does not fit"),
    ("plan without measuring", "plan base.yaml --no-pilot --json", 0,
     lambda d: "" if d["estimated"] else "it is not estimated"),
    ("doctor", "doctor --json", 0, lambda d: "" if d.get("cores") else "it has no cores"),
    ("plan that does not fit", "plan base.yaml --json devices='[{memory: 8KiB}]'", 3,
     lambda d: "" if d.get("fits") is False or "error" in d else "it fits"),
    ("train that does not fit", "train base.yaml --json devices='[{memory: 8KiB}]'", 3,
     error_of_kind(code=3)),
    ("train of two wrong values", "train base.yaml --json train.data_parallel=x seed=-1", 2,
     error_of_kind("train.data_parallel", "seed")),
    ("results of nothing", "results nowhere --json", 2, error_of_kind()),
]
# How a shell closes the streams, the valid exit codes, and what is trained nevertheless.
STREAMS = [
    ("standard output closed", "exec {} >&-", (0, 1), True),
    ("standard error closed", "exec {} 2>&-", (0, 1), True),
    ("standard input closed", "exec {} <&-", 0, True),
    ("all streams closed", "exec {} <&- >&- 2>&-", (0, 1), True),
    ("output and input closed", "exec {} <&- >&-", (0, 1), True),
    ("output on a full disk", "exec {} >/dev/full", 1, True),
    ("errors on a full disk", "exec {} 2>/dev/full", (0, 1), True),
    ("a reader that reads one line", "{} | head -1; exit ${PIPESTATUS[0]}", (0, 1), True),
    ("a reader that reads nothing", "{} | true; exit ${PIPESTATUS[0]}", (0, 1), True),
    ("a reader of errors that reads one line",
     "{} 2>&1 >/dev/null | head -1; exit ${PIPESTATUS[0]}", (0, 1), True),
    ("a directory as standard input", "exec {} <.", 0, True),
    ("/dev/null as output", "exec {} >/dev/null", 0, True),
    ("output appended to a file that grows", "exec {} >>grown", 0, True),
]


def of_documents():
    for name, words, code, doc in DOCUMENTS:
        yield Attempt(f"The document of {name} is one, with what came",
                      [furnish(), Run(words, code=code, doc=doc)], is_basic=code == 3)
    yield Attempt("The document of a trial that fails is a report with its state",
                  [furnish(), Run(f"train base.yaml --json {DIVERGES}", code=1,
                                  doc=trials_are("failed"))])
    yield Attempt("The document of a run that is interrupted is a report",
                  [furnish(LONG), Run(f"train base.yaml --json {SLOW_DEVICE}", code=130,
                                      during=[(checkpoints(1), 2)], doc=trials_are("stopped"))])
    yield Attempt("The document of a resume is as that of an undisturbed run",
                  [given(KILLED), Run("resume r --json",
                                      doc=every(trials_are("done"), peaks_within_budgets))])
    yield Attempt("The document of a run in use names the process",
                  [furnish(LONG), Start("a", Run(f"train base.yaml {SLOW_DEVICE}")),
                   Until("a", says("running")),
                   Run("train base.yaml --overwrite --json", code=2,
                       doc=lambda d: "" if "process" in d["error"]["message"] else "no process"),
                   Finish("a")])
    yield Attempt("The document of verify of damaged checkpoints is its list",
                  [given(ENDED), cut("r/trials/base/checkpoints/*/weights.safetensors"),
                   Run("verify r --json", code=1,
                       doc=lambda d: "" if any(c["problem"] for c in d["checkpoints"])
                       else "no problem is listed")], is_basic=True)
    yield Attempt("The document of a run whose damaged journal is made anew is a report",
                  [given(KILLED), cut("r/journal.sqlite", 0.4), cut("r/journal.sqlite-wal", 0),
                   Run("verify r", code=1),
                   Run("resume r --json", doc=trials_are("done"),
                       err=["journal.sqlite is damaged",
                            "renaming it to r/journal.sqlite.damaged"]),
                   same_bits()], is_basic=True)
    for name, words in (("results", "results r"), ("verify", "verify r"),
                        ("resume", "resume r")):
        yield Attempt(f"{name} of a folder without its log has a document",
                      [given(ENDED), remove("r/events.jsonl"),
                       Run(f"{words} --json", code=(0, 1, 2))])
    for variable in ("MKL_VERBOSE", "DNNL_VERBOSE", "ONEDNN_VERBOSE"):
        yield Attempt(f"With {variable} nothing but the document reaches standard output",
                      [furnish(), Run("train base.yaml --json", env={variable: "1"},
                                      doc=trials_are("done"))],
                      is_basic=variable == "MKL_VERBOSE")


def of_streams():
    for name, shell, code, _ in STREAMS:
        for words in ("", " --json"):
            yield Attempt(f"train{words} with {name} writes all that it trained",
                          [furnish(), Run("train base.yaml" + words, code=code, shell=shell,
                                          is_loose=True, within_s=60),
                           same_bits(), lies_there("r/trace.json"), Run("results r"),
                           no_file_has_output], is_basic="closed" in name and not words)
    yield Attempt("A reader that goes away does not end a long training",
                  [furnish(LONG), Run(f"train base.yaml {SLOW_DEVICE} --json", code=(0, 1),
                                      shell="{} 2>&1 >/dev/null | head -1; exit ${PIPESTATUS[0]}",
                                      is_loose=True), same_bits()])
    for words in ("--help", "train --help", "--version", "completion bash", "results r",
                  "verify r", "plan base.yaml"):
        yield Attempt(f"{words} to a full disk is an error",
                      [given(ENDED), Run(words, code=1, shell="exec {} >/dev/full",
                                         is_loose=True, err="spillway: ")],
                      is_basic=words in ("--help", "plan base.yaml"))
    yield Attempt("--version prints the version",
                  [furnish(), Run("--version", out=r"\d+\.\d+\.\d+")])


def no_file_has_output(scene):
    """A file of the run must not get the number of a closed stream."""
    for name in ("lock", "journal.sqlite", "events.jsonl", "results.csv"):
        if b"Best trial" in scene.path(f"r/{name}").read_bytes():
            raise Surprise(f"{name} has what belongs on standard output")


def polled(words, count=8):
    """Reads a live run repeatedly."""
    def step(scene):
        for _ in range(count):
            Run(words, code=0)(scene)
    return step


def of_live_runs():
    for words in ("results r", "results r --json", "verify r", "verify r --json"):
        yield Attempt(f"{words} reads a live run again and again and changes no bit",
                      [furnish(LONG), Start("a", Run(f"train base.yaml {SLOW_DEVICE}")),
                       Until("a", checkpoints(1)), polled(words, 4), Finish("a"), same_bits()])
    yield Attempt("results of a live run says that it runs",
                  [furnish(LONG), Start("a", Run(f"train base.yaml {SLOW_DEVICE}")),
                   Until("a", checkpoints(1)),
                   Run("results r --json",
                       doc=lambda d: "" if d["state"] == "running" else "it does not run"),
                   Finish("a"), Run("results r --json",
                                    doc=lambda d: "" if d["state"] == "ended" else "not ended")])
    yield Attempt("results of a run that was killed says that it was interrupted or killed",
                  [given(KILLED), Run("results r", out="interrupted or killed")])
    yield Attempt("A storm of SIGUSR1 changes no bit",
                  [furnish(LONG), Start("a", Run(f"train base.yaml {SLOW_DEVICE}",
                                                 err="in flight|cpu:0")),
                   Until("a", takes(10)), Until("a", checkpoints(1)),
                   both(*[Send("a", 10)] * 20), Finish("a"), same_bits()])
    for name, place in (("a folder in its place", folder_at("r/trace.json.tmp")),
                        ("a folder of its name", folder_at("r/trace.json"))):
        yield Attempt(f"A trace that cannot be written, with {name}, is one warning at most",
                      [given(KILLED), place, Run("resume r --json", code=0,
                                                 doc=trials_are("done")), same_bits()],
                      is_basic=name == "a folder of its name")
    yield Attempt("A folder in place of a trial's metrics.csv is told by name and stays",
                  [given(KILLED), folder_at("r/trials/base/metrics.csv"),
                   Run("resume r", code=1, err="metrics.csv"),
                   lies_there("r/trials/base/metrics.csv")])
    for name in ("results.csv", "plan.json"):
        yield Attempt(f"What cannot be written as {name} is told by name, and all is trained",
                      [given(KILLED), folder_at(f"r/{name}.tmp"), folder_at(f"r/{name}"),
                       Run("resume r", code=1, err=name.replace(".", "[.]")),
                       lies_there("r/trials/base/weights.safetensors")], is_basic=True)
    yield Attempt("The files for other programs can be read by them",
                  [given(ENDED), is_json("r/plan.json"), is_json("r/trace.json"), json_lines])
    yield Attempt("A usage error leaves nothing behind",
                  [furnish(), Run("train base.yaml train.data_parallel=2", code=2),
                   is_absent("r", "runs")])


def json_lines(scene):
    for line in scene.path("r/events.jsonl").read_text().splitlines():
        json.loads(line)


def attempts():
    yield from of_documents()
    yield from of_streams()
    yield from of_live_runs()
