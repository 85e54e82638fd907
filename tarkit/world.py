"""Which of how many ranks a process is, and which worker of a DataLoader."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tarkit.errors import UsageError, shortened

_NUMBER = re.compile("[0-9]{1,9}")


class Consumer(NamedTuple):
    """Attributes:
    rank: from 0.
    world: number of ranks that share the data.
    """

    rank: int
    world: int


def consumer(
    rank: int | None = None,
    world: int | None = None,
    environ: Mapping[str, str] = os.environ,
    sent: Consumer | None = None,
) -> Consumer:
    """This process's rank: as it is named, else that of ``torch.distributed`` where it was
    initialized, else ``sent``, that of the process from which the data set was sent here, else
    that of the variables RANK and WORLD_SIZE; else the only one.

    Ranks that must read the same data, as those of tensor parallelism, are named by the caller.

    Raises:
        UsageError: one of the two without the other, unless there is a process group; a rank that
            the world does not have; or a process group, what was sent, and variables that disagree.
    """
    if rank is not None or world is not None:
        return _checked(rank, world, "rank and world")
    texts = [environ.get(name) or None for name in ("RANK", "WORLD_SIZE")]
    distributed, group = sys.modules.get("torch.distributed"), None
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        group = Consumer(distributed.get_rank(), distributed.get_world_size())
    known = group or sent
    if known is None:
        return _of_variables(texts) or Consumer(0, 1)
    # Lightning's own launcher sets WORLD_SIZE alone.
    agrees = all(text in (None, str(number)) for text, number in zip(texts, known, strict=True))
    if sent is not None and (sent != known or not agrees):
        raise UsageError(
            f"the data set was made for rank {sent.rank} of {sent.world}, and was sent to a process of another rank: "
            "make it in each rank, when that knows its number, or name rank= and world="
        )
    if not agrees:
        raise UsageError(
            f"torch.distributed has {known.rank} of {known.world} and RANK and WORLD_SIZE have "
            f"{texts[0]} of {texts[1]}: name the right ones as rank= and world="
        )
    return known


def _of_variables(texts: Sequence[str | None]) -> Consumer | None:
    if not any(texts):
        return None
    if any(text is not None and not _NUMBER.fullmatch(text) for text in texts):
        shown = [shortened(repr(text)) for text in texts]
        raise UsageError(f"RANK is {shown[0]} and WORLD_SIZE is {shown[1]}; both must be numbers")
    rank, world = (None if text is None else int(text) for text in texts)
    return _checked(rank, world, "RANK and WORLD_SIZE")


def _checked(rank: int | None, world: int | None, names: str) -> Consumer:
    if rank is None or world is None:
        raise UsageError(f"{names} are {rank} and {world}; one needs the other")
    if not 0 <= rank < world:
        raise UsageError(f"{names} are {rank} and {world}; a rank is 0 to {world - 1}")
    return Consumer(rank, world)


class LoaderWorker(NamedTuple):
    """Attributes:
    number: from 0.
    workers: those of its DataLoader.
    """

    number: int
    workers: int


def loader_worker() -> LoaderWorker | None:
    """Which worker of a torch DataLoader this process is.

    None: of none. torch is not imported for it.
    """
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else LoaderWorker(info.id, info.num_workers)
