"""The processes and programs that read a data set for PyTorch: prepared, and checked."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from functools import cache
from traceback import clear_frames, walk_stack
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.store.allocator import keep_all_freed_memory, keep_freed_memory
from tarkit.world import LoaderWorker, loader_worker

_log = logging.getLogger(__name__)
_PIPE = 1 << 20
"""Size of a pipe in bytes, the largest that Linux allows a user by default."""


def current_worker() -> LoaderWorker | None:
    """Return the DataLoader's worker in which an iteration begins, or None."""
    worker = loader_worker()
    if worker is not None:
        _begin_worker(os.getpid())
    return worker


@cache
def _begin_worker(process: int) -> None:
    """Prepare a new worker: keep freed memory, and leave the parent's garbage to the parent.

    A fork copies what the parent has not collected yet. An iterator of a DataLoader among it would
    complain here that it can only test a child process; and what is collected while Python 3.11
    imports a module, and imports one itself, makes the first import fail with a KeyError (CPython,
    gh-91351).
    """
    keep_all_freed_memory()
    gc.freeze()
    from multiprocessing.queues import Queue  # which PyTorch has imported, and tarkit does not

    # It prints the error, and the loop would wait forever for what was not sent.
    Queue._on_queue_feeder_error = staticmethod(_end_unsent)  # type: ignore[attr-defined]


def _end_unsent(error: Exception, message: object) -> None:
    """End a worker whose batch cannot be sent to the loop, which then raises an error."""
    hint = "values must be picklable, or decode to tensors; and /dev/shm and the number of open files must suffice"
    _log.error("a worker ends, as its batch cannot be sent: %s; %s", printable(repr(error)), hint)
    os._exit(1)


def loader_batches(loader: Any) -> Iterator[Any]:
    """Yield the batches of a DataLoader, in a process that is ready for large batches.

    It keeps the memory of a batch for the next one. Each worker seeds NumPy, which imports its
    module of random numbers: that takes 9 ms, so it is imported here, before they are forked. After
    an error, the workers end at once, unless they persist.
    """
    keep_freed_memory()
    with suppress(ImportError):
        import numpy.random  # noqa: F401
    try:
        yield from _with_large_pipe(iter(loader))
    except BaseException as error:
        if loader.num_workers:
            # Only these frames have the DataLoader's iterator. It ends the workers when it is
            # freed, and would wait 5 s for them as garbage in a cycle.
            clear_frames(error.__traceback__)
        raise


def _with_large_pipe(batches: Iterator[Any]) -> Iterator[Any]:
    """Let the pipe from the workers hold 1 MiB instead of 64 KiB, if that is possible.

    Worker and loop wait for each other each time that it is full.
    """
    queue: Any = getattr(batches, "_worker_result_queue", None)  # there is none without workers
    with suppress(AttributeError, OSError):  # its attributes have no documentation
        fcntl(queue._reader.fileno(), F_SETPIPE_SZ, _PIPE)
    return batches


def warn_of_ranks() -> None:
    """Warn if a process group would meet in each step: with a service its ranks may not."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_available() and group.is_initialized() and (world := group.get_world_size()) > 1:
        _log.warning(
            "service= in a process group of %d ranks: a loop of DDP may wait for ever at the end of the data, because "
            "a rank waits for the service while the others wait for it; without service= all ranks have the same steps",
            world,
        )


def check_not_dispatched(world: int) -> None:
    """Refuse accelerate's prepare(), which would deal out rank 0's part of each batch to all.

    It has begun the reading, so it is among the callers, also those of a forked worker; a spawned
    one gets a data set that was pickled among them.
    """
    callers = (frame.f_globals.get("__name__") for frame, _ in walk_stack(None))
    if world > 1 and "accelerate.data_loader" in callers:
        raise UsageError(
            "accelerate's prepare() would read the part of rank 0 only, and lose those of all other ranks: prepare the "
            "model and the optimizer, and not a DataLoader; the data set's loader() is for all ranks"
        )


def check_reader() -> None:
    """Refuse all readers but torchdata's StatefulDataLoader without ``batch_size``.

    Only that one has a state of each epoch. A data set does not know its DataLoader, but it can see
    who calls ``iter()``: torch's fetcher, which torchdata has made.
    """
    fetcher = sys._getframe(2)
    maker = fetcher.f_back and fetcher.f_back.f_back
    name = "" if maker is None else str(maker.f_globals.get("__name__"))
    if not name.startswith("torchdata.stateful_dataloader.") or fetcher.f_locals.get("auto_collation") is not False:
        raise UsageError(
            "a ShardDataset is read by its loader(), or by torchdata's StatefulDataLoader with batch_size=None: "
            "another reader would repeat epochs, or make batches of its batches; batch= says how large these are"
        )
