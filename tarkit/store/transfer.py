"""Copy whole files and folders between local disks and any store.

Each copy is published all or nothing, and its size compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from typing import NamedTuple

from tarkit.errors import (
    AlreadyPublishedError,
    GivenUpError,
    MissingInputError,
    StreamError,
    TarkitError,
    TemporaryStreamError,
    UsageError,
)
from tarkit.names.url import base_name, display_name, join, local_path, one_name, scheme_of, split_query
from tarkit.store.entries import Entry, entries, exists, stat
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read
from tarkit.store.retry import GoneStores
from tarkit.store.temporary import is_temporary_name
from tarkit.store.waits import Workers

_PIECE = 1 << 20
_ATTEMPTS = 3


class FileCopy(NamedTuple):
    """One file to copy.

    Attributes:
        source: entry of the file.
        target: path or URL of the copy.
        problem: reason why it cannot be copied, found while planning; None if there is none.
    """

    source: Entry
    target: str
    problem: TarkitError | None = None


class CopyOutcome(NamedTuple):
    """Result of one copy.

    Attributes:
        job: the copy.
        size: number of bytes copied.
        kept: True if the target existed and was not changed.
        error: the error; None if there was none.
    """

    job: FileCopy
    size: int
    kept: bool
    error: TarkitError | None


def plan_copies(sources: Iterable[str], target: str) -> Iterator[FileCopy]:
    """Yield the files to copy.

    If ``target`` ends with a slash, every source is copied into it, under its own name. Otherwise a
    file is copied into ``target`` if that is a folder, or else to ``target`` itself; the contents
    of a source folder are copied directly into ``target``. So a repeated copy goes to the same
    place. A file that would replace another file of the same copy is a problem of its job, as with
    cp.

    Raises:
        UsageError: there are several sources, and ``target`` is not a folder; or ``target`` is
            inside of a source.
        MissingInputError: a folder of a source does not exist any more.
        StreamError: a folder of a source cannot be listed.
    """
    names = list(sources)
    into = split_query(target)[0].endswith("/")
    folder = into or _is_folder(target)
    if len(names) > 1 and not folder:
        raise UsageError(
            f"{display_name(target)} is not a folder, which several sources need; end it with / to make a folder"
        )
    taken: dict[str, str] = {}
    for job in _jobs(names, target, into, folder):
        first = taken.setdefault(job.target, job.source.url) if job.problem is None else job.source.url
        if first != job.source.url:
            reason = f"would replace the copy of {display_name(first)} as {display_name(job.target)}"
            job = job._replace(problem=StreamError(reason, url=display_name(job.source.url)))
        elif job.problem is None and _is_same(job.source.url, job.target):
            reason = f"is the same file as {display_name(job.target)}, its copy"
            job = job._replace(problem=StreamError(reason, url=display_name(job.source.url)))
        yield job


def _is_same(source: str, target: str) -> bool:
    """Return True if two names are of one file, through a link or a different spelling."""
    paths = local_path(source), local_path(target)
    if paths[0] is None or paths[1] is None:
        return one_name(source) == one_name(target)
    return os.path.exists(paths[1]) and os.path.samefile(paths[0], paths[1])


def _jobs(names: Iterable[str], target: str, into: bool, folder: bool) -> Iterator[FileCopy]:
    """Yield the files to copy, for each source in turn."""
    for name in names:
        try:
            source = stat(name)
        except TarkitError as error:
            yield FileCopy(Entry(name, name, False, None, None, None), target, error)
            continue
        base = base_name(name)
        if source.is_folder:
            below = join(target, base) if into and base else target
            if _is_inside(below, name):
                raise UsageError(f"{display_name(name)} cannot be copied into itself, as {display_name(below)}")
            yield from _folder(name, below)
        elif folder and not base:
            raise UsageError(f"{display_name(name)} has no name of its own; name the target")
        else:
            yield FileCopy(source, join(target, base) if folder else target)


def _is_folder(url: str) -> bool:
    if scheme_of(url) in ("http", "https"):
        return False
    try:
        return stat(url).is_folder
    except MissingInputError:
        return False


def _is_inside(target: str, folder: str) -> bool:
    """Return True if both are local, and ``target`` is the folder or below it."""
    paths = local_path(target), local_path(folder)
    if paths[0] is None or paths[1] is None:
        return False
    root = os.path.realpath(paths[1])
    return os.path.commonpath((os.path.realpath(paths[0]), root)) == root


def _folder(source: str, target: str) -> Iterator[FileCopy]:
    for entry in entries(source, recursive=True):
        parts = entry.name.split("/")
        if is_temporary_name(parts[-1]):
            # Temporary files are skipped: they are not published under their own names.
            continue
        problem: TarkitError | None = None
        shown = display_name(entry.url)
        if any(part in ("", ".", "..") for part in parts):
            problem = StreamError("the name has parts that no folder can have", url=shown)
        elif entry.is_folder:
            if local_path(entry.url) is None:
                continue
            problem = StreamError("is a link to a directory, which is not followed", url=shown)
        elif local_path(entry.url) is not None and os.path.exists(entry.url) and not os.path.isfile(entry.url):
            problem = StreamError("is not a regular file", url=shown)
        yield FileCopy(entry, join(target, entry.name), problem)


def copy_all(
    jobs: Iterable[FileCopy],
    *,
    parallel: int = 4,
    overwrite: bool = True,
    dry_run: bool = False,
    under_way: Callable[[int], object] = lambda count: None,
) -> Generator[CopyOutcome, None, None]:
    """Copy several files at a time; yield the result of each when it is done.

    A copy that fails does not stop the other copies.

    Args:
        parallel: number of files at a time.
        overwrite: True to replace an existing target. False: keep it, which is an error if its size
            differs.
        dry_run: copy nothing; the results have the sizes of the sources.
        under_way: called from threads with the size in bytes of each piece that is copied; and when
            an attempt to copy a file fails, with the sum of its pieces as a negative number.
    """
    if parallel < 1:
        raise UsageError(f"files at a time is {parallel}; it must be at least 1")
    gone = GoneStores()
    with Workers(parallel, "tarkit-transfer") as pool:
        left, running = iter(jobs), set[Future[CopyOutcome]]()
        while True:
            for job in islice(left, 2 * parallel - len(running)):
                running.add(pool.submit(_outcome, job, overwrite, dry_run, gone, under_way))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)


def _outcome(
    job: FileCopy, overwrite: bool, dry_run: bool, gone: GoneStores, under_way: Callable[[int], object]
) -> CopyOutcome:
    try:
        if job.problem is not None:
            raise job.problem
        with gone.asking(job.source.url, job.target):
            if dry_run:
                is_kept = not overwrite and exists(job.target)
                return _kept(job) if is_kept else CopyOutcome(job, job.source.size or 0, False, None)
            attempt = 1
            while True:
                try:
                    size = copy_file(job.source.url, job.target, overwrite=overwrite, under_way=under_way)
                    return CopyOutcome(job, size, False, None)
                except TemporaryStreamError as error:
                    # An error that reading and writing could not repair, such as a lost DataNode:
                    # the copy starts again.
                    if isinstance(error, GivenUpError) or attempt == _ATTEMPTS:
                        raise
                    attempt += 1
    except AlreadyPublishedError:
        return _kept(job)
    except TarkitError as error:
        return CopyOutcome(job, 0, False, error)


def _kept(job: FileCopy) -> CopyOutcome:
    try:
        there = stat(job.target).size
    except TarkitError as error:
        return CopyOutcome(job, 0, False, error)
    if job.source.size in (None, there):
        return CopyOutcome(job, 0, True, None)
    reason = f"already exists with {there} bytes, but the source has {job.source.size}"
    return CopyOutcome(job, 0, False, StreamError(reason, url=display_name(job.target)))


def copy_file(
    source: str, target: str, *, overwrite: bool = True, under_way: Callable[[int], object] = lambda count: None
) -> int:
    """Copy one file without change; return its size in bytes.

    The folder of a local target is made.

    Args:
        source: path or URL of the file.
        target: path or URL of the copy.
        overwrite: True to replace an existing target.
        under_way: called with the size of each piece, as for ``copy_all``.

    Raises:
        AlreadyPublishedError: ``overwrite`` is False, and the target exists.
        MissingInputError: the source does not exist.
        StreamError: the file cannot be read or written, or the sizes differ at the end.
        TemporaryStreamError: a later retry may help.
    """
    size = 0
    try:
        with (
            open_read(source, compression=None, allow_pipe=False) as stream,
            open_publish(target, compression=None, if_absent=not overwrite) as sink,
        ):
            while data := stream.read(_PIECE):
                size += len(data)
                under_way(len(data))
                sink.write(data)
    except BaseException:
        under_way(-size)
        raise
    return size
