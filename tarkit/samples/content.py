"""Read the content of files, URLs and commands as the fields of samples, without decompression."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import NamedTuple

from tarkit.errors import LocatedError, MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.samples.sample import Sample
from tarkit.store.fieldfile import LARGE, PIECE, FieldFile, SampleRoom
from tarkit.store.read import open_read


class MemberFile(NamedTuple):
    """One file that becomes a member.

    Attributes:
        name: name of the member.
        source: path of the content, or a URL, command or text. A path that was found in the file
            system is a str that begins with a slash or a dot.
        key: key of the sample, by the key rule.
        field: field of the sample, by the key rule.
        wanted_by: line of a plan, for errors.
    """

    name: str
    source: str | PurePath
    key: str
    field: str
    wanted_by: str = ""


def samples_of(files: Iterable[MemberFile]) -> Iterator[Sample]:
    """Yield the samples of files; the files of one sample must be adjacent.

    The files of a sample are read when it is taken.
    """
    sample: Sample = {}
    key, room = None, None
    for file in files:
        if file.key != key:
            if sample:
                yield sample
            key, room = file.key, None
            sample = {"__key__": key}
        elif room is None:
            # What one file leaves in memory fits, so that samples of one file need no count.
            room = SampleRoom()
            for field in [*sample][1:]:
                room.hold(sample[field])
        try:
            source = file.source
            is_local = isinstance(source, str) and source[0] in "./"
            content = read_local_file(str(source)) if is_local else read_content(source)
        except LocatedError as error:
            if file.wanted_by:
                error.reason = f"{error.reason} (wanted by {file.wanted_by})"
            raise
        except UsageError as error:
            raise UsageError(f"{file.wanted_by}: {error}" if file.wanted_by else str(error)) from None
        sample[file.field] = content if room is None else room.hold(content)
    if sample:
        yield sample


def read_local_file(path: str) -> bytes | FieldFile:
    """Read a file of this machine with one open, read and close.

    Raises:
        MissingInputError: the file does not exist.
        StreamError: it cannot be read, or is not a regular file.
        TemporaryStreamError: it was changed, replaced or removed meanwhile.
    """
    name = path.removeprefix("./")
    try:
        # A pipe that took the place of the file would wait for a writer.
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            before = os.fstat(number)
            size = before.st_size
            if not stat.S_ISREG(before.st_mode):
                raise StreamError("is not a regular file", url=name)
            if size > LARGE:
                return FieldFile.at(path)
            data = os.read(number, size + 1)
        finally:
            os.close(number)
        after = os.stat(path)
    except StreamError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise MissingInputError("no such file", url=name) from None
        raise StreamError((error.strerror or str(error)).lower(), url=name) from None
    if len(data) != size or after.st_size != size or after.st_mtime_ns != before.st_mtime_ns:
        reason = f"the file was changed while it was read: it had {size} bytes, and has {after.st_size} now"
        hint = "read it again when nothing writes to it"
        raise TemporaryStreamError(reason, url=name, hint=hint)
    return data


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
