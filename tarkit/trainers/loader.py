"""A loader of epoch after epoch, with a state that resumes in the middle of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tarkit.errors import ServiceLostError, UsageError
from tarkit.runs.counts import Limit
from tarkit.trainers.delivery import Delivery, UseCounts
from tarkit.trainers.loopnumbers import LoopNumbers
from tarkit.trainers.served import ServedBatches, wait_until_settled
from tarkit.trainers.sharednumbers import checked_number
from tarkit.trainers.skipped import Skipped, SkippedSamples
from tarkit.trainers.source import BatchSource
from tarkit.world import loader_worker

_IN_TORCH = "for a DataLoader there is tarkit.trainers.torch.ShardDataset(...).loader(num_workers)"


class EpochLoader:
    """Each iteration is the next epoch of a source.

    ``len`` is the number of batches of an epoch.

    A state taken after batch k was delivered resumes with batch k + 1, whatever was read ahead. An
    iteration that is left early is over: the next one is the next epoch.

    With a shard service, an iteration continues to the end of the service's data set, over all its
    epochs, and the state is the service's. A batch is acknowledged when the loop asks for the next
    one, or by :meth:`used`.

    >>> loader = EpochLoader(BatchSource("train-{0000..0147}.tar", batch=64))  # doctest: +SKIP
    >>> for epoch in range(3):  # doctest: +SKIP
    ...     for samples in loader:
    ...         step(samples)

    Args:
        source: source of the batches of this process.
        workers: number of worker processes that make the batches; 0: this process makes them.
    """

    def __init__(self, source: BatchSource, workers: int = 0) -> None:
        self.source = source
        self._numbers = LoopNumbers(workers, source.log_every)
        self._audit = source.audit_log()
        self._counts = UseCounts(max(1, workers))
        self._last: Delivery | None = None
        """The batch that the loop uses now."""
        self._ended = False
        self.counts: Counter[str] = Counter()
        """Counts for the batches of this epoch that were delivered to this rank: samples that
        ``failed`` or were ``filtered`` out, and gaps that were ``filled``; see ``on_error`` and
        ``transform`` of the source.
        """
        self._skipped = SkippedSamples(Limit(None), 0, 0)
        self._next = self._at = 0, 0
        """Epoch and batch with which the next iteration begins, and with which this one continues.
        """

    def __len__(self) -> int:
        return len(self.source)

    @property
    def skipped(self) -> list[Skipped]:
        """The samples that failed in the batches of this epoch that were delivered to this rank.

        Each has ``url``, ``key`` and ``reason``. The first 1000 are listed, and ``counts`` has the
        number of all.
        """
        return self._skipped.listed

    def __getitem__(self, number: object) -> Any:
        raise TypeError(f"batches come in their order; {_IN_TORCH}")

    def __iter__(self) -> Iterator[Any]:
        worker = loader_worker()
        if worker is not None and worker.workers > 1 and not self.source.is_placed:
            raise UsageError(
                f"this is worker {worker.number} of {worker.workers} of a DataLoader, and each would read every batch: "
                f"{_IN_TORCH}; rank= and world= name the part of each"
            )
        return self._ordered() if self.source.service is None else self._dealt()

    def _ordered(self) -> Iterator[Any]:
        epoch, number = self._at = self._next
        self._next = epoch + 1, 0
        batches = len(self.source)
        self._begin_counts(epoch)
        self.source.iterations = mine = self.source.iterations + 1
        if self._audit is not None:
            self._audit.begin(*self.source.consumer, self.source.state(epoch, number))
        try:
            self._numbers.begin(epoch, self.source.maker.clock)
            for batch in self._numbers.timed(self._epoch(epoch, number)):
                self._count(epoch, number, batch.skipped if isinstance(batch, Delivery) else ())
                self._numbers.given(number, self.counts)
                number += 1
                self._at = (epoch, number) if number < batches else self._next
                yield self._audited(epoch, batch)
                if mine != self.source.iterations:
                    # Its workers may have begun with the other one's epoch.
                    over = f"epoch {epoch} is over, as a later iteration of the data set has begun"
                    raise UsageError(f"{over}: make a data set for each loop")
            if self._audit is not None:
                self._audit.used()
        finally:
            self.source.end_iteration()
            self._skipped.log(self.counts, number)
        if number != batches:
            raise RuntimeError(f"epoch {epoch} has {batches} batches, and {number} came")

    def _begin_counts(self, epoch: int) -> None:
        self.counts, self._skipped = Counter(), self.source.skipped_samples(epoch)

    def _count(self, epoch: int, number: int, skipped: Iterable[Skipped] = ()) -> None:
        """Count what is missing in a batch.

        Args:
            skipped: samples that failed, if a worker made the batch.

        Raises:
            TooManyErrorsError: with it, more samples have failed than ``max_errors``.
        """
        maker = self.source.maker
        if gaps := maker.gaps.of(number):
            self.counts += gaps
            self._skipped.add(number, [*skipped, *maker.pop_skipped(epoch, number)])

    def _audited(self, epoch: int, batch: Any) -> Any:
        if not isinstance(batch, Delivery):
            return batch
        if self._audit is not None and batch.evidence is not None:
            self._audit.given(epoch, batch.number, batch.worker, batch.evidence)
        return batch.value

    def _epoch(self, epoch: int, first: int) -> Iterable[Any]:
        return self.source.epoch_batches(epoch, first)

    def _dealt(self) -> Iterator[Any]:
        """Yield the batches that the service hands out, to its end."""
        if self._ended:
            raise UsageError(
                "the data set of the shard service has ended; how many epochs it has is an option of tarkit serve"
            )
        self._counts.begin()
        self._numbers.begin(None, self.source.maker.clock)
        for delivery in self._numbers.timed(self._deliveries()):
            if not delivery.empty:
                self._last = delivery
                self._numbers.given(self._counts.number_of(delivery.worker, delivery.number), Counter())
                yield delivery.value
                self.used()
        self._ended = True

    def _deliveries(self) -> Iterable[Delivery]:
        return ServedBatches(self.source, self._counts)

    def numbers(self) -> dict[str, Any]:
        """Return numbers of the current iteration, or of the last one.

        Rates and shares are of the time from the first batch to the last one that the loop was
        given; the time in which the first batch came is apart.

        Returns:
            ``epoch``; ``batches``, ``samples`` and ``bytes`` (of the samples in the shards) that
            the loop was given; ``seconds``; ``first_batch_seconds``; ``samples_per_second``;
            ``megabytes_per_second``; ``waits``, the share of its time in which the loop waited;
            ``limit``, what limits it (see :func:`tarkit.trainers.loopnumbers.limit_of`);
            ``failed``, ``filtered`` and ``filled``, as in :attr:`counts`; ``read_ahead``, samples
            that the workers have made and the loop was not given; ``workers``, for each one its
            ``batches``, ``samples`` and ``bytes``, seconds of ``ordering``, ``fetching``,
            ``reading``, ``decoding`` (with ``transform``), ``collating`` and ``idle``, and the
            shares of its time that it was idle (``idle_share``) and used a processor
            (``processor_share``); ``total``, the sums of all iterations of this loader. A rate that
            is not known yet is None.
        """
        return self._numbers.numbers()

    def scalars(self) -> dict[str, float]:
        """Return numbers for TensorBoard or W&B: rates since the last call, and sums.

        >>> wandb.log(loader.scalars())  # doctest: +SKIP
        >>> for name, value in loader.scalars().items():  # doctest: +SKIP
        ...     writer.add_scalar(name, value, step)

        Returns:
            ``tarkit/samples_per_second``, ``tarkit/megabytes_per_second``, ``tarkit/loop_waits``
            (share of the loop's time), shares of the workers' time such as
            ``tarkit/workers_decoding``; and, of all iterations, ``tarkit/samples``,
            ``tarkit/failed``, ``tarkit/filtered`` and ``tarkit/filled``. A rate that is not known
            yet is left out.
        """
        return self._numbers.scalars()

    def used(self) -> None:
        """Note that the loop has used the last batch that it was given.

        Without this call, the loop has used it when it asks for the next one. Call it, and
        :meth:`flush`, before you leave a loop early, or after the model was saved.
        """
        last, self._last = self._last, None
        if last is not None:
            self._counts.used[last.worker] = last.number + 1
        if self._audit is not None:
            self._audit.used()

    def flush(self, timeout: float = 300.0) -> None:
        """Return when the service has on its disk which batches were used.

        Raises:
            ServiceLostError: the service did not store them in time.
        """
        if not wait_until_settled(self._counts, timeout):
            raise ServiceLostError("the last batches that were used are not acknowledged; they may come again")

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; without this call it is the one after the last.

        Raises:
            UsageError: the batches come from a service, or the epoch is not a whole number from 0
                on.
        """
        self.source.refuse_service()
        self._next = self._at = checked_number("epoch", epoch), 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the training: under 1 kB, the same for each rank.

        Raises:
            UsageError: a service keeps the position.
        """
        if self._audit is not None:
            self._audit.used()  # so this state has it
        return self.source.state(*self._at)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, with any number of ranks and workers.

        Raises:
            UsageError: see the source's ``place_in``.
        """
        self._next = self._at = self.source.place_in(state)
