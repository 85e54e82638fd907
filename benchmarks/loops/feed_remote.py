"""Train, as far as time goes, on shards of a server: feed_remote.py SHARDS WORKERS STEP CACHE BATCH
[NAME=VALUE …].

Each step sleeps STEP seconds for BATCH samples. The time in ``next`` counts from the second batch
on. Options are those of the data set, as numbers.
"""

import json
import resource
import sys
import time
import warnings

from tarkit.trainers.torch import ShardDataset

warnings.simplefilter("ignore")
shards, workers, step, cache, batch = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], int(sys.argv[5])
options = {name: int(value) for name, _, value in (word.partition("=") for word in sys.argv[6:])}
begin = time.perf_counter()
dataset = ShardDataset(shards, batch=batch, cache=cache, **options)
opened = time.perf_counter() - begin
samples = size = 0
first, waits = 0.0, []
begin = before = time.perf_counter()
for batches, found in enumerate(dataset.loader(workers)):
    waited = time.perf_counter() - before
    if not batches:
        first, begin = waited, time.perf_counter()
    else:
        waits.append(waited)
    samples += len(found)
    size += sum(len(sample["bin"]) for sample in found)
    time.sleep(step)
    before = time.perf_counter()
seconds = time.perf_counter() - begin
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
processor = sum(each.ru_utime + each.ru_stime for each in used)
times = {"opened": opened, "first": first, "waited": sum(waits), "longest": max(waits), "processor": processor}
share = sum(waits) / seconds
evidence = {"samples": samples, "bytes": size, **{name: round(value, 3) for name, value in times.items()}}
json.dump({"seconds": seconds, "share": share, "evidence": evidence}, sys.stdout)
