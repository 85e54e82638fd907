"""Read an epoch as one of several ranks, which meet after each batch: trainranks.py SHARDS FOLDER
STOP, by torchrun.

Rank 0 keeps the state of the loader in FOLDER/state.json, and begins there if it exists. A rank
adds the keys of each batch to FOLDER/keys-RANK-of-WORLD. After batch STOP, if it is not 0, each
rank ends at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed

from tarkit.trainers.torch import ShardDataset


def main(shards: str, folder: Path, stop: int) -> None:
    """One rank."""
    torch.distributed.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    dataset = ShardDataset(shards, batch=12, seed=7, run=5, block=20, audit=folder / "audit")
    loader = dataset.loader(2)
    state = folder / "state.json"
    if state.exists():
        loader.load_state_dict(json.loads(state.read_text()))
    torch.distributed.barrier()
    with (folder / f"keys-{rank}-of-{world}").open("a") as out:
        for number, batch in enumerate(loader, 1):
            out.write(" ".join(sample["__key__"] for sample in batch) + "\n")
            out.flush()
            met = torch.ones(1)
            torch.distributed.all_reduce(met)
            assert met.item() == world
            if rank == 0:
                (folder / "new.json").write_text(json.dumps(loader.state_dict()))
                os.replace(folder / "new.json", state)
            if number == stop:
                torch.distributed.barrier()
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
