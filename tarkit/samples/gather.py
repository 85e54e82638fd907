"""Collect files, folders and plans as samples: list the files, name the members, sort them.

A plan is a text; each line has the name of a member and the source of its content: ``NAME SOURCE``,
with blanks or tabs between. SOURCE is ``text:TEXT`` (the rest of the line, unchanged),
``file:PATH``, ``pipe:COMMAND``, a URL, or a plain path. Blank lines and lines that begin with ``#``
are skipped.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple

from tarkit.errors import (
    DataError,
    DuplicateFieldError,
    LocatedError,
    MissingInputError,
    RepeatedKeyError,
    StreamError,
    UsageError,
    printable,
)
from tarkit.names.url import is_url
from tarkit.samples.codecs import extension_of
from tarkit.samples.sample import KeyRule, Sample, first_dot, last_dot, skip_reason
from tarkit.store.fieldfile import LARGE, PIECE, FieldFile, SampleRoom
from tarkit.store.read import open_read

_LINE = re.compile(r"[ \t]*(\S+)[ \t]+(.+)", re.DOTALL)

_SPELLINGS = {"jpeg": "jpg", "tiff": "tif", "htm": "html", "yml": "yaml", "mpeg": "mpg"}
"""Extensions of file types that have two, each with the one that stands for both."""


class MemberFile(NamedTuple):
    """One file that becomes a member.

    Attributes:
        name: name of the member.
        source: path of the content, or a URL, command or text.
        key: key of the sample, by the key rule.
        field: field of the sample, by the key rule.
        wanted_by: line of a plan, for errors.
    """

    name: str
    source: str | PurePath
    key: str
    field: str
    wanted_by: str = ""


@dataclass
class Gathered:
    """The files that were found for samples, and the other files.

    Attributes:
        files: sorted by key, the fields of one sample together.
        others: (name, reason why it is not part of a sample).
        stripped: number of names that lost a leading slash or ``./``.
    """

    files: list[MemberFile] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    stripped: int = 0


def gather(paths: Iterable[str], *, rule: KeyRule, folder: str = ".", leave_out: Iterable[str] = ()) -> Gathered:
    """Find all files that ``paths`` name or contain; none is opened.

    Folders are walked to any depth; links to files are followed, links to folders only where they
    are named themselves. Member names are the paths as given, without a leading slash or ``./``.

    Args:
        paths: files and folders, relative to ``folder``.
        rule: key rule.
        folder: folder where relative paths begin.
        leave_out: files that are skipped when they are found in a folder: the output.

    Raises:
        DuplicateFieldError: a file is given twice.
        MissingInputError: a path does not exist.
        StreamError: a folder cannot be read.
        UsageError: a path is empty, or has ``..`` in it.
    """
    gathered = Gathered()
    outputs = {_file_id(path) for path in leave_out} - {None}
    for path in paths:
        for found, kind in _walk(os.path.join(folder, path), path, outputs):
            name = _member_name(found)
            gathered.stripped += name != found
            split = rule(name)
            reason = kind or skip_reason(name, rule)
            if reason is not None or split is None:
                gathered.others.append((name, reason or "no-extension"))
            else:
                gathered.files.append(MemberFile(name, PurePath(folder, found), *split))
    # A stable sort: samples come in the order of their keys, independent of the order of the
    # arguments.
    gathered.files.sort(key=lambda file: file.key)
    names: set[str] = set()
    for file in gathered.files:
        if file.name in names:
            problem = f"field {file.field!r} of this sample is given twice"
            hint = "name each file once, in or outside of the folder that it is in"
            raise DuplicateFieldError(problem, url=str(file.source), member=file.name, key=file.key, hint=hint)
        names.add(file.name)
    return gathered


def _walk(place: str, given: str, leave_out: set[tuple[int, int] | None]) -> Iterator[tuple[str, str | None]]:
    """Yield (path as given, None or the reason why it is not a file) for all files below a path."""
    if not given:
        raise UsageError("a file's name is empty")
    if os.path.isfile(place):
        yield given, None
    elif os.path.isdir(place):
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError as error:
            raise StreamError(f"this folder cannot be read: {error.strerror}", url=given) from error
        for entry in entries:
            name = os.path.join(given, entry.name)
            if leave_out and _file_id(entry.path) in leave_out:
                yield name, "the output itself"
            elif entry.is_symlink() and entry.is_dir():
                yield name, "link to a folder"
            else:
                yield from _walk(entry.path, name, leave_out)
    elif os.path.exists(place):
        yield given, "not-a-file"
    else:
        raise MissingInputError(
            "the target of this link does not exist" if os.path.islink(place) else "no such file or folder", url=given
        )


def _file_id(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _member_name(path: str) -> str:
    name = path
    while name.startswith(("/", "./")):
        name = name[1:] if name[0] == "/" else name[2:]
    if ".." in name.split("/"):
        raise UsageError(f"{printable(path)!r}: a member's name cannot have .. in it; go to another folder with -C")
    return name


def parse_plan(plan: str, *, rule: KeyRule, folder: str = ".", allow_pipe: bool = False) -> list[MemberFile]:
    """Parse the lines of a plan, in its order; all of them are checked.

    No source is opened.

    Args:
        plan: path or URL of the plan.
        rule: key rule.
        folder: folder where relative paths begin.
        allow_pipe: True if sources may be commands.

    Raises:
        UsageError: a line is not valid.
        DuplicateFieldError: a sample has a field twice.
        RepeatedKeyError: the lines of a sample are not adjacent.
    """
    text = read_content(plan)
    files: list[MemberFile] = []
    first_line: dict[str, int] = {}
    fields: set[tuple[str, str]] = set()
    for number, raw in enumerate((text if isinstance(text, bytes) else text.read()).split(b"\n"), 1):
        raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        file = _entry(line, f"{printable(plan)}:{number}", rule, folder, allow_pipe)
        first = first_line.setdefault(file.key, number)
        if (file.key, file.field) in fields:
            reason = f"{file.wanted_by}: {printable(file.name)!r} is listed twice in its sample"
            raise DuplicateFieldError(reason, key=file.key)
        if first != number and files[-1].key != file.key:
            problem = f"{file.wanted_by}: the key comes back after other samples; it was first in line {first}"
            raise RepeatedKeyError(problem, key=file.key, hint="put the lines of one sample next to each other")
        fields.add((file.key, file.field))
        files.append(file)
    return files


def _entry(line: str, where: str, rule: KeyRule, folder: str, allow_pipe: bool) -> MemberFile:
    match = _LINE.fullmatch(line)
    if match is None:
        raise UsageError(f"{where}: {printable(line.strip())!r} is not NAME SOURCE")
    name, source = match[1], match[2]
    if not source.startswith("text:"):
        source = source.strip(" \t")
    if name.startswith(("/", "./")) or ".." in name.split("/"):
        raise UsageError(f"{where}: the name {printable(name)!r} begins with / or ./, or has .. in it")
    split = rule(name)
    reason = skip_reason(name, rule)
    if split is None or reason is not None:
        raise UsageError(
            f"{where}: the name {printable(name)!r} cannot be a file of a sample ({reason}); write KEY.FIELD"
        )
    if source in ("-", "file:", "pipe:"):
        raise UsageError(f"{where}: the source {source!r} names nothing to read")
    if source.startswith("pipe:") and not allow_pipe:
        raise UsageError(f"{where}: commands are run only with --allow-pipe")
    is_path = not (source.startswith(("text:", "pipe:")) or is_url(source))
    return MemberFile(name, PurePath(folder, source.removeprefix("file:")) if is_path else source, *split, where)


def refuse_same_extension(files: Iterable[MemberFile], rule: KeyRule) -> None:
    """Reject samples with two files of one extension, such as ``a.JPEG`` and ``a.jpg``.

    Dots in names are often not meant to begin a field: ``img_0.5.jpg`` and ``img_0.7.jpg`` have the
    same key by the first dot, and would become one sample.

    Args:
        files: files, those of one sample next to each other.
        rule: key rule.

    Raises:
        DataError: two files of a sample have the same extension.
    """
    key: str | None = None
    found: dict[str, str] = {}
    for file in files:
        if file.key != key:
            key, found = file.key, {}
        last, compressed = extension_of(file.field)
        kind = _SPELLINGS.get(last, last) + (".gz" if compressed else "")
        other = found.setdefault(kind, file.name)
        if other == file.name:
            continue
        hint = "pass --on-same-extension allow if they belong together"
        # last_dot gives no key for a name that ends with a dot.
        apart = {split[0] for split in map(last_dot, (other, file.name)) if split is not None}
        if rule is first_dot and len(apart) > 1:
            hint += ", or --key-rule last-dot, here and in every reader, if they are separate samples"
        else:
            hint += ", or rename one of them"
        fields = f"{kind} fields" if kind else "fields"
        reason = f"{printable(other)!r} and {printable(file.name)!r} would be two {fields} of one sample"
        raise DataError(reason, key=key, hint=hint)


def samples_of(files: Iterable[MemberFile]) -> Iterator[Sample]:
    """Yield the samples of files; the files of one sample must be adjacent.

    The files of a sample are read when it is taken.
    """
    for key, fields in itertools.groupby(files, lambda file: file.key):
        sample: Sample = {"__key__": key}
        room = SampleRoom()
        for file in fields:
            try:
                sample[file.field] = room.hold(read_content(file.source))
            except LocatedError as error:
                if file.wanted_by:
                    error.reason = f"{error.reason} (wanted by {file.wanted_by})"
                raise
            except UsageError as error:
                raise UsageError(f"{file.wanted_by}: {error}" if file.wanted_by else str(error)) from None
        yield sample


def read_content(source: str | PurePath) -> bytes | FieldFile:
    """Read all bytes of a source, without decompression.

    Content that is too large for memory stays in its file, or is kept in a temporary file.
    """
    if isinstance(source, str) and source.startswith("text:"):
        return source[5:].encode("utf-8", "surrogateescape")
    with open_read(source, compression=None) as stream:
        if isinstance(source, PurePath) and (stream.size_hint or 0) > LARGE:
            return FieldFile.at(str(source))
        head: list[bytes] = []
        size = 0
        try:
            pieces = iter(lambda: stream.read(PIECE), b"")
            for piece in pieces:
                head.append(piece)
                size += len(piece)
                if size > LARGE:
                    return FieldFile.keep(itertools.chain(head, pieces), url=stream.name)
        except OSError as error:
            if isinstance(error, (StreamError, MissingInputError)):
                raise
            raise StreamError((error.strerror or str(error)).lower(), url=stream.name) from error
        return b"".join(head)
