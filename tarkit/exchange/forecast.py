"""Forecast an exchange: samples, bytes, space and requests, before anything is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tarkit.errors import counted
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.plan import make_plan
from tarkit.exchange.runfile import ROW_BYTES
from tarkit.exchange.tableside import is_table
from tarkit.formats.tally import Tally
from tarkit.formats.tar.headers import BLOCK
from tarkit.steps.counting import count_shards

_PART = 8 << 20
"""Bytes of a part of an upload."""


@dataclass(frozen=True)
class Forecast:
    """Numbers of an exchange.

    Attributes:
        samples: number of samples of the inputs.
        content: bytes of their fields.
        outputs: number of outputs.
        slices: number of run files; 0 in one pass.
        space: bytes of the run files, about: headers and padding are estimated.
        memory: bytes of memory for samples, of all processes.
        gets: requests that read inputs and run files, if all are in a store.
        puts: requests that write run files and outputs there.
    """

    samples: int
    content: int
    outputs: int
    slices: int
    space: int
    memory: int
    gets: int
    puts: int

    def as_dict(self) -> dict[str, int]:
        """Return the numbers by their names."""
        return asdict(self)

    def line(self) -> str:
        """Return the numbers in one line."""
        source = (
            f"from {counted(self.slices, 'run file')} of {self.space} bytes in all" if self.slices else "in one pass"
        )
        return (
            f"{counted(self.samples, 'sample')}, {self.content} bytes of content; "
            f"{counted(self.outputs, 'shard')} {source}; "
            f"{self.memory} bytes of memory for samples; in a store {self.gets} GET and {self.puts} PUT requests"
        )


def forecast(exchange: Exchange) -> Forecast:
    """Count the samples of an exchange, from indexes, headers or tables, and compute what it needs.

    Args:
        exchange: the exchange, of which all is run on this machine.

    Raises:
        TarkitError: an input cannot be counted, or there are too few samples.
    """
    plan = make_plan(exchange.request, exchange.urls, slices=None, mem=exchange.mem)
    samples = content = members = 0
    shards = [url for url in exchange.urls if not is_table(url)]
    for each in count_shards(shards, parallel=exchange.parallel, rule=exchange.settings.key_rule):
        if each.error is not None:
            raise each.error
        samples += each.samples
        content += each.sizes.total()
        members += sum(each.members.values())
    for shard, url in enumerate(exchange.urls):
        if is_table(url):
            for sample in exchange.step.samples(shard, url, exchange.settings, Tally(), []):
                sizes = [size for _, _, size, _ in sample.places()]
                samples += 1
                content += sum(sizes)
                members += len(sizes)
    # A header, and on average half a block of padding.
    size = content + members * (BLOCK + BLOCK // 2)
    cuts = exchange.outputs.cuts(samples, size, size // max(1, samples))
    memory = exchange.mem * exchange.parallel
    slices, space = (0, 0) if exchange.in_one_pass else (plan.slices, size)
    units = max(exchange.parallel, -(-(size + samples * ROW_BYTES) // max(1, exchange.mem)))
    gets = len(plan.inputs) + slices * (units + 2)
    puts = 2 * slices + 3 * cuts.count + (size + space) // _PART
    return Forecast(samples, content, cuts.count, slices, space, memory, gets, puts)
