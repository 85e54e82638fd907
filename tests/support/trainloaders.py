"""Read an epoch as one of several ranks, with several loaders in turn, by torchrun.

trainloaders.py FOLDER WORKERS-START… SHARDS: ``0 2-fork 4-spawn`` are loaders without workers, with
two that are forked, and with four that are spawned. Of each, the keys of a batch are a line of
FOLDER/WORKERS-START-RANK-of-WORLD.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed

from tarkit.trainers.torch import ShardDataset


def main(folder: Path, words: list[str]) -> None:
    """One rank."""
    torch.distributed.init_process_group("gloo", timeout=timedelta(minutes=10))
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    *names, shards = words
    for name in names:
        workers, _, start = name.partition("-")
        dataset = ShardDataset(shards, batch=12, seed=3, run=4, block=16)
        options = {"multiprocessing_context": start} if start else {}
        with (folder / f"{name}-{rank}-of-{world}").open("w") as out:
            for batch in dataset.loader(int(workers), **options):
                # Ranks with other numbers of batches would wait for each other until the time is
                # up.
                torch.distributed.all_reduce(torch.ones(1))
                out.write(" ".join(sample["__key__"] for sample in batch) + "\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
