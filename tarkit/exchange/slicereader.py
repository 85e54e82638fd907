"""Read a slice of the inputs: its samples with their positions, and what a record needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from tarkit.exchange.inputreader import InputReader
from tarkit.exchange.keys import KeyDigests
from tarkit.exchange.plan import Plan
from tarkit.exchange.positions import OUTPUT_BYTES, LeftOutError, failed_position, ordinal
from tarkit.exchange.runfile import Row
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.step import Step
from tarkit.formats.tally import Tally


class RowSource(ABC):
    """What a run file is made of: rows in any order.

    Attributes:
        tally: counts of what was read.
        keys: digests of the keys, if they are compared.
        failed: keys of the samples without a position, with 0.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.keys: KeyDigests | None = None
        self.failed: list[tuple[str, int]] = []

    @abstractmethod
    def rows(self) -> Generator[Row, None, None]:
        """Yield the rows."""

    def facts(self) -> dict[str, Any]:
        """Return what the record of the run file has in addition, after all rows."""
        return {}


class SliceReader(RowSource):
    """The samples of one slice of the inputs, with their positions.

    Args:
        plan: plan of the exchange.
        step: its step.
        settings: its settings.
        urls: all inputs, by their numbers in the plan.
        number: number of the slice.

    Attributes:
        failed_size: bytes of the members of the samples without a position.
        first_failure: why the first of them has none.
        largest: bytes of the largest sample.
        placed: first bytes of positions -> number of samples, if these name outputs.
    """

    def __init__(self, plan: Plan, step: Step, settings: ExchangeSettings, urls: Sequence[str], number: int) -> None:
        super().__init__()
        self._step, self._shards = step, plan.shards(number)
        self._inputs = InputReader(plan, step, settings, urls)
        self.tally = self._inputs.tally
        self.keys = KeyDigests() if step.needs_keys(settings) else None
        self.first_failure = ""
        self.largest = self.failed_size = 0
        self.placed = Counter[bytes]()

    def rows(self) -> Generator[Row, None, None]:
        """Yield the samples with their positions, in the order of the inputs."""
        with_outputs = bool(self._step.outputs)
        for shard in self._shards:
            place_of = self._step.place_of(shard)
            with closing(self._inputs.samples(shard)) as samples:
                for number, sample in enumerate(samples):
                    if self.keys is not None:
                        self.keys.add(sample.key)
                    try:
                        position = place_of(sample, number)
                        if with_outputs:
                            self.placed[position[:OUTPUT_BYTES]] += 1
                    except LeftOutError as error:
                        position, sample = error.position, sample._replace(parts=(), size=0)
                    except ValueError as error:
                        position = self._fail(sample.key, str(error), ordinal(shard, number))
                        self.failed_size += sample.size
                    self.largest = max(self.largest, sample.size)
                    yield Row(position, *sample[1:])

    def _fail(self, key: str, reason: str, place: bytes) -> bytes:
        """Count a failed sample, and return its position."""
        self.first_failure = self.first_failure or f"key {key!r}: {reason}"
        self.failed.append((key, 0))
        return failed_position(reason, place)

    def facts(self) -> dict[str, Any]:
        """Return what the record of the run file has in addition, after all rows."""
        placed = {int.from_bytes(prefix, "big"): count for prefix, count in sorted(self.placed.items())}
        return {
            "largest": self.largest, "failed_size": self.failed_size, "placed": placed,
            "first_failure": self.first_failure,
        }  # fmt: skip
