"""Include rules of the tree: layers include downwards only, LibTorch and CUDA stay in their places.

Run as `python3 tests/layers_test.py`; the tree is the folder above this file.
"""
import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What each top-level folder may include of the project.
ALLOWED = {
    "core": {"core"},
    "spilling": {"spilling", "core"},
    "scheduler": {"scheduler", "core"},
    "models": {"models", "core"},
    "trainer": {"trainer", "scheduler", "spilling", "models", "core"},
    "apps": {"apps", "trainer", "core"},
}
LAYERS = set(ALLOWED)
ALLOWED["examples"] = LAYERS | {"examples"}
ALLOWED["tests"] = ALLOWED["experiments"] = LAYERS | {"examples", "tests", "experiments"}

TORCH_LAYERS = {"models", "trainer"}
TORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
CUDA = re.compile(r"(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|nvtx|nvml)")
SUFFIXES = {".h", ".hpp", ".inl", ".cpp", ".cc", ".cu", ".cuh"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SUBDIRECTORY = re.compile(r"^\s*add_subdirectory\((\w+)", re.MULTILINE)
SHELL = re.compile(r"spillway_layer\(shell\s+SOURCES\s+(.*?)(?:DEPENDS[^)]*)?\)", re.DOTALL)


def includes_of(path):
    """The includes of a file, as (quote, name) with quote one of `"` and `<`."""
    return INCLUDE.findall(COMMENT.sub("", path.read_text(encoding="utf-8")))


def source_files(root):
    folders = [root / name for name in sorted(ALLOWED) if (root / name).is_dir()]
    return [path for folder in folders for path in sorted(folder.rglob("*"))
            if path.suffix in SUFFIXES]


def problems_of_file(root, path):
    """What is wrong with the includes that stand in one file."""
    name = path.relative_to(root).as_posix()
    layer = name.split("/")[0]
    in_layer = layer in LAYERS
    for quote, included in includes_of(path):
        target = included.split("/")[0]
        if TORCH.match(included):
            if in_layer and layer not in TORCH_LAYERS:
                yield f"{name}: {included}: LibTorch only in models/ and trainer/"
        elif "/" in included and target in ALLOWED:
            if target not in ALLOWED[layer]:
                yield f"{name}: {included}: {layer} may not include {target}"
            elif not (root / included).is_file():
                yield f"{name}: {included}: no such file"
        elif CUDA.match(included):
            if in_layer and not name.startswith(("core/cuda/", "trainer/cuda/")):
                yield f"{name}: {included}: CUDA only in core/cuda/ and trainer/cuda/"
        elif quote == '"':
            yield f"{name}: {included}: project files are included from the root"


def shell_sources(root):
    """Files that make up the shell library; empty where trainer/CMakeLists.txt names none."""
    lists = root / "trainer" / "CMakeLists.txt"
    text = re.sub(r"#.*", "", lists.read_text(encoding="utf-8")) if lists.is_file() else ""
    match = SHELL.search(text)
    return [root / "trainer" / name for name in match.group(1).split()] if match else []


def problems_of_shell(root):
    """The shell reaches no LibTorch and no models, through its own headers either."""
    pending = shell_sources(root)
    if not pending:
        yield "trainer/CMakeLists.txt: no sources under spillway_layer(shell"
    seen = set(pending)
    while pending:
        path = pending.pop(0)
        name = path.relative_to(root).as_posix()
        if not path.is_file():
            yield f"{name}: no such file, but part of the shell"
            continue
        for _, included in includes_of(path):
            if TORCH.match(included) or included.startswith("models/"):
                yield f"{name}: {included}: the shell reaches neither LibTorch nor models"
            elif (root / included).is_file() and root / included not in seen:
                seen.add(root / included)
                pending.append(root / included)


def unknown_layers(root):
    """Folders that the build knows and the rules above do not."""
    for name in SUBDIRECTORY.findall((root / "CMakeLists.txt").read_text(encoding="utf-8")):
        if name not in ALLOWED:
            yield f"CMakeLists.txt: {name}: a layer without include rules"


def problems(root):
    found = [text for path in source_files(root) for text in problems_of_file(root, path)]
    return found + list(problems_of_shell(root)) + list(unknown_layers(root))


SOUND = {
    "CMakeLists.txt": "add_subdirectory(core)\nadd_subdirectory(trainer)\n",
    "core/units.h": "#include <cstdint>\n",
    "core/cuda/queue.cpp": '#include "core/units.h"\n#include <cuda_runtime.h>\n',
    "spilling/arena.h": '#include "core/units.h"\n// #include "models/model.h"\n',
    "scheduler/engine.h": '#include "core/units.h"\n/*\n#include "spilling/arena.h"\n*/\n',
    "models/model.h": '#include <ATen/core/Tensor.h>\n\n#include "core/units.h"\n',
    "trainer/shell.h": '#include <boost/asio.hpp>\n\n#include "scheduler/engine.h"\n',
    "trainer/shell.cpp": '#include "trainer/shell.h"\n',
    "trainer/runner.cpp": '#include <torch/torch.h>\n\n#include "models/model.h"\n',
    "trainer/CMakeLists.txt": "spillway_layer(shell\n  SOURCES\n    shell.cpp  # no LibTorch\n"
                              "  DEPENDS spillway::core)\n"
                              "spillway_layer(trainer SOURCES runner.cpp DEPENDS x)\n",
    "apps/main.cpp": '#include "trainer/shell.h"\n',
    "tests/core/units_test.cpp": '#include <ATen/ATen.h>\n\n#include "tests/support/fake.h"\n',
    "tests/support/fake.h": '#include "scheduler/engine.h"\n',
}


# Written out, not derived, so that a slip in ALLOWED shows.
FORBIDDEN = {
    "core": "spilling scheduler models trainer apps",
    "spilling": "scheduler models trainer apps",
    "scheduler": "spilling models trainer apps",
    "models": "spilling scheduler trainer apps",
    "trainer": "apps",
    "apps": "spilling scheduler models",
}


def problems_with(changes):
    """Problems of the sound tree after some files are replaced, added or (None) removed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**SOUND, **changes}.items():
            if text is not None:
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        return problems(Path(folder).resolve())


class MadeUpTree(unittest.TestCase):
    def assert_one(self, changes, expected):
        self.assertEqual(problems_with(changes), [expected])

    def test_sound_tree_has_no_problem(self):
        self.assertEqual(problems_with({}), [])

    def test_no_layer_includes_what_it_may_not(self):
        for layer, targets in FORBIDDEN.items():
            for target in f"{targets} examples experiments tests".split():
                with self.subTest(layer=layer, target=target):
                    self.assert_one(
                        {f"{layer}/bad.cpp": f'#include "{target}/x.h"\n', f"{target}/x.h": ""},
                        f"{layer}/bad.cpp: {target}/x.h: {layer} may not include {target}")

    def test_angle_brackets_are_no_way_around(self):
        self.assert_one({"core/x.inl": "  #  include <apps/x.h>\n"},
                        "core/x.inl: apps/x.h: core may not include apps")

    def test_examples_include_no_tests(self):
        self.assert_one({"examples/x.cpp": '#include "tests/support/fake.h"\n'},
                        "examples/x.cpp: tests/support/fake.h: examples may not include tests")

    def test_includes_start_at_the_root(self):
        for included in ("units.h", "../core/units.h", "cpu/units.h"):
            with self.subTest(included=included):
                self.assert_one(
                    {"core/x.cpp": f'#include "{included}"\n'},
                    f"core/x.cpp: {included}: project files are included from the root")

    def test_included_files_exist(self):
        self.assert_one({"core/x.cpp": '#include "core/gone.h"\n'},
                        "core/x.cpp: core/gone.h: no such file")

    def test_torch_stays_in_models_and_trainer(self):
        for layer in sorted(LAYERS - TORCH_LAYERS):
            for included in ("torch/torch.h", "ATen/ATen.h", "c10/core/Allocator.h"):
                with self.subTest(layer=layer, included=included):
                    self.assert_one(
                        {f"{layer}/x.h": f"#include <{included}>\n"},
                        f"{layer}/x.h: {included}: LibTorch only in models/ and trainer/")

    def test_cuda_stays_in_core_cuda(self):
        for name in ("core/x.cpp", "core/cpu/x.cpp", "models/x.cpp", "trainer/x.cpp"):
            for included in ("cuda_runtime.h", "cuda.h", "cublas_v2.h", "cuda/std/span"):
                with self.subTest(name=name, included=included):
                    self.assert_one({name: f"#include <{included}>\n"},
                                    f"{name}: {included}: CUDA only in core/cuda/ and trainer/cuda/")

    def test_shell_includes_no_torch(self):
        self.assert_one({"trainer/shell.cpp": "#include <ATen/ATen.h>\n"},
                        "trainer/shell.cpp: ATen/ATen.h: "
                        "the shell reaches neither LibTorch nor models")

    def test_shell_reaches_no_torch_through_a_header(self):
        self.assert_one({"trainer/shell.h": '#include "trainer/runner.h"\n',
                         "trainer/runner.h": "#include <c10/core/Allocator.h>\n"},
                        "trainer/runner.h: c10/core/Allocator.h: "
                        "the shell reaches neither LibTorch nor models")

    def test_shell_reaches_no_models(self):
        self.assert_one({"trainer/shell.h": '#include "models/model.h"\n'},
                        "trainer/shell.h: models/model.h: "
                        "the shell reaches neither LibTorch nor models")

    def test_shell_must_be_named_and_whole(self):
        unnamed = "trainer/CMakeLists.txt: no sources under spillway_layer(shell"
        self.assert_one({"trainer/CMakeLists.txt": None}, unnamed)
        self.assert_one({"trainer/CMakeLists.txt": "# spillway_layer(shell SOURCES shell.cpp)\n"},
                        unnamed)
        self.assert_one({"trainer/shell.cpp": None},
                        "trainer/shell.cpp: no such file, but part of the shell")

    def test_a_new_layer_needs_rules(self):
        self.assert_one({"CMakeLists.txt": "add_subdirectory(service)\n"},
                        "CMakeLists.txt: service: a layer without include rules")


class ThisTree(unittest.TestCase):
    def test_has_sources_in_every_layer(self):
        found = {path.relative_to(ROOT).parts[0] for path in source_files(ROOT)}
        self.assertLessEqual(LAYERS | {"tests"}, found)

    def test_keeps_the_rules(self):
        self.assertEqual("\n".join(problems(ROOT)), "")


if __name__ == "__main__":
    unittest.main(verbosity=1)
