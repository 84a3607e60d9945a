"""Foreign text: names, paths and values that try to leave their place or to act as more than text.
"""

import json

from campaign import config_with
from run import Run
from scene import Attempt, Surprise
from steps import (cells_are_harmless, furnish, given, has_text, is_absent, is_unchanged,
                   lies_there, link_at, made_folder, remember, text_of)

CONTROLS = {"ESC": "\x1b[2J", "BEL": "\x07", "CR": "\rspillway: all is well", "BS": "\b\b\b",
            "DEL": "\x7f", "a C1 control": "\x9b31m", "a title": "\x1b]0;mine\x07",
            "a right-to-left override": "\u202egnirts"}
# Messages that quote text of the user: a command line, with X for the text.
QUOTED = {
    "a value": ["train", "base.yaml", "train.data_parallel=X"],
    "a key": ["train", "base.yaml", "X=1"],
    "a key of a section": ["train", "base.yaml", "train.X=1"],
    "a data path": ["train", "base.yaml", "data.path=X"],
    "the configuration's name": ["train", "X.yaml"],
    "a folder to resume": ["resume", "X"],
    "a folder of results": ["results", "X"],
    "a command": ["X"],
    "an option": ["train", "base.yaml", "--X"],
    "offload_path": ["train", "base.yaml", "offload_path=X"],
    "a choice": ["train", "base.yaml", "scheduling.policy=X"],
}
NAMES = ["../../escape", "/etc/escape", "..", ".", "a/b/c", "~", "$HOME", "a\nb", "a\tb",
         "con\x1b[31m", "x" * 5000, "名前", "ünïcödé", "\u202eabc", "-rf", "--help", "*", "a;b",
         "`id`", "%n%s", "CON", ".spillway", "lock", "a\\b", "'", '"', "null", "🙂"]
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "=HYPERLINK(\"http://x\")", "\t=1", "\r=1",
            "-2-3+cmd|' /C calc'!A0"]


def shell_word(text):
    return "'" + text.replace("'", "'\\''") + "'"


def quoted_somewhere(place, name, control):
    words = [word.replace("X", json.dumps(control) if "=X" in word else control)
             for word in QUOTED[place]]
    line = " ".join(map(shell_word, words))
    return Attempt(f"{name} in {place} reaches no terminal as it is",
                   [furnish(), Run(line, code=2), is_absent("r")])


def one_configuration(changes):
    """As JSON, safe from a shell's expansion."""
    return text_of("base.yaml", json.dumps(config_with(changes)))


def nothing_outside(scene):
    """Only files of the attempt lie beside it."""
    for name in ("escape", "../escape", "../../escape"):
        if scene.path(name).exists():
            raise Surprise(f"{name} was made")


def of_names():
    for name in NAMES:
        shown = json.dumps(name if len(name) < 40 else name[:10] + "...", ensure_ascii=True)
        yield Attempt(f"The name {shown} stays in its folder",
                      [furnish(), one_configuration({"name": name, "output_dir": None,
                                                     "train.max_steps": 1}),
                       Run("train base.yaml", code=(0, 2)), nothing_outside])
    for name in ("名前", "ünïcödé", "日本"):
        yield Attempt(f"The letters of the name {name} stay in the folder's name",
                      [furnish(), one_configuration({"name": name, "output_dir": None,
                                                     "train.max_steps": 1}),
                       Run("train base.yaml"), lies_there(f"runs/{name}/results.csv")])
    yield Attempt("A swept path with dots and slashes stays in its folder",
                  [furnish(), made_folder("corpus"), text_of("corpus/a.txt", "abc " * 999),
                   one_configuration({"train.max_steps": 1, "sweep": {"parameters": {
                       "data.path": {"values": ["corpus/../text.txt", "./corpus/a.txt"]}}}}),
                   Run("train base.yaml"), nothing_outside,
                   lies_there("r/trials/*/weights.safetensors")])


def of_cells():
    for formula in FORMULAS:
        yield Attempt(f"No spreadsheet computes the name {json.dumps(formula)}",
                      [furnish(), one_configuration({"name": formula, "train.max_steps": 1}),
                       Run("train base.yaml --json"), cells_are_harmless("r/results.csv")])
    yield Attempt("No spreadsheet computes the values of a sweep",
                  [furnish(), *[text_of(name, "abc " * 999) for name in ("=a1", "+a2", "@a3")],
                   one_configuration({"train.max_steps": 1, "sweep": {"parameters": {
                       "data.path": {"values": ["=a1", "+a2", "@a3"]}}}}),
                   Run("train base.yaml"), cells_are_harmless("r/results.csv")])
    yield Attempt("Numbers below zero stay numbers in results.csv",
                  [furnish(), Run("train base.yaml train.max_steps=1"),
                   has_text("r/results.csv", r"^base,done,1,\d")])


def of_links():
    for name in ("lock", "events.jsonl", "config.yaml", "results.csv", "plan.json", "trace.json",
                 ".spillway", "journal.sqlite"):
        for kind, words in (("a run that has ended", "train base.yaml --overwrite"),
                            ("a run that was killed", "resume r")):
            yield Attempt(f"{words} through a symlink in place of {name} leaves its target",
                          [given(kind), text_of("target", "mine"), remember("target"),
                           link_at(f"r/{name}", "../target"), Run(words, code=(0, 1, 2)),
                           is_unchanged("target")])
    # The folders may lie on another disk; foreign files there stay.
    for name, target in (("trials", "../victim"), ("trials/base", "../../victim")):
        yield Attempt(f"--overwrite through a symlink in place of {name} removes nothing of others",
                      [given("a run that has ended"), text_of("victim/a", "mine"),
                       text_of("victim/base/b", "mine"), link_at(f"r/{name}", target),
                       Run("train base.yaml --overwrite", code=(0, 1, 2)),
                       has_text("victim/a", "mine"), has_text("victim/base/b", "mine")])
    yield Attempt("The cache of costs through a symlink leaves its target",
                  [furnish(), text_of("target", "mine"), remember("target"),
                   link_at("cache/spillway/pilot.json", "../../target"),
                   Run("train base.yaml", env={"XDG_CACHE_HOME": "HERE/cache"}),
                   is_unchanged("target")])


def attempts():
    places = list(QUOTED)
    for number, (name, control) in enumerate(CONTROLS.items()):
        for turn in range(4):
            yield quoted_somewhere(places[(number * 3 + turn * 3) % len(places)], name, control)
    yield from of_names()
    yield from of_cells()
    yield from of_links()
    for name, control in list(CONTROLS.items())[:3]:
        yield Attempt(f"{name} in a trial's data path reaches no terminal as it is",
                      [furnish(), text_of("odd" + control.replace("/", ""), "abc " * 999),
                       one_configuration({"train.max_steps": 1, "sweep": {"parameters": {
                           "data.path": {"values": ["odd" + control.replace("/", ""),
                                                    "text.txt"]}}}}),
                       Run("train base.yaml"), Run("results r"), Run("verify r")])
    yield Attempt("A log with control characters is shown without them",
                  [given("a run that has ended"), one_log_with_control_characters,
                   Run("results r", code=(0, 1, 2)), Run("verify r", code=(0, 1, 2))])


def one_log_with_control_characters(scene):
    log = scene.path("r/events.jsonl")
    log.write_text(log.read_text().replace('"name":"base"', '"name":"b\\u001b[31mse\\u0007"'))
