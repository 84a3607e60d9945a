#!/usr/bin/env python3
"""Draws one training step of a run's trace.json as an SVG timeline: one row of compute, two of copies.

    build/bin/spillway train docs/images/two_models.yaml data.path=$(bash scripts/data.sh)
    python3 docs/images/draw_trace.py runs/two_models/trace.json 2 > docs/images/two_models.svg
"""
import json
import re
import sys

WIDTH, LEFT, RIGHT = 960, 124, 16
COMPUTE_Y, TO_DEVICE_Y, TO_HOST_Y = 104, 176, 222
COMPUTE_HEIGHT, COPY_HEIGHT = 52, 26
AXIS_Y = 268
LIGHT, DARK = ("#9ecbf2", "#ffcf94"), ("#1f6fb5", "#d9730d")
REAL, COMPUTE, TO_DEVICE, TO_HOST = 1, 0, 1, 2  # the process, and the threads of device 0


def spans(path, thread):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    found = [e for e in events if e["ph"] == "X" and e["pid"] == REAL and e["tid"] == thread]
    return sorted(found, key=lambda e: e["ts"])


def units(ops):
    """Merges the virtual nodes of one shard, which follow each other, into (trial, kind, first, last,
    begin, end); begin and end are in milliseconds."""
    merged = []
    for op in ops:
        kind, first, last = re.match(r"(\w+) (\d+)(?:-(\d+))?", op["name"]).groups()
        key = (op["cat"], kind, int(first), int(last or first))
        begin, end = op["ts"] / 1e3, (op["ts"] + op["dur"]) / 1e3
        if merged and merged[-1][:4] == key:
            merged[-1] = key + (merged[-1][4], end)
        else:
            merged.append(key + (begin, end))
    return merged


def hidden_share(copies, ops):
    """The part of the copies' time in which the device computes."""
    busy = [(op["ts"], op["ts"] + op["dur"]) for op in ops]
    overlap = sum(max(0, min(end, c["ts"] + c["dur"]) - max(begin, c["ts"]))
                  for c in copies for begin, end in busy)
    return overlap / sum(c["dur"] for c in copies)


class Picture:
    def __init__(self, begin_ms, end_ms):
        self.begin, self.scale = begin_ms, (WIDTH - LEFT - RIGHT) / (end_ms - begin_ms)
        self.lines = []

    def x(self, ms):
        return LEFT + (ms - self.begin) * self.scale

    def bar(self, begin, end, y, height, color, title):
        width = max(0.6, (end - begin) * self.scale - 0.4)
        self.lines.append(f'<rect x="{self.x(begin):.1f}" y="{y}" width="{width:.1f}" '
                          f'height="{height}" fill="{color}"><title>{title}</title></rect>')

    def text(self, x, y, text, size=14, anchor="start", color="#222", weight="normal"):
        self.lines.append(f'<text x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{color}" font-weight="{weight}">{text}</text>')

    def row(self, y, height, label):
        self.lines.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" '
                          f'height="{height}" fill="#f1f3f5"/>')
        self.text(LEFT - 10, y + height / 2 + 5, label, anchor="end")

    def axis(self, end_ms):
        length = int(end_ms - self.begin)
        tick = next(t for t in (50, 100, 200, 500, 1000, 10**6) if length <= 14 * t)
        for ms in range(0, length + 1, tick):
            x = self.x(self.begin + ms)
            self.lines.append(f'<path d="M{x:.1f} {COMPUTE_Y} V{AXIS_Y}" stroke="#adb5bd" '
                              'stroke-width="0.6" stroke-dasharray="2 3"/>')
            self.text(x, AXIS_Y + 16, str(ms), size=13, anchor="middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, AXIS_Y + 34, "milliseconds", size=13, anchor="middle")

    def legend(self, trials):
        x = LEFT
        for number, trial in enumerate(trials):
            for color in (LIGHT[number], DARK[number]):
                self.lines.append(f'<rect x="{x}" y="66" width="16" height="16" fill="{color}"/>')
                x += 18
            self.text(x + 6, 79, f"model {'AB'[number]}")
            x += 98
        self.text(x + 10, 79, "light: forward (F), dark: backward (B); the number is the shard")

    def svg(self):
        body = "\n".join(self.lines)
        height = AXIS_Y + 44
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                f'font-family="Helvetica, Arial, sans-serif">\n'
                f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n{body}\n</svg>')


def main(path, step):
    ops = [op for op in spans(path, COMPUTE) if op["args"]["step"] == step]
    ops = [op for op in ops if op["name"].startswith(("forward", "backward"))]
    begin, end = ops[0]["ts"] / 1e3, (ops[-1]["ts"] + ops[-1]["dur"]) / 1e3
    trials = sorted({op["cat"] for op in ops})
    shards = sorted({unit[2:4] for unit in units(ops)})
    copies = {y: [c for c in spans(path, thread) if begin * 1e3 <= c["ts"] <= end * 1e3]
              for y, thread in ((TO_DEVICE_Y, TO_DEVICE), (TO_HOST_Y, TO_HOST))}

    picture = Picture(begin, end)
    picture.row(COMPUTE_Y, COMPUTE_HEIGHT, "compute")
    picture.row(TO_DEVICE_Y, COPY_HEIGHT, "host → device")
    picture.row(TO_HOST_Y, COPY_HEIGHT, "device → host")
    picture.axis(end)
    for trial, kind, first, last, unit_begin, unit_end in units(ops):
        model, shard = trials.index(trial), shards.index((first, last)) + 1
        forward = kind == "forward"
        picture.bar(unit_begin, unit_end, COMPUTE_Y, COMPUTE_HEIGHT,
                    (LIGHT if forward else DARK)[model], f"{trial}: {kind}, shard {shard}")
        if (unit_end - unit_begin) * picture.scale > 16:
            picture.text(picture.x((unit_begin + unit_end) / 2), COMPUTE_Y + COMPUTE_HEIGHT / 2 + 5,
                         f"{kind[0].upper()}{shard}", size=13, anchor="middle",
                         color="#222" if forward else "white")
    for y, row in copies.items():
        for copy in row:
            picture.bar(copy["ts"] / 1e3, (copy["ts"] + copy["dur"]) / 1e3, y, COPY_HEIGHT,
                        DARK[trials.index(copy["cat"])], f"{copy['cat']}: {copy['name']}")
    hidden = hidden_share([c for row in copies.values() for c in row], spans(path, COMPUTE))
    picture.text(LEFT, 26, "One training step of two models on one device", size=19, weight="bold")
    picture.text(LEFT, 50, f"Each model is larger than the device. During {hidden:.0%} of the copy time "
                 "the device computes.", size=15)
    picture.legend(trials)
    print(picture.svg())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
