"""Make shards of files, class folders, plans and tables."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Protocol

from tarkit.errors import DataError, MissingInputError, StreamError, UsageError, counted, printable, quoted
from tarkit.formats.tally import DEFAULT_MEM, check_policy
from tarkit.names.outputnames import has_index_name, index_url, is_pattern
from tarkit.names.url import scheme_of
from tarkit.samples.codecs import extension_of
from tarkit.samples.content import MemberFile, samples_of
from tarkit.samples.gather import OUTPUT_ITSELF, Gathered, gather, parse_plan
from tarkit.samples.images import IMAGE_FORMATS
from tarkit.samples.sample import KeyRule, Sample
from tarkit.specs.outputcheck import check_tar_output, existing_shards
from tarkit.steps.classfolders import DEBRIS, check_table, class_folders, table_beside, write_classes
from tarkit.steps.parts import Parts, hash_share
from tarkit.steps.shardsoutput import ShardsOutput, even_cuts
from tarkit.steps.tablerows import Table, Wanted
from tarkit.store.read import read_whole

if TYPE_CHECKING:
    from tarkit.mapping.pythonworker import FunctionSpec


class Source(Protocol):
    """Samples to write.

    Attributes:
        inputs: names of the inputs; none of them may be an output.
    """

    inputs: Sequence[str | PurePath]

    @property
    def notes(self) -> list[str]:
        """Return phrases on what was left out."""

    def splits_by(self, column: str) -> bool:
        """Return True if this is a column, whose values then decide on the parts."""

    def count(self, parts: Parts) -> Counter[str] | None:
        """Count the samples of each part before one is made; None if they are not known."""

    def samples(self, shuffle: str | None) -> Iterator[Sample]:
        """Yield the samples: in order, or in an order that the text ``shuffle`` decides."""


@dataclass
class Files:
    """Files that become samples.

    Attributes:
        files: the files, those of a sample next to each other.
        inputs: names of the files; none of them may be an output.
        notes: phrases on files that were left out.
        classes: name -> number; written to each of ``tables`` before the first sample.
        tables: URLs of tables of classes.
    """

    files: list[MemberFile]
    inputs: Sequence[str | PurePath]
    notes: list[str] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)

    def splits_by(self, column: str) -> bool:
        return False

    def count(self, parts: Parts) -> Counter[str]:
        return Counter(map(parts.part_of, dict.fromkeys(file.key for file in self.files)))

    def samples(self, shuffle: str | None) -> Iterator[Sample]:
        for url in self.tables:
            write_classes(url, self.classes)
        files = self.files
        if shuffle is not None:
            files = sorted(files, key=lambda file: (hash_share(shuffle, file.key), file.key))
        return samples_of(files)


def own_names(outputs: Iterable[str], start: int = 0, others: Iterable[str | None] = ()) -> list[str]:
    """Return the names that outputs have or had in an earlier run, so that they are not inputs.

    Args:
        outputs: names of shards or patterns.
        start: number of the first shard.
        others: other files that are written, or None.

    Raises:
        UsageError: an output cannot be a tar, or its folder is missing.
    """
    names = [other for other in others if other is not None]
    for output in outputs:
        check_tar_output(output)
        # A place that cannot be listed is reported when it is opened.
        with suppress(StreamError):
            found = existing_shards(output, start) if is_pattern(output) else [output]
            names += [*found, *(index_url(name) for name in found if has_index_name(name))]
    return [name for name in names if not scheme_of(name) and name != "-"]


def listed_names(source: str, *, null: bool = False, comments: bool = False) -> Iterator[str]:
    """Yield the names in a list of files.

    Args:
        source: path or URL of the list; ``-`` is standard input.
        null: names end with NUL; otherwise with a line end, which may be CR LF.
        comments: leave out lines that begin with ``#``.

    Raises:
        MissingInputError: the list does not exist, or is empty.
        StreamError: the list cannot be read.
    """
    data = read_whole(source if source == "-" or scheme_of(source) else Path(source))
    lines = data.split(b"\0") if null else data.removeprefix(b"\xef\xbb\xbf").splitlines()
    names = [name.decode("utf-8", "surrogateescape") for name in lines if name]
    names = [name for name in names if not (comments and name.startswith("#"))]
    if not names:
        raise MissingInputError("the list names no file", url=source)
    return iter(names)


def gathered_files(
    paths: Iterable[str], listed: Iterable[str] = (), *, rule: KeyRule, folder: str = ".",
    leave_out: Iterable[str] = (), skip_others: bool = False,
) -> Files:  # fmt: skip
    """Find the files to write in files, folders and ``@LIST``s of them.

    Args:
        paths: files, folders and ``@LIST``s.
        listed: more files and folders.
        rule: key rule.
        folder: folder where relative paths begin.
        leave_out: files that are outputs, and so never inputs.
        skip_others: leave out files that do not belong to a sample, and count them.

    Raises:
        DataError: a file does not belong to a sample.
        MissingInputError: there is no file.
        StreamError: a folder cannot be read.
    """
    _check_folder(folder)
    names = [name for path in paths for name in (listed_names(path[1:], comments=True) if path[:1] == "@" else [path])]
    names += listed
    found = gather(names, rule=rule, folder=folder, leave_out=leave_out)
    files = _checked(found, skip_others, {OUTPUT_ITSELF})
    fields = {file.field for file in files.files}
    if len(found.named) < len(found.files) and all(extension_of(field)[0] in IMAGE_FORMATS for field in fields):
        place = printable(next((name for name in names if os.path.isdir(os.path.join(folder, name))), "."))
        note = f"pictures without labels, whose keys are their paths: --classes takes the folders in {place} as classes"
        files.notes.append(note)
    return files


def class_files(
    root: str, classes: Mapping[str, int] | None, outputs: Iterable[str], *, rule: KeyRule,
    leave_out: Iterable[str] = (), skip_others: bool = False, force: bool = False, dry_run: bool = False,
) -> Files:  # fmt: skip
    """Find the files in class folders; the tables of classes are written beside the outputs.

    Args:
        root: folder of the class folders.
        classes: numbers of the classes; None: the folders, sorted, and a table is written.
        outputs: names of the outputs.
        rule: key rule.
        leave_out: files that are outputs, and so never inputs.
        skip_others: leave out files that do not belong to a sample, and count them.
        force: a different table of classes may be replaced.
        dry_run: write no table.

    Raises:
        DataError: the folders cannot be classes, or a file does not belong to a sample.
        UsageError: a different table of classes is beside an output.
        MissingInputError: the folder does not exist.
        StreamError: a folder cannot be read.
    """
    tables = [] if classes is not None else list(dict.fromkeys(map(table_beside, outputs)))
    leave_out = [*leave_out, *(url for url in tables if not scheme_of(url))]
    found = class_folders(root, classes, rule=rule, leave_out=leave_out)
    files = _checked(found.gathered, skip_others, DEBRIS)
    files.notes += found.notes
    files.classes = found.classes
    files.tables = [url for url in tables if check_table(url, found.classes, force=force) and not dry_run]
    return files


def _checked(gathered: Gathered, skip_others: bool, unasked: Iterable[str]) -> Files:
    """Return the files to write, or raise an error for others.

    Args:
        unasked: reasons of other files that are not an error.
    """
    wrong = [(name, reason) for name, reason in gathered.others if reason not in unasked]
    if wrong and not skip_others:
        name, reason = wrong[0]
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        hint = "rename it KEY.FIELD, or leave it out with --skip-others"
        raise DataError(f"no part of a sample: {reason}{more}", url=name, hint=hint)
    if not gathered.files:
        hint = "a sample's files are called KEY.FIELD"
        raise MissingInputError("no file of a sample is in what was given", hint=hint)
    notes = []
    if gathered.stripped:
        notes.append(f"{counted(gathered.stripped, 'name')} lost a leading / or ./")
    if kinds := Counter(reason for _, reason in gathered.others):
        notes.append("left out: " + ", ".join(f"{reason} {count}" for reason, count in sorted(kinds.items())))
    return Files(gathered.files, gathered.named, notes)


def planned_files(plan: str, *, rule: KeyRule, folder: str = ".", allow_pipe: bool = False) -> Files:
    """Parse a plan; all of its lines are checked before the first source is opened.

    Args:
        plan: path or URL of the plan.
        rule: key rule.
        folder: folder where relative paths begin.
        allow_pipe: True if sources may be commands.

    Raises:
        MissingInputError: the plan has no lines.
        UsageError: a line is not valid.
    """
    _check_folder(folder)
    files = parse_plan(plan, rule=rule, folder=folder, allow_pipe=allow_pipe)
    if not files:
        raise MissingInputError("the plan has no lines", url=plan)
    return Files(files, [file.source for file in files if not str(file.source).startswith("text:")])


def _check_folder(folder: str) -> None:
    if not os.path.isdir(folder):
        raise MissingInputError("-C names no folder", url=folder)


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
    """Return the parts, their numbers of samples if known, and with ``shards`` those and of shards.

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
            raise DataError(reason, hint=f"its share is {share:g}; a larger share, or more samples, would fill it")
