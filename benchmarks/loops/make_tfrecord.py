"""Write a TFRecord file: PATH COUNT SIZE records|examples.

Seeded.
"""

import random
import sys

from tarkit.formats.example import encode_example
from tarkit.formats.tfrecord import RecordWriter

path, count, size, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
draw = random.Random(20240229)
with RecordWriter(path) as writer:
    for number in range(count):
        data = draw.randbytes(size)
        if kind == "examples":
            data = encode_example({"image": data, "label": number % 1000, "name": b"image-%06d" % number})
        writer.write(data)
