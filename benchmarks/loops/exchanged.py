"""What is in shards: exchanged.py SHARD...; JSON with samples, members, bytes, checksums of content
and order.

The checksum of the content does not depend on the order; that of the order has only keys.
"""

import json
import sys
import time
import zlib
from hashlib import sha256

from walk import walk

begin = time.perf_counter()
samples = members = size = content = 0
order, last, is_sorted = sha256(), "", True
counts = []
for path in sys.argv[1:]:
    before = samples
    for sample in walk(path):
        samples += 1
        members += len(sample.members)
        for name, data in sample.members:
            size += len(data)
            content += zlib.crc32(data, zlib.crc32(name.encode()))
        order.update(f"{sample.key}\n".encode())
        is_sorted, last = is_sorted and last <= sample.key, sample.key
    counts.append(samples - before)
found = {"samples": samples, "members": members, "bytes": size, "content": content, "order": order.hexdigest()}
evidence = {**found, "sorted": int(is_sorted), "spread of shards": max(counts) - min(counts)}
json.dump({"seconds": time.perf_counter() - begin, "evidence": evidence}, sys.stdout)
