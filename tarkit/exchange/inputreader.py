"""Read the inputs of a plan: their samples, with new keys if that is asked for."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from tarkit.exchange.plan import Plan
from tarkit.exchange.rekeying import Rekeyed
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.step import Step
from tarkit.formats.tally import Tally
from tarkit.formats.tar.raw import FarReachingError
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import key_rule


class InputReader:
    """A reader of inputs, which must be those of the plan before and after they are read.

    Args:
        plan: plan of the exchange.
        step: its step.
        settings: its settings.
        urls: all inputs, by their numbers in the plan.

    Attributes:
        tally: counts of what was read.
    """

    def __init__(self, plan: Plan, step: Step, settings: ExchangeSettings, urls: Sequence[str]) -> None:
        self._plan, self._step, self._settings, self._urls = plan, step, settings, urls
        self._rekeyed: Rekeyed | None = None
        if settings.rekey:
            self._rekeyed = Rekeyed(key_rule(settings.key_rule), settings.mtime, settings.format)
        self._globals_seen: list[FarReachingError] = []
        self.tally = Tally()

    def samples(self, shard: int) -> Generator[RawSample, None, None]:
        """Yield the samples of an input, in order.

        Raises:
            DataError: the input was changed, or has a header that would change other samples.
            TarkitError: it cannot be read.
        """
        url = self._urls[shard]
        self._plan.check_identity(shard, url)
        with closing(self._step.samples(shard, url, self._settings, self.tally, self._globals_seen)) as samples:
            if self._rekeyed is None:
                yield from samples
            else:
                for sample in samples:
                    yield self._rekeyed(sample, shard, url)
        if self._globals_seen:  # its samples would lose the header, and other samples could get it
            raise self._globals_seen[0]
        self._plan.check_identity(shard, url)
