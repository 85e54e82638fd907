"""Make shards of files, class folders, plans and tables."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tarkit.errors import DataError, UsageError, counted, printable, quoted
from tarkit.formats.tally import DEFAULT_MEM, check_policy
from tarkit.samples.sample import Sample
from tarkit.steps.parts import Parts
from tarkit.steps.samplefiles import Files
from tarkit.steps.shardsoutput import ShardsOutput, even_cuts
from tarkit.steps.tablerows import Table, Wanted

if TYPE_CHECKING:
    from tarkit.mapping.pythonworker import FunctionSpec


Source: TypeAlias = Files | Table
"""Samples to write; none of its ``inputs`` may be an output."""


@dataclass
class Mapped:
    """The change of samples on their way by a Python function.

    Attributes:
        function: ``module:name``, ``file.py:name`` or a callable; it returns the sample, None to
            leave it out, or several.
        processes: number of processes.
        mem: largest number of bytes of the samples that are held.
        errors: abort, or skip to leave out samples for which the function raises an exception.
        printed: called with what the function printed for a sample.
        filtered: number of samples that the function left out.
        failed: the first 20 failures, a line for each.
        failures: number of failures.
    """

    function: FunctionSpec
    processes: int = 1
    mem: int = DEFAULT_MEM
    errors: str = "abort"
    printed: Callable[[bytes], object] = lambda text: None
    filtered: int = 0
    failures: int = 0
    failed: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        """Return phrases on samples that were left out."""
        counts = {"left out by --map": self.filtered, "failed in --map": self.failures}
        return [f"{what} {number}" for what, number in counts.items() if number]

    def __post_init__(self) -> None:
        check_policy("errors", self.errors, ("abort", "skip"))

    def __call__(self, samples: Iterable[tuple[str, Sample]]) -> Iterator[tuple[str, Sample]]:
        """Yield (part, changed sample)."""
        from tarkit.mapping.parallel import ordered_map
        from tarkit.mapping.pythonpool import PythonPool
        from tarkit.mapping.scratch import Scratch

        parts: deque[str] = deque()

        def batches() -> Iterator[list[Sample]]:
            for part, sample in samples:
                parts.append(part)
                yield [sample]

        with Scratch() as scratch, PythonPool(self.function, scratch.path, slots=self.processes, mem=self.mem) as pool:
            for batch, outcome in ordered_map(batches(), pool, window=self.mem):
                part = parts.popleft()
                if outcome.printed.size:
                    self.printed(outcome.printed.read())
                    outcome.printed.discard()
                made = outcome.made[0] if outcome.failure is None else []
                if outcome.failure is not None:
                    key = batch[0]["__key__"]
                    if self.errors == "abort":
                        hint = "--errors skip leaves such samples out"
                        raise DataError(f"--map failed: {printable(outcome.failure.message)}", key=key, hint=hint)
                    self.failures += 1
                    self.failed += [outcome.failure.line(key, None)][: 20 - len(self.failed)]
                elif not made:
                    self.filtered += 1
                yield from ((part, sample) for sample in made)


def create(
    source: Source, outputs: Mapping[str, ShardsOutput], *, shares: Mapping[str, float] | None = None,
    split_by: str | None = None, shuffle: str | None = None,
    shards: int | None = None, mapped: Mapped | None = None,
    progress: Callable[[int, int | None], object] = lambda done, total: None,
) -> None:  # fmt: skip
    """Write the samples of a source.

    Args:
        source: the samples.
        outputs: part -> its open output; without ``shares``, the only part is called ``""``.
        shares: part -> its share; the shares add up to 1.
        split_by: column of a table, or regular expression for keys: samples with the same value, or
            the same match or first group, are in one part. None: the key decides.
        shuffle: seed of the order of the samples; None: their own order.
        shards: number of shards of all parts together, of equal length.
        mapped: change of the samples.
        progress: called for each sample with the numbers of samples done and in all.

    Raises:
        DataError: a part has no samples.
        UsageError: the number of samples is not known, and ``shards`` needs it; or there are fewer
            samples than shards.
    """
    parts, counts, lengths = plan_parts(source, shares, split_by, shards, mapped)
    for name, (samples_of_part, shards_of_part) in lengths.items():
        outputs[name].cut_evenly(samples_of_part, shards_of_part)
    total = None if counts is None else counts.total()
    samples = ((parts.part_of_sample(sample), sample) for sample in source.samples(shuffle and f"shuffle {shuffle}"))
    for done, (part, sample) in enumerate(samples if mapped is None else mapped(samples)):
        outputs[part].write(sample)
        progress(done, total)
    _refuse_empty(parts, {name: output.total for name, output in outputs.items()})


def plan_parts(
    source: Source, shares: Mapping[str, float] | None, split_by: str | None, shards: int | None,
    mapped: Mapped | None = None,
) -> tuple[Parts, Counter[str] | None, dict[str, tuple[int, int]]]:  # fmt: skip
    """Return the parts, their numbers of samples if known, and part -> (samples, shards) to write.

    The last is empty without ``shards``.

    The arguments and errors are those of :func:`create`.
    """
    by_column = split_by is not None and source.splits_by(split_by)
    parts = Parts(shares or {"": 1.0}, None if by_column else split_by)
    counts = source.count(parts)
    if counts is not None:
        _refuse_empty(parts, counts)
    if shards is None:
        return parts, counts, {}
    if counts is None or mapped is not None:
        why = "--map may change it" if mapped is not None else "the input can be read only once"
        raise UsageError(f"--shards needs the number of samples first, and {why}; use --maxcount or --maxsize")
    shares = parts.shares
    return parts, counts, {name: (counts[name], max(1, round(shards * share))) for name, share in shares.items()}


def table_parts(
    table: Table, shares: Mapping[str, float] | None, split_by: str | None, shuffle: str | None, shards: int | None
) -> Iterator[tuple[str, Iterator[Wanted], set[int] | None]]:
    """Yield each part of a table with its rows, and the rows that begin a shard.

    Local files are read, URLs are not. The arguments and errors are those of :func:`create`.
    """
    parts, _, lengths = plan_parts(table, shares, split_by, shards)
    order = None if shuffle is None else f"shuffle {shuffle}"

    def rows_of(part: str) -> Iterator[Wanted]:
        for row in table.wanted(order):
            if parts.part_of_sample(row.sample) == part:
                yield table.with_local(row)

    for part in parts.shares:
        yield part, rows_of(part), even_cuts(*lengths[part]) if lengths else None


def _refuse_empty(parts: Parts, counts: Mapping[str, int]) -> None:
    for name, share in parts.shares.items():
        if not counts.get(name):
            if not name:
                raise DataError("no sample is left, so there is nothing to write")
            reason = f"part {quoted(name)} of --split would have none of {counted(sum(counts.values()), 'sample')}"
            hint = f"its share is {share:g}; a larger share, or more samples (or values of --split-by), would fill it"
            raise DataError(reason, hint=hint)
