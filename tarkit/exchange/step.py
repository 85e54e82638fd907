"""A step of an exchange: which position a sample gets, and what becomes of the sorted samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from tarkit.exchange.positions import PlaceOf, value_of
from tarkit.exchange.runfile import Row
from tarkit.exchange.settings import ExchangeSettings
from tarkit.formats.tally import Tally
from tarkit.formats.tar.raw import FarReachingError
from tarkit.runs.counts import Counts
from tarkit.samples.rawsamples import RawSample, raw_samples
from tarkit.samples.sample import key_rule

if TYPE_CHECKING:
    from tarkit.exchange.output import GatheredOutput


class Step(ABC):
    """A step.

    Attributes:
        name: name of its verb.
        in_groups: samples whose positions have the same value are never in two outputs.
        runs_commands: the step runs several commands at once; so one process makes all outputs.
        runs_functions: the step calls functions of the user, which may end their process; so other
            processes make the outputs.
    """

    name: ClassVar[str]
    in_groups: ClassVar[bool] = False
    runs_commands: bool = False
    runs_functions: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, by the first 4 bytes of positions; empty: they are numbered."""
        return ()

    def options(self) -> dict[str, Any]:
        """Return what decides the output, for the plan: plain values by the names of options."""
        return {}

    def unmatched(self, counts: Counts) -> dict[str, int]:
        """Return what was asked for and found in no sample: phrases with their numbers.

        Args:
            counts: counts of all samples.
        """
        return {}

    def needs_keys(self, settings: ExchangeSettings) -> bool:
        """Return True if keys are compared over all inputs before outputs are made."""
        return settings.on_repeated_key == "error" and not settings.rekey

    def why_not(self, urls: Sequence[str], settings: ExchangeSettings) -> str | None:
        """Return why the step does not go with its inputs or the settings, or None."""
        return None

    def samples(
        self, shard: int, url: str, settings: ExchangeSettings, tally: Tally, globals_seen: list[FarReachingError]
    ) -> Generator[RawSample, None, None]:
        """Yield the samples of an input, in order.

        Args:
            shard: number of the input, from 0.
            url: path or URL of the input.
            settings: settings of the exchange.
            tally: filled with counts.
            globals_seen: see :func:`tarkit.samples.rawsamples.raw_samples`.
        """
        return raw_samples(url, rule=key_rule(settings.key_rule), tally=tally, globals_seen=globals_seen)

    @abstractmethod
    def place_of(self, shard: int) -> PlaceOf:
        """Return the function that gives positions to the samples of an input.

        Args:
            shard: number of the input, from 0.
        """

    def write(self, rows: Iterator[Row], output: GatheredOutput) -> None:
        """Write the samples of one output, which come in the order of their positions."""
        output.copy(rows)


def groups(rows: Iterator[Row]) -> Iterator[tuple[bytes, Iterator[Row]]]:
    """Yield (value, samples) for each value of the positions, the samples in input order.

    The samples of a group must be taken before the next group.
    """
    yield from groupby(rows, key=lambda row: value_of(row.position))
