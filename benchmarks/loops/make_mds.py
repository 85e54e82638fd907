"""Write the samples of make_shards.py as Mosaic's MDS: make_mds.py FOLDER SHARDS SAMPLES SIZE."""

import random
import sys

from streaming import MDSWriter

folder = sys.argv[1]
shards, samples, size = map(int, sys.argv[2:])
draw = random.Random(0)
with MDSWriter(out=folder, columns={"__key__": "str", "bin": "bytes", "cls": "bytes"}) as writer:
    for shard in range(shards):
        for number in range(samples):
            fields = {"bin": draw.randbytes(size), "cls": b"%d" % (number % 10)}
            writer.write({"__key__": f"{shard:03d}{number:06d}", **fields})
