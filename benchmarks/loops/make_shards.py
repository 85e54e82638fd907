"""Write shards with indexes: make_shards.py FOLDER SHARDS SAMPLES SIZE, samples of 1 byte and SIZE
random bytes.
"""

import random
import sys

from tarkit import TarWriter

folder = sys.argv[1]
shards, samples, size = map(int, sys.argv[2:])
draw = random.Random(0)
for shard in range(shards):
    with TarWriter(f"{folder}/s-{shard:03d}.tar", encoder=False, index=True) as writer:
        for number in range(samples):
            fields = {"bin": draw.randbytes(size), "cls": b"%d" % (number % 10)}
            writer.write({"__key__": f"{shard:03d}{number:06d}", **fields})
