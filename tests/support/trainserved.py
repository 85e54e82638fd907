"""Train on what a shard service hands out: trainserved.py ADDRESS SHARDS LOG STOP START_METHOD
AFTER.

LOG gets a line ``given KEY…`` for each batch before it is used, and ``done KEY…`` when it is on the
service's disk. In the middle of batch STOP, if it is not 0, the process is killed. It begins when
AFTER, another LOG, has three batches, so that this one does not do all before the other has begun;
"" is none.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tarkit.trainers.torch import ShardDataset


def main(address: str, shards: str, log: str, stop: int, method: str, after: str) -> None:
    """One process with two workers."""
    loader = ShardDataset(shards, batch=8, service=address).loader(2, multiprocessing_context=method)
    while after and not (os.path.exists(after) and Path(after).read_text().count("done") >= 3):
        time.sleep(0.002)
    with open(log, "a", buffering=1) as out:
        for number, batch in enumerate(loader, 1):
            keys = " ".join(sample["__key__"] for sample in batch)
            out.write(f"given {keys}\n")
            time.sleep(0.02)
            if number == stop:
                os.kill(os.getpid(), signal.SIGKILL)
            loader.used()
            loader.flush()
            out.write(f"done {keys}\n")
        out.write("end\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6])
