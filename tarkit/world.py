"""Find the rank of a process, and its worker number in a DataLoader."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tarkit.errors import UsageError, shortened

_NUMBER = re.compile("[0-9]{1,9}")


class Consumer(NamedTuple):
    """The rank of a process among all that share the data.

    Attributes:
        rank: number of the process, from 0.
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
    """Return the rank of this process and the number of ranks.

    The first of these that is known decides: the arguments; ``torch.distributed``, if it is
    initialized; ``sent``; the variables RANK and WORLD_SIZE. If none is known, the process is the
    only rank.

    Ranks that must read the same data, as in tensor parallelism, are named by the caller.

    Args:
        rank: number of this process, from 0.
        world: number of ranks.
        environ: the environment variables.
        sent: rank of the process that sent the data set to this one.

    Raises:
        UsageError: only one of rank and world is given and there is no process group, the rank is
            not below world, or process group, ``sent`` and variables disagree.
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
            "make it in each rank, after the rank is known, or pass rank= and world="
        )
    if not agrees:
        raise UsageError(
            f"torch.distributed has {known.rank} of {known.world} and RANK and WORLD_SIZE have "
            f"{texts[0]} of {texts[1]}: pass the right ones as rank= and world="
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
        raise UsageError(f"{names} are {rank} and {world}; give both or neither")
    if not 0 <= rank < world:
        raise UsageError(f"{names} are {rank} and {world}; a rank is 0 to {world - 1}")
    return Consumer(rank, world)


class LoaderWorker(NamedTuple):
    """One worker process of a torch DataLoader.

    Attributes:
        number: number of the worker, from 0.
        workers: number of workers of its DataLoader.
    """

    number: int
    workers: int


def loader_worker() -> LoaderWorker | None:
    """Return this process's number among the workers of a torch DataLoader.

    None if it is not such a worker. torch is not imported to find out.
    """
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return None if info is None else LoaderWorker(info.id, info.num_workers)
