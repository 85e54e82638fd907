"""Take an epoch from a DataLoader of two workers, in batches of 64: feed_torch.py SIDE SHARDS
SAMPLES SIZE.
"""

import json
import sys
import time
import warnings

import torch.utils.data

warnings.simplefilter("ignore")
side, shards, samples, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
BATCH, WORKERS = 64, 2


class Ready(torch.utils.data.IterableDataset):
    """Batches that are there already: what a DataLoader can deliver at most."""

    def __iter__(self):
        batch = [{"__key__": "000000000", "bin": bytes(size), "cls": b"0"} for _ in range(BATCH)]
        for _ in range(samples // BATCH // WORKERS):
            yield batch


def loader():
    if side == "ceiling":
        return torch.utils.data.DataLoader(Ready(), batch_size=None, num_workers=WORKERS)
    if side == "webdataset":
        import braceexpand  # noqa: F401 (webdataset needs it)
        import webdataset

        data = webdataset.WebDataset(shards, shardshuffle=False).batched(BATCH, collation_fn=None)
        return webdataset.WebLoader(data, batch_size=None, num_workers=WORKERS)
    from tarkit.trainers.torch import ShardDataset

    return ShardDataset(shards, batch=BATCH, shuffle=side == "tarkit-shuffled", equalize="pad").loader(WORKERS)


count = total = checksum = 0
first = None
begin = time.perf_counter()
for batch in loader():
    if first is None:
        first = time.perf_counter() - begin
    for sample in batch:
        if not sample.get("__pad__"):
            count += 1
            total += len(sample["bin"])
            checksum += int(sample["__key__"])
seconds = time.perf_counter() - begin
evidence = {"samples": count, "bytes": total, "keys": checksum, "first": round(first, 3)}
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
