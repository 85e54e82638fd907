"""Take a shuffled epoch of texts in one process: feed_packed.py SHARDS SAMPLES [CACHE].

With a folder for the cache, an epoch before fills it.
"""

import json
import sys
import time
from zlib import crc32

from tarkit.trainers.loader import EpochLoader
from tarkit.trainers.source import BatchSource

shards, wanted = sys.argv[1], int(sys.argv[2])
cache = sys.argv[3] if len(sys.argv) > 3 else False
loader = EpochLoader(BatchSource(shards, batch=64, seed=1, cache=cache))
if cache:
    for _ in loader:
        pass
    loader.set_epoch(0)
count = checksum = 0
begin = time.perf_counter()
for batch in loader:
    count += len(batch)
    checksum += sum(crc32(sample["txt"]) for sample in batch)
    if count >= wanted:
        break
seconds = time.perf_counter() - begin
json.dump({"seconds": seconds, "evidence": {"samples": count, "content": checksum}}, sys.stdout)
