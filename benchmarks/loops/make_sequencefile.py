"""Write a SequenceFile of snappy blocks: PATH COUNT.

Keys of 12 bytes, values of 100, half of each random. Seeded.
"""

import random
import sys

from tarkit.formats.sequencefile import PairWriter

path, count = sys.argv[1], int(sys.argv[2])
draw = random.Random(20240229)
with PairWriter(path, "Text", "BytesWritable", codec="snappy") as writer:
    for number in range(count):
        writer.write(f"key-{number:08}", draw.randbytes(50) + bytes(50))
