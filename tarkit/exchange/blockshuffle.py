"""``tarkit shuffle --block``: a random order of shards, and a buffer of samples, in one pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from tarkit.errors import RepeatedKeyError, StreamError, UsageError, printable
from tarkit.exchange.earlieroutputs import check_alone, earlier_outputs, remove_other_outputs, run_ids
from tarkit.exchange.exchange import Exchange, Result
from tarkit.exchange.inputreader import InputReader
from tarkit.exchange.keys import HINT
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.plan import Plan, make_plan
from tarkit.exchange.runfile import ROW_BYTES, Row
from tarkit.exchange.shuffle import Shuffle
from tarkit.names.redaction import redact
from tarkit.names.url import join
from tarkit.samples.rawsamples import RawSample
from tarkit.steps.counting import count_shards

T = TypeVar("T")

BUFFER = 10_000
"""Default number of samples in the buffer."""


@dataclass(frozen=True)
class Blocks(Shuffle):
    """Shuffle shards, and samples within a buffer: the order is random, but not uniform.

    Attributes:
        buffer: most samples in the buffer.
    """

    buffer: int = BUFFER

    def __post_init__(self) -> None:
        if self.buffer < 1:
            raise UsageError(f"the buffer is of {self.buffer} samples; it must hold 1 or more")

    def options(self) -> dict[str, Any]:
        return {**super().options(), "buffer": self.buffer}


class _Held(NamedTuple):
    """A sample in the buffer.

    Attributes:
        shard: number of its input.
    """

    shard: int
    sample: RawSample


class BlockShuffle(Exchange):
    """A shuffle in one pass, without run files, for shards that were shuffled once.

    Shards come in a random order, and each sample leaves the buffer at a random time. The order
    depends on the seed, on the sizes of the buffer and, if the buffer has no room for so many
    samples, on ``mem``. One process does it. A run that was interrupted begins anew.
    """

    in_one_pass = True
    step: Blocks
    _counted: int | None = None

    def run(self) -> Result:
        """Write the outputs, each published whole; nothing if an earlier run has made all of them.

        Raises:
            UsageError: the folder has other shards, or there are fewer samples than outputs.
            RepeatedKeyError: two samples of an output have the same key.
            TarkitError: an input cannot be read, or an output cannot be written.
        """
        # The buffer's size in bytes changes the order.
        request = {**self.request, "block": True, "mem": self.mem}
        plan = make_plan(request, self.urls, slices=1, mem=self.mem)
        earlier = earlier_outputs(self.outdir, self.outputs)
        result = self._finished(plan, earlier.runs)
        if result is None:
            self._check_folder(plan, earlier)
            before = run_ids(self.outdir)
            result = self._write(plan)
            # Their number is known only now. Of two runs, the one that ends last finds the other's.
            if result.outputs:
                self._publish_record(plan, self.outdir, self.outputs.names(result.outputs), plan.id)
                check_alone(self.outdir, plan.id, before)
        if self._force:
            remove_other_outputs(self.outdir, plan.id, result.outputs, self.outputs)
        return result

    def _write(self, plan: Plan) -> Result:
        inputs, result = InputReader(plan, self.step, self.settings, self.urls), Result()
        begins = self._begins()
        with closing(self._shuffled(inputs)) as samples:
            output: _BlockOutput | None = None
            try:
                for number, held in enumerate(samples):
                    if output is not None and self._is_full(output, number, begins, held):
                        result.enter(output.publish(), before=False)
                        output = None
                    if output is None:
                        output = _BlockOutput(self, plan, result.done)
                    output.take(held)
                if output is not None:
                    result.enter(output.publish(), before=False)
            finally:
                if output is not None:
                    output.discard()
        if self._counted not in (None, result.counts.out):
            raise StreamError(
                f"{self._counted} samples were counted, and {result.counts.out} came; "
                "make the indexes of the inputs again (tarkit index)"
            )
        result.outputs = result.done
        result.counts.met = inputs.tally
        return result

    def _begins(self) -> frozenset[int]:
        """Return the numbers of the samples that begin an output, if these have equal lengths."""
        if self.settings.shards is None:
            return frozenset()
        total = 0
        for count in count_shards(self.urls, rule=self.settings.key_rule):
            if count.error is not None:
                raise count.error
            total += count.samples
        self._counted = total
        cuts = self.outputs.cuts(total, 0, 0)
        return frozenset(map(cuts.begin, range(cuts.count)))

    def _is_full(self, output: _BlockOutput, number: int, begins: frozenset[int], held: _Held) -> bool:
        settings = self.settings
        if settings.maxcount is not None:
            return output.counts.out >= settings.maxcount
        if settings.maxsize is not None:
            return output.size + held.sample.size > settings.maxsize
        return number in begins

    def _shuffled(self, inputs: InputReader) -> Generator[_Held, None, None]:
        """Yield all samples, each at a random time after it was read."""
        # Of random(), Python promises the same numbers in all versions.
        draw = random.Random(self.step.seed).random
        held, size = list[_Held](), 0

        with closing(self._read(inputs, draw)) as samples:
            for each in samples:
                held.append(each)
                size += each.sample.size + ROW_BYTES
                while held and (len(held) >= self.step.buffer or size > self.mem):
                    out = _drawn(held, draw)
                    size -= out.sample.size + ROW_BYTES
                    yield out
        while held:
            yield _drawn(held, draw)

    def _read(self, inputs: InputReader, draw: Callable[[], float]) -> Generator[_Held, None, None]:
        """Yield the samples of all shards, which come in a random order."""
        order, left = list[int](), [*range(len(self.urls))]
        while left:
            order.append(_drawn(left, draw))
        for done, shard in enumerate(order, 1):
            with closing(inputs.samples(shard)) as samples:
                for sample in samples:
                    yield _Held(shard, sample)
            self._report("read", done, len(order))


def _drawn(left: list[T], draw: Callable[[], float]) -> T:
    """Take a random item out of a list, whose order changes."""
    at = int(draw() * len(left))
    left[at], left[-1] = left[-1], left[at]
    return left.pop()


class _BlockOutput(GatheredOutput):
    """An output of a shuffle in one pass.

    Attributes:
        size: bytes of its samples so far.
    """

    def __init__(self, shuffle: BlockShuffle, plan: Plan, number: int) -> None:
        # After --force, and after a run that was killed, those of an earlier run may be there.
        super().__init__(join(shuffle.outdir, shuffle.outputs.name(number)), plan, shuffle.settings, replaces=True)
        self.size = 0
        self._urls = shuffle.urls
        self._shards: dict[str, int] | None = {} if shuffle.settings.on_repeated_key == "error" else None

    def take(self, held: _Held) -> None:
        """Write a sample.

        Raises:
            RepeatedKeyError: a sample of this output has its key.
        """
        sample = held.sample
        if self._shards is not None and (other := self._shards.setdefault(sample.key, held.shard)) != held.shard:
            reason = f"the key is in {printable(redact(self._urls[other]))} too"
            raise RepeatedKeyError(reason, url=self._urls[held.shard], key=sample.key, hint=HINT)
        self.counts.read += 1
        self.size += sample.size
        self.copy([Row(b"", *sample[1:])])
