"""The order that a shuffle must have: shuffled_order.py SEED SHARD...; JSON with its checksum.

Computed from the positions of all samples, sorted at once in memory: no run files, no merge.
"""

import json
import sys
import time
from hashlib import sha256

from walk import walk

from tarkit.exchange.positions import shuffled

begin = time.perf_counter()
places = []
for shard, path in enumerate(sys.argv[2:]):
    place_of = shuffled(int(sys.argv[1]), shard)
    places += [(place_of(None, number), sample.key) for number, sample in enumerate(walk(path))]
places.sort()
order = sha256()
for _, key in places:
    order.update(f"{key}\n".encode())
json.dump({"seconds": time.perf_counter() - begin, "evidence": {"order": order.hexdigest()}}, sys.stdout)
