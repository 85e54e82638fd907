"""Files and folders to samples: which files there are, what their members are called, in which order."""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tarkit.errors import DataError, DuplicateFieldError, MissingInputError, StreamError, UsageError, printable
from tarkit.formats.fieldfile import LARGE, PIECE, FieldFile, SampleRoom
from tarkit.samples.codecs import extension_of
from tarkit.samples.sample import KeyRule, Sample, first_dot, last_dot, skip_reason
from tarkit.store.read import ReadStream, open_read


class File(NamedTuple):
    """One file. name: of the member. path: where it is. key, field: what the key rule makes of the name."""

    name: str
    path: str
    key: str
    field: str


class Named(Protocol):
    """A file to be: name of its member, and the key and field that the key rule makes of it."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def field(self) -> str: ...


_SPELLINGS = {"jpeg": "jpg", "tiff": "tif", "htm": "html", "yml": "yaml", "mpeg": "mpg"}
"""Extensions of which one kind of file has two."""


@dataclass
class Gathered:
    """files: sorted by key, the fields of one sample together. others: (name, why it is not part of a
    sample). stripped: how many names lost a leading slash or ``./``."""

    files: list[File] = field(default_factory=list)
    others: list[tuple[str, str]] = field(default_factory=list)
    stripped: int = 0


def gather(paths: Iterable[str], *, rule: KeyRule, folder: str = ".", leave_out: Iterable[str] = ()) -> Gathered:
    """All files that ``paths`` name or hold, looked at but not opened.

    Folders are walked to any depth; links to files are followed, links to folders only where
    they are named themselves. Member names are the paths as given, without a leading slash or ``./``.

    Args:
        paths: files and folders, relative to ``folder``.
        rule: the key rule.
        leave_out: paths of files that are left out where they are met in a folder: the output itself.
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
                gathered.files.append(File(name, os.path.join(folder, found), *split))
    # A stable sort: samples in the order of their keys, whatever the order of the arguments.
    gathered.files.sort(key=lambda file: file.key)
    places: dict[str, str] = {}
    for file in gathered.files:
        if file.name in places:
            raise DuplicateFieldError(
                f"field {file.field!r} of this sample is given twice",
                url=file.path,
                member=file.name,
                key=file.key,
                hint="name each file once, in or outside of the folder that it is in",
            )
        places[file.name] = file.path
    return gathered


def refuse_same_extension(files: Iterable[Named], rule: KeyRule) -> None:
    """Look for files whose names have dots that were not meant to begin a field.

    ``img_0.5.jpg`` and ``img_0.7.jpg`` have the same key by the first dot, and would become one sample. So do
    ``a.JPEG`` and ``a.jpg``.

    Args:
        files: those of one sample next to each other.
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
        # A name that ends with a dot has no key by that rule.
        apart = {split[0] for split in map(last_dot, (other, file.name)) if split is not None}
        if rule is first_dot and len(apart) > 1:
            hint += ", or --key-rule last-dot, here and in all that read it, if they are samples of their own"
        else:
            hint += ", or rename one of them"
        fields = f"{kind} fields" if kind else "fields"
        raise DataError(
            f"{printable(other)!r} and {printable(file.name)!r} would be two {fields} of one sample",
            key=key,
            hint=hint,
        )


def _walk(place: str, given: str, leave_out: set[tuple[int, int] | None]) -> Iterator[tuple[str, str | None]]:
    """(path as given, None or why it is not a file) of the file itself, or of all that is in the folder."""
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
    elif os.path.islink(place):
        raise MissingInputError("this link leads nowhere", url=given)
    else:
        raise MissingInputError("no such file or folder", url=given)


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


def samples_of(files: Iterable[File]) -> Iterator[Sample]:
    """The samples of :func:`gather`'s files, read one at a time."""
    sample: Sample = {}
    room = SampleRoom()
    for file in files:
        if sample and sample["__key__"] != file.key:
            yield sample
            sample = {}
        if not sample:
            sample, room = {"__key__": file.key}, SampleRoom()
        # As a path object, which is never taken for a URL.
        sample[file.field] = room.hold(read_content(pathlib.PurePath(file.path)))
    if sample:
        yield sample


def read_all(url: str | os.PathLike[str]) -> bytes:
    """All bytes of a file or URL, as they are: not decompressed."""
    with open_read(url, compression=None) as stream:
        return b"".join(_pieces(stream))


def read_content(url: str | os.PathLike[str]) -> bytes | FieldFile:
    """As :func:`read_all`; what is too large for memory stays in its file, or is kept in one."""
    with open_read(url, compression=None) as stream:
        if not isinstance(url, str) and (stream.size_hint or 0) > LARGE:
            return FieldFile.at(os.fspath(url))
        pieces = _pieces(stream)
        head, size = [], 0
        for piece in pieces:
            head.append(piece)
            size += len(piece)
            if size > LARGE:
                return FieldFile.keep(itertools.chain(head, pieces), url=stream.name)
        return b"".join(head)


def _pieces(stream: ReadStream) -> Iterator[bytes]:
    try:
        while piece := stream.read(PIECE):
            yield piece
    except OSError as error:
        if isinstance(error, StreamError):
            raise
        raise StreamError((error.strerror or str(error)).lower(), url=stream.name) from error
