"""Write shards whose keys have no order: make_keyed.py FOLDER SHARDS SAMPLES FIRST FIELD=SIZE...

Sample i of all, counted from FIRST, has the digest of its number as its key, and fields of random
bytes.
"""

import random
import sys
from hashlib import blake2b

from tarkit import TarWriter

folder = sys.argv[1]
shards, samples, first = map(int, sys.argv[2:5])
fields = [(name, int(size)) for name, _, size in (word.partition("=") for word in sys.argv[5:])]
draw = random.Random(first)
number = first
for shard in range(shards):
    with TarWriter(f"{folder}/s-{shard:05d}.tar", encoder=False) as writer:
        for _ in range(samples):
            key = blake2b(b"%d" % number, digest_size=8).hexdigest()
            writer.write({"__key__": key, **{name: draw.randbytes(size) for name, size in fields}})
            number += 1
