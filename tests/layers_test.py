"""Include rules of the tree: which room may include which, and where LibTorch and CUDA may appear.

Run as `python3 tests/layers_test.py`; the tree is the folder above this file.
"""
import re
import shutil
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A room is a folder of sources and a static library. It may include the rooms in its line, which
# stand above it.
ROOMS = {
    "core/base": "",
    "core/spec": "core/base",
    "core/os": "core/base",
    "core/safetensors": "core/base core/spec core/os",
    "core/peers": "core/base",
    "core/sealing": "core/base core/peers",
    "core/device": "core/base",
    "core/device/cpu": "core/base core/device",
    "core/device/cuda": "core/base core/os core/device core/device/cpu",
    "core/device/no_cuda": "core/base core/device",
    "core/peers/nccl": "core/base core/peers core/device core/device/cuda",
    "core/peers/no_nccl": "core/base core/peers",
    "spilling/residency": "core/base core/device",
    "spilling/tiers": "core/base core/os core/device spilling/residency",
    "spilling/transfer": "core/base core/device",
    "scheduler/plan": "core/base core/spec core/device spilling/residency",
    "scheduler/engine": "core/base core/device spilling/residency scheduler/plan",
    "scheduler/elastic": "core/base scheduler/plan scheduler/engine",
    "scheduler/fleet": "core/base",
    "scheduler/simulation": "core/base core/spec core/device scheduler/plan scheduler/engine "
                            "scheduler/elastic",
    "scheduler/search": "core/base core/spec scheduler/plan scheduler/engine scheduler/simulation",
    "models/base": "core/base core/spec core/device",
    "models/data": "core/base core/spec",
    "models/graphs": "core/base core/spec core/safetensors models/base models/data",
    "models/pieces": "core/base core/spec models/base models/graphs",
    "models/exported": "core/base core/spec core/os core/safetensors models/base models/data "
                       "models/graphs models/pieces",
    "models/text": "core/base core/spec models/base",
    "models/pictures": "core/base core/spec models/base",
    "models/families": "core/base core/spec models/base models/data models/pictures models/text",
    "models/modules": "core/base core/spec models/base",
    "trainer/config": "core/base core/spec core/device",
    "trainer/storage": "core/base core/spec core/os core/safetensors",
    "trainer/checkpoint": "core/base core/os core/safetensors scheduler/elastic trainer/config "
                          "trainer/storage",
    "trainer/journal": "core/base core/os trainer/storage",
    "trainer/runtime": "core/base core/peers core/device spilling/tiers spilling/transfer scheduler/plan "
                       "scheduler/engine",
    "trainer/torch": "core/base core/os core/device core/device/cuda models/base",
    "trainer/compute": "core/base core/spec core/os core/safetensors core/device spilling/tiers "
                       "scheduler/plan models/base models/data trainer/config trainer/storage trainer/checkpoint "
                       "trainer/runtime trainer/torch",
    "trainer/profile": "core/base core/spec core/os core/device spilling/tiers scheduler/plan "
                       "models/base trainer/config trainer/storage trainer/runtime "
                       "trainer/torch trainer/compute",
    "trainer/c10d": "core/base core/peers core/sealing",
    "trainer/hosts": "core/base core/peers core/sealing scheduler/fleet trainer/config trainer/c10d",
    "trainer/planning": "core/base core/spec core/device scheduler/plan scheduler/elastic "
                        "models/base models/data trainer/config trainer/torch trainer/compute",
    "trainer/trial": "core/base core/spec core/os scheduler/plan scheduler/elastic models/base "
                     "models/data trainer/config trainer/storage trainer/checkpoint trainer/journal "
                     "trainer/runtime trainer/torch trainer/compute trainer/profile trainer/planning",
    "trainer/session": "core/base core/spec core/os core/device spilling/tiers scheduler/engine "
                       "scheduler/elastic scheduler/fleet scheduler/simulation scheduler/search models/base "
                       "models/data "
                       "trainer/config trainer/storage trainer/checkpoint trainer/journal "
                       "trainer/runtime trainer/torch trainer/compute trainer/profile "
                       "trainer/hosts trainer/planning trainer/trial",
    "runs/text": "",
    "runs/config": "core/base core/device scheduler/elastic models/pieces models/exported models/families "
                   "trainer/config "
                   "runs/text",
    "runs/log": "core/base core/os trainer/config trainer/storage trainer/compute trainer/session "
                "runs/text runs/config",
    "runs/folder": "core/base core/spec core/os models/data models/exported trainer/config "
                   "trainer/storage trainer/checkpoint trainer/journal trainer/session runs/config runs/log",
    "runs/output": "core/base trainer/config trainer/storage runs/text runs/config runs/log runs/folder",
    "runs/control": "core/base core/os trainer/config trainer/storage trainer/checkpoint "
                    "trainer/journal trainer/hosts trainer/session runs/config runs/log runs/folder runs/output",
    "apps/terminal": "core/base runs/text runs/log",
    "apps/report": "core/base trainer/config runs/text runs/config runs/log runs/output "
                   "apps/terminal",
    "apps/page": "core/base runs/config runs/log runs/output apps/report",
    "apps/plan": "core/base core/spec core/os trainer/config trainer/profile trainer/session runs/text "
                 "runs/config runs/log runs/folder",
    "apps/commands": "core/base core/os trainer/config trainer/storage trainer/checkpoint "
                     "trainer/journal trainer/profile trainer/session runs/text runs/config "
                     "runs/log runs/folder runs/output runs/control apps/terminal apps/report apps/page "
                     "apps/plan",
    "apps/cli": "core/base runs/text runs/config runs/folder apps/terminal apps/commands",
}
MAX_FILES = 25

# The headers of include/spillway/, which are installed: each belongs to the room of its body.
PUBLIC = {
    "core/base": "choices error ids metric philox trace units",
    "core/spec": "model_factory spec strategy_config strategy_search",
    "core/device": "device_config",
    "models/base": "loss model model_builder weights",
    "models/data": "augment data_source tensor_source",
    "models/exported": "adapter exported",
    "models/pieces": "torch_pieces",
    "models/families": "builtin gpt_config mlp_config",
    "models/modules": "graph sequential",
    "models/pictures": "cnn_config resnet_config",
    "models/text": "rnn_config",
    "trainer/config": "contract events results session_config session_state train_config "
                      "trial_config trial_plan",
    "trainer/session": "session",
}
ROOM_OF_HEADER = {f"spillway/{name}.h": room
                  for room, names in PUBLIC.items() for name in names.split()}

# All others reach no LibTorch, through headers neither, so they run under sanitizers.
WITH_TORCH = {"models/base", "models/data", "models/exported", "models/families", "models/graphs", "models/modules",
              "models/pictures", "models/pieces", "models/text", "trainer/torch", "trainer/c10d", "trainer/hosts", "trainer/compute", "trainer/profile", "trainer/planning",
              "trainer/trial", "trainer/session"}
TORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
WITH_CUDA = ("core/device/cuda/", "core/peers/nccl/", "trainer/torch/cuda/")
CUDA = re.compile(r"(cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|nccl\.h|nvtx|nvml)")

LAYERS = list(dict.fromkeys(room.split("/")[0] for room in ROOMS))
OUTSIDE = ["tests", "experiments", "examples", "python"]  # they may include everything
SUFFIXES = {".h", ".hpp", ".inl", ".cpp", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SUBDIRECTORY = re.compile(r"^\s*add_subdirectory\((\w+)", re.MULTILINE)
ROOM_IN_CMAKE = re.compile(r"^\s*spillway_room\(([\w/]+)", re.MULTILINE)


class Tree:
    """The sources below a folder, each by its name: a public header is "spillway/NAME.h"."""

    def __init__(self, root):
        self.root = root
        self.includes = {}
        for folder in [*LAYERS, *OUTSIDE, "include"]:
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in SUFFIXES:
                    name = path.relative_to(root).as_posix().removeprefix("include/")
                    text = COMMENT.sub("", path.read_text(encoding="utf-8"))
                    self.includes[name] = INCLUDE.findall(text)

    def problems(self):
        yield from self.problems_of_the_build()
        yield from self.problems_of_rooms()
        for name in self.includes:
            if name.split("/")[0] in OUTSIDE:
                yield from self.problems_outside(name)
            else:
                yield from self.problems_inside(name)

    def problems_of_the_build(self):
        """Folders that the build knows and the rules above do not, and the reverse."""
        top = (self.root / "CMakeLists.txt").read_text(encoding="utf-8")
        for name in SUBDIRECTORY.findall(top):
            if name not in [*LAYERS, *OUTSIDE]:
                yield f"CMakeLists.txt: {name}: a layer without include rules"
        for layer in LAYERS:
            lists = self.root / layer / "CMakeLists.txt"
            text = lists.read_text(encoding="utf-8") if lists.is_file() else ""
            built = {f"{layer}/{room}" for room in ROOM_IN_CMAKE.findall(text)}
            for room in sorted(built ^ {room for room in ROOMS if room.split("/")[0] == layer}):
                yield f"{layer}/CMakeLists.txt: {room}: a library without rules, or the reverse"

    def problems_of_rooms(self):
        for room in ROOMS:
            files = [name for name in self.includes if room_of(name) == room]
            if len(files) > MAX_FILES:
                yield f"{room}: {len(files)} files, more than {MAX_FILES}"

    def problems_outside(self, name):
        for quote, included in self.includes[name]:
            if is_of_project(included):
                if included not in self.includes:
                    yield f"{name}: {included}: no such file"
            elif quote == '"':
                yield f"{name}: {included}: project files are included from the root"

    def problems_inside(self, name):
        room = room_of(name)
        if room is None:
            yield f"{name}: in no room"
            return
        yield from self.problems_outside(name)
        for _, included in self.includes[name]:
            if is_of_project(included):
                yield from problems_between(name, room, included)
            elif CUDA.match(included) and not name.startswith(WITH_CUDA):
                yield f"{name}: {included}: CUDA only in {', '.join(WITH_CUDA)}"
        if room not in WITH_TORCH:
            for included in self.torch_from(name):
                yield f"{name}: {included}: {room} reaches no LibTorch"

    def torch_from(self, name):
        """What of LibTorch a file includes, through headers of the project too."""
        pending, seen = [name], {name}
        while pending:
            for _, included in self.includes.get(pending.pop(), []):
                if TORCH.match(included):
                    yield included
                elif included not in seen:
                    seen.add(included)
                    pending.append(included)


def is_of_project(included):
    return included.split("/")[0] in [*LAYERS, *OUTSIDE, "spillway"] and "/" in included


def room_of(name):
    """The innermost room that a file lies in; none for one that lies in no room."""
    if name.startswith("spillway/"):
        return ROOM_OF_HEADER.get(name)
    folders = [room for room in ROOMS if name.startswith(room + "/")]
    return max(folders, key=len, default=None)


def problems_between(name, room, included):
    other = room_of(included)
    if other not in [room, *ROOMS[room].split()]:
        yield f"{name}: {included}: {room} may not include {other or 'what is in no room'}"
    if name.startswith("spillway/") and not included.startswith("spillway/"):
        yield f"{name}: {included}: public headers include public ones only"


def problems(root):
    return list(Tree(root).problems())


class Rules(unittest.TestCase):
    def test_no_room_includes_one_that_stands_below_it(self):
        above = []
        for room, includes in ROOMS.items():
            self.assertLessEqual(set(includes.split()), set(above), room)
            above.append(room)

    def test_no_layer_includes_one_that_stands_below_it(self):
        for room, includes in ROOMS.items():
            for other in includes.split():
                self.assertLessEqual(LAYERS.index(other.split("/")[0]),
                                     LAYERS.index(room.split("/")[0]), room)

    def test_what_must_stay_apart(self):
        for room, includes in ROOMS.items():
            layers = {other.split("/")[0] for other in includes.split()}
            if room.startswith("scheduler/"):  # it is pure: no arena, no copy
                self.assertNotIn("spilling/tiers", includes.split())
                self.assertNotIn("spilling/transfer", includes.split())
            if room.startswith("models/"):
                self.assertLessEqual(layers, {"core", "models"}, room)
            if room.startswith("apps/"):
                self.assertLessEqual(layers, {"core", "trainer", "runs", "apps"}, room)


class Controls(unittest.TestCase):
    """Each rule reports a tree that breaks it: this one with files that are made up."""

    MADE_UP = {
        "core/x.h": [], "core/spec/x.h": ['"scheduler/engine/engine.h"'],
        "core/base/x.h": ["<cuda_runtime.h>"], "core/os/x.h": ['"y.h"', '"core/os/no.h"'],
        "include/spillway/x.h": [], "include/spillway/ids.h": ['"core/base/nearest.h"'],
        "trainer/runtime/x.cpp": ["<ATen/ATen.h>"], "apps/cli/x.cpp": ['"spillway/model.h"'],
        "tests/x.cpp": ['"core/no.h"'], **{f"models/base/x{i}.h": [] for i in range(MAX_FILES)},
    }
    EXPECTED = [
        "core/x.h: in no room", "spillway/x.h: in no room",
        "core/spec/x.h: scheduler/engine/engine.h: core/spec may not include scheduler/engine",
        "core/base/x.h: cuda_runtime.h: CUDA only in core/device/cuda/, core/peers/nccl/, trainer/torch/cuda/",
        "core/os/x.h: y.h: project files are included from the root",
        "core/os/x.h: core/os/no.h: no such file", "tests/x.cpp: core/no.h: no such file",
        "spillway/ids.h: core/base/nearest.h: public headers include public ones only",
        "trainer/runtime/x.cpp: ATen/ATen.h: trainer/runtime reaches no LibTorch",
        "apps/cli/x.cpp: ATen/core/Tensor.h: apps/cli reaches no LibTorch",
        "CMakeLists.txt: service: a layer without include rules",
        "core/CMakeLists.txt: core/new: a library without rules, or the reverse",
        "core/CMakeLists.txt: core/base: a library without rules, or the reverse",
    ]

    def test_every_rule_reports(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in [*LAYERS, *OUTSIDE, "include", "CMakeLists.txt"]:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, root / name)
            for name, includes in self.MADE_UP.items():
                (root / name).write_text("".join(f"#include {file}\n" for file in includes))
            with open(root / "CMakeLists.txt", "a") as build:
                build.write("add_subdirectory(service)\n")
            lists = root / "core/CMakeLists.txt"
            lists.write_text(lists.read_text().replace("spillway_room(base", "spillway_room(new"))
            found = problems(root)
        for problem in self.EXPECTED:
            self.assertIn(problem, found)
        self.assertTrue(any(problem.startswith("models/base: ") for problem in found))


class ThisTree(unittest.TestCase):
    def test_has_sources_in_every_room(self):
        rooms = {room_of(name) for name in Tree(ROOT).includes}
        self.assertLessEqual(set(ROOMS), rooms)

    def test_keeps_the_rules(self):
        self.assertEqual("\n".join(problems(ROOT)), "")


if __name__ == "__main__":
    unittest.main(verbosity=1)
