"""Pictures of noise as a safetensors file, for models of which only the costs matter."""

import json
import random
import struct


def write(path, samples, channels, size, classes):
    """`images` [samples, channels, size, size] and `labels` [samples], both of bytes."""
    draw = random.Random(1)
    images = draw.randbytes(samples * channels * size * size)
    labels = bytes(draw.randrange(min(classes, 256)) for _ in range(samples))
    header = json.dumps({
        "images": {"dtype": "U8", "shape": [samples, channels, size, size],
                   "data_offsets": [0, len(images)]},
        "labels": {"dtype": "U8", "shape": [samples],
                   "data_offsets": [len(images), len(images) + samples]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + images + labels)
