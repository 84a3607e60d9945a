#!/usr/bin/env python3
"""The HTML page of a run: its structure and, where Chromium is installed, what it draws.

Usage: report_test.py PROGRAM TEXT
"""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, TEXT = (os.path.abspath(path) for path in (sys.argv[1], sys.argv[2]))

CONFIG = f"""
name: "<b>a & b</b></script>"
devices: [{{memory: 1MiB}}, {{memory: 1MiB}}]
model: {{num_hidden_layers: 2, hidden_size: 16, max_position_embeddings: 16}}
data: {{path: {TEXT}}}
train: {{batch_size: 4, virtual_nodes: 2, max_steps: 60, eval_steps: 20, eval_batches: 1,
  strategy: strategy.yaml}}
output_dir: run
sweep:
  parameters:
    train.learning_rate: {{values: [1e-4, 1e-3, 1e-2]}}
    train.optimizer: {{values: [sgd, adamw]}}
"""
STRATEGY = '{spillway_strategy: 1, place: [{layers: "h.1.*", tracks: [1]}]}'
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Structure(html.parser.HTMLParser):
    """Elements that are open at the end, and the text of the inlined data."""

    VOID = {"meta", "input"}

    def __init__(self, page):
        super().__init__()
        self.open, self.data, self.places = [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.places += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1][1].get("id") == "data":
            self.data += data


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = Path(cls.temporary.name)
        (cls.folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
        (cls.folder / "strategy.yaml").write_text(STRATEGY, encoding="utf-8")
        cls.spillway("train", "config.yaml")
        cls.spillway("report", "run")
        cls.page = (cls.folder / "run/report.html").read_text(encoding="utf-8")

    @classmethod
    def spillway(cls, *arguments):
        result = subprocess.run([PROGRAM, *arguments], cwd=cls.folder, timeout=100,
                                capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def test_is_one_file_with_the_data_of_the_run(self):
        structure = Structure(self.page)
        self.assertEqual((structure.open, structure.places), ([], []))
        data = json.loads(structure.data)
        results = json.loads(self.spillway("results", "run", "--json"))
        self.assertEqual(data["best"]["folder"], results["best"]["folder"])
        self.assertEqual([trial["metric"] for trial in data["trials"]],
                         sorted(trial["metric"] for trial in results["trials"]))
        for trial in data["trials"]:
            self.assertEqual([step for step, _ in trial["loss"]], list(range(1, 61)))
            self.assertEqual([step for step, _ in trial["eval"]], [20, 40, 60])
        self.assertIn("device 1 compute", data["timeline"]["rows"])
        self.assertEqual([place["name"] for place in data["memory"]],
                         ["device 0 memory", "device 1 memory", "host memory"])
        host = [size for _, size in data["memory"][2]["points"]]
        self.assertGreater(max(host), 0)
        self.assertLessEqual(max(host), results["host_peak_bytes"])

    def test_goes_where_it_is_told(self):
        self.assertEqual(self.spillway("report", "run", "-o", "page.html"), "Report: page.html\n")
        self.assertEqual((self.folder / "page.html").read_text(encoding="utf-8"), self.page)

    @unittest.skipUnless(CHROMIUM, "no Chromium is installed")
    def test_draws_itself_in_a_browser(self):
        with tempfile.TemporaryDirectory() as profile:
            drawn = subprocess.run(
                [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                 f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom",
                 (self.folder / "run/report.html").as_uri()],
                capture_output=True, text=True, timeout=100, check=True)
        self.assertNotIn("CONSOLE", drawn.stderr)  # neither errors nor refused requests
        dom = drawn.stdout.split("</script>")[-1] + drawn.stdout.split("<script")[0]
        self.assertIn("&lt;b&gt;a &amp; b&lt;/b&gt;&lt;/script&gt;</h1>", dom)
        main = re.search("<main>.*</main>", drawn.stdout, re.DOTALL).group()
        self.assertEqual(main.count("<tr"), 1 + 6 + 1 + 3)  # trials, strategy
        self.assertEqual(main.count('class="placed">O<'), 3)
        # A line for the training and one for the evaluation of each trial, one for its values.
        self.assertEqual(main.count("<polyline"), 3 * 6 + 3)  # the last three: memory
        self.assertEqual(main.count("<canvas"), 1)
        self.assertNotIn("NaN", main)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
