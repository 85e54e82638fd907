"""Write the same samples of text to plain and to compressed shards, with indexes: make_packed.py
FOLDER SHARDS SAMPLES.
"""

import random
import sys

from tarkit import TarWriter

folder = sys.argv[1]
shards, samples = map(int, sys.argv[2:])
draw = random.Random(0)
words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(5000)]
for shard in range(shards):
    texts = [" ".join(draw.choices(words, k=300)).encode() for _ in range(samples)]
    for ending in ("tar", "tar.zst"):
        with TarWriter(f"{folder}/s-{shard:03d}.{ending}", encoder=False, index=True) as writer:
            for number, text in enumerate(texts):
                writer.write({"__key__": f"{shard:03d}{number:06d}", "txt": text})
