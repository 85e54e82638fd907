"""Filter: copy the samples of each input to an output of the same name, without the marked ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from tarkit.errors import DataError, printable
from tarkit.exchange.exchange import Result
from tarkit.exchange.inputreader import InputReader
from tarkit.exchange.matching import DUPLICATE, REFUSED, Mark, read_marks
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.plan import Plan
from tarkit.exchange.runfile import Row, RunFile
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.step import Step
from tarkit.formats.tally import Tally
from tarkit.names.outputnames import has_written_index
from tarkit.runs.donerecord import DoneRecord
from tarkit.samples.rawsamples import RawSample

DUPLICATES = "duplicates"
"""Reason under which the samples that are left out are counted."""


@dataclass
class DedupResult(Result):
    """Result of a dedup.

    Attributes:
        kept: reason -> number of samples that were not compared, and were kept.
        first_kept: reason -> the first of these.
        emptied: names of outputs without samples whose inputs had some.
    """

    kept: Counter[str] = field(default_factory=Counter)
    first_kept: dict[str, str] = field(default_factory=dict)
    emptied: list[str] = field(default_factory=list)

    def enter(self, record: DoneRecord, *, before: bool) -> None:
        super().enter(record, before=before)
        output = record.output or {}
        self.keep(output.get("kept", {}), str(record.input.get("url")))
        if not record.samples.get("out") and record.samples.get("in"):
            self.emptied.append(str(output.get("name")))

    def keep(self, kept: dict[str, tuple[int, str]], shard: str) -> None:
        """Count samples that were not compared.

        Args:
            kept: reason -> (their number, key of the first).
            shard: their input.
        """
        for reason, (number, key) in kept.items():
            self.kept[reason] += number
            self.first_kept.setdefault(reason, f"{printable(key)} of {printable(shard)}")


class Filter:
    """The filter of some inputs.

    Args:
        urls: all inputs, by their numbers in the plan.
        outputs: the output of each input.
        marks: the marks of all parts.
        mem: bytes of memory for marks.
    """

    def __init__(
        self,
        plan: Plan,
        step: Step,
        settings: ExchangeSettings,
        urls: Sequence[str],
        outputs: Sequence[str],
        marks: Sequence[RunFile],
        mem: int,
    ) -> None:
        self._plan, self._step, self._settings = plan, step, settings
        self._urls, self._outputs, self._marks, self._mem = urls, outputs, marks, mem

    def run(self, numbers: Sequence[int]) -> Iterator[DoneRecord]:
        """Write the outputs of inputs, by ascending numbers, and yield the record of each.

        Raises:
            TarkitError: an output cannot be made, an input has changed, or a file of marks is
                damaged.
        """
        marks = read_marks(self._marks, range(numbers[0], numbers[-1] + 1), self._mem)
        mark = next(marks, None)
        for number in numbers:
            while mark is not None and mark.shard < number:
                mark = next(marks, None)
            inputs = InputReader(self._plan, self._step, self._settings, self._urls)
            output = _FilteredOutput(self._plan, self._settings, self._outputs[number], number, inputs.tally)
            try:
                with closing(inputs.samples(number)) as samples:
                    for at, sample in enumerate(samples):
                        if mark is not None and (mark.shard, mark.number) == (number, at):
                            output.take(sample, mark)
                            mark = next(marks, None)
                        else:
                            output.take(sample, None)
                if mark is not None and mark.shard == number:
                    raise DataError("the input has fewer samples than before", url=self._urls[number])
                yield output.publish()
            finally:
                output.discard()


class _FilteredOutput(GatheredOutput):
    """The output of one input.

    Args:
        number: number of the input.
        tally: counts of its reader.
    """

    def __init__(self, plan: Plan, settings: ExchangeSettings, url: str, number: int, tally: Tally) -> None:
        settings = replace(settings, index=settings.index and has_written_index(url))
        # Those of an earlier run may be there, after --force, and after a run that was killed.
        super().__init__(url, plan, settings, replaces=True)
        self._input, self._tally = plan.inputs[number], tally
        self._kept: dict[str, tuple[int, str]] = {}

    def take(self, sample: RawSample, mark: Mark | None) -> None:
        """Copy a sample, or what its mark says."""
        self.counts.read += 1
        if mark is None:
            pass
        elif mark.kind == DUPLICATE:
            self.drop(DUPLICATES)
            return
        elif mark.kind == REFUSED:
            self.fail({"__key__": sample.key, **sample.fields()}, mark.reason)
            return
        else:
            number, first = self._kept.get(mark.reason, (0, sample.key))
            self._kept[mark.reason] = number + 1, first
        self.copy([Row(b"", *sample[1:])])

    def _complete(self, record: DoneRecord) -> None:
        record.input = dict(zip(("url", "size", "tag"), self._input, strict=True))
        record.output = {**(record.output or {}), "kept": self._kept}
        record.skipped_members = self._tally.skipped
