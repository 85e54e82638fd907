"""Find the files that become samples: in folders, class folders, lists and plans."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from tarkit.errors import DataError, MissingInputError, StreamError, counted, printable
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
from tarkit.store.read import read_whole


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
        """Return False: files have no columns."""
        return False

    def count(self, parts: Parts) -> Counter[str]:
        """Count the samples of each part before one is made."""
        return Counter(map(parts.part_of, dict.fromkeys(file.key for file in self.files)))

    def samples(self, shuffle: str | None) -> Iterator[Sample]:
        """Yield the samples: in order, or in an order that the text ``shuffle`` decides."""
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
