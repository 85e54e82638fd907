"""Mosaic's StreamingDataset against ShardDataset: feed_streaming.py SIDE DATA WHAT SAMPLES,
shuffled, batches of 64.

WHAT is an epoch of two workers; or the time to a first batch, at the beginning or in the middle of
an epoch, in a process that has read from the data set before. SAMPLES is the number of samples of
the data set.
"""

import json
import os
import resource
import statistics
import sys
import time
import warnings
import zlib

warnings.simplefilter("ignore")
side, data, what, samples = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
BATCH, WORKERS, TIMES = 64, 2, 5
MIDDLE = samples // BATCH // 2


def opened(batch=0):
    """A loader of an epoch that begins with a batch."""
    if side == "tarkit":
        from tarkit.trainers.torch import ShardDataset

        dataset = ShardDataset(data, batch=BATCH, equalize="pad")
        if batch:
            dataset.load_state_dict(dataset.state(0, batch))
        return dataset.loader(WORKERS)
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=data, batch_size=BATCH, shuffle=True)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, collate_fn=list)
    if batch:
        loader.load_state_dict({**STATE, "sample_in_epoch": batch * BATCH})
    return loader


def first_batch(batch):
    begin = time.perf_counter()
    loader = opened(batch)
    # Not let go before the clock stops: the end of the workers is not a part of it.
    batches = iter(loader)
    found = next(batches)
    seconds = time.perf_counter() - begin
    if len(found) != BATCH:
        sys.exit(f"a first batch of {len(found)} samples")
    return seconds


def resident():
    """Megabytes of this process and its workers, without what they share."""
    total = 0
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    for process in ("self", *children):
        with open(f"/proc/{process}/smaps_rollup") as text:
            total += sum(int(line.split()[1]) for line in text if line.startswith("Pss:"))
    return total / 1000


def processor_seconds():
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def epoch():
    count = total = checksum = 0
    looks, batches = [], samples // BATCH
    begin, busy = time.perf_counter(), processor_seconds()
    loader = opened()
    for number, batch in enumerate(loader):
        # At the end, workers are gone that have nothing left to read.
        if number % (batches // 40) == 0 and number < batches * 9 // 10:
            looks.append(resident())
        for sample in batch:
            if not sample.get("__pad__"):
                count += 1
                total += len(sample["bin"])
                checksum += zlib.crc32(sample["bin"], int(sample["__key__"]))
    seconds = time.perf_counter() - begin
    del loader
    busy = processor_seconds() - busy
    third, last = (statistics.median(looks[len(looks) * at // 4 : len(looks) * (at + 1) // 4]) for at in (2, 3))
    memory = {"peak_mb": round(max(looks)), "third_quarter_mb": round(third), "last_quarter_mb": round(last)}
    evidence = {"samples": count, "bytes": total, "checksum": checksum, "processor_s": round(busy, 2), **memory}
    return {"seconds": seconds, "evidence": evidence}


if side == "streaming":
    loader = opened()
    for _ in loader:
        break
    STATE = loader.state_dict()
    state = STATE
    del loader
else:
    loader = opened()
    for _ in loader:
        break
    state = loader.state_dict()
    del loader
if what == "epoch":
    result = epoch()
    result["evidence"]["state_bytes"] = len(json.dumps(state))
else:
    times = [first_batch(MIDDLE if what == "resume" else 0) for _ in range(TIMES)]
    result = {"seconds": statistics.median(times[1:]), "evidence": {"samples": BATCH, "all": str(times)}}
json.dump(result, sys.stdout)
