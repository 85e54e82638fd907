"""Fetch the parts of remote shards into the cache before the batches that need them are read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from tarkit.errors import printable
from tarkit.store import waits
from tarkit.store.forks import Owner
from tarkit.trainers.fetchplan import BUSY_SECONDS, FULL_SECONDS, FetchPlan, PlannedPart
from tarkit.trainers.order import Place

_log = logging.getLogger(__name__)
_THREADS = 8


class Ahead:
    """Threads that open shards and fetch parts for the batches of this process, in their order.

    They begin with the object, so it is made in the process that reads. They end by :meth:`stop`,
    at the end of the loop, and when all is fetched. Their errors are left to the reading of the
    samples, which tries again.

    Args:
        plan: what they open and fetch.
        ended: function that returns another number when the loop has ended.
    """

    def __init__(self, plan: FetchPlan, ended: Callable[[], int]) -> None:
        self.order, self._plan = plan.order, plan
        self._ended, self._iteration = ended, ended()
        self._owner = Owner()
        self._changed = threading.Condition()
        """Held while the plan is used; notified when it has changed."""
        self._stop = waits.Stop()
        for number in range(_THREADS):
            threading.Thread(target=self._work, name=f"tarkit-ahead-{number}", daemon=True).start()

    def take(self, number: int) -> list[Place]:
        """Return the samples of the next batch, when each of its parts was fetched or failed.

        Raises:
            Stopped: the work of this thread was stopped.
        """
        with self._changed:
            batch = self._plan.take(number)
            if batch is None:
                return self.order.rank_batch(number, *self._plan.consumer)
            self._changed.notify_all()
            while batch.missing and not self._is_over():
                waits.wait_for(self._changed)
            self._plan.hand_over(batch)
            return batch.places

    def stop(self) -> None:
        """Stop the threads; in a process that was forked meanwhile, do nothing."""
        if self._owner.is_here():
            self._stop.set()
            with self._changed:
                self._plan.clear()
                self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._plan.cache.closed

    def _work(self) -> None:
        waits.may_be_left_behind()
        waits.stop_by(self._stop)
        try:
            while not self._is_over() and self._work_once():
                if self._ended() != self._iteration:
                    self.stop()
        except waits.Stopped:
            pass
        except Exception as error:
            if not self._stop.is_set():
                self._stop.set()
                _log.warning("shards are not fetched ahead any more in this epoch: %s", printable(repr(error)))
            self.stop()
        with self._changed:
            self._changed.notify_all()

    def _work_once(self) -> bool:
        """Do the next job, or wait for one; return False if all is done."""
        with self._changed:
            job = self._plan.next_job(time.monotonic())
            if job is None:
                self._changed.wait(BUSY_SECONDS if self._plan.is_waiting_for_others else FULL_SECONDS)
                return not self._plan.is_done
        if isinstance(job, int):
            self._open(job)
        else:
            self._fetch(job)
        return True

    def _open(self, number: int) -> None:
        shard = None
        with suppress(Exception):
            shard = self._plan.samples.shards.open(number)
        with self._changed:
            if not self._stop.is_set():
                self._plan.opened(number, shard)
                self._changed.notify_all()

    def _fetch(self, parts: list[PlannedPart]) -> None:
        kept: int | None = None
        has_failed = True
        with suppress(Exception):
            kept = parts[0].source.keep_now([each.part for each in parts])
            has_failed = False
        with self._changed:
            if not self._stop.is_set():
                if has_failed:
                    self._plan.failed(parts)
                else:
                    self._plan.fetched(parts, kept, time.monotonic())
                self._changed.notify_all()
