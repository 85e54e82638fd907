"""The scratch folder of a run, and samples as files in it.

A scratch folder holds a locked file for as long as its run lives. A run that was killed
leaves its folder behind, unlocked; the next run removes such folders.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from typing import NamedTuple

from tarkit import ownfiles
from tarkit.errors import StreamError, UsageError, printable
from tarkit.fieldfile import LARGE, PIECE, FieldFile, write_pieces
from tarkit.sample import Sample

PREFIX = "tarproc-"
_LOCK = "lock"
_UNBORN = ".lock"
_NEWBORN = 60.0  # seconds
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class Scratch:
    """A private folder for one run. A context manager: it is gone afterwards.

    Args:
        parent: folder to make it in; None means the system's (``$TMPDIR``).
        path: or its exact path, which must not exist; ``{pid}`` is replaced by the process id.
    """

    def __init__(self, parent: str | None = None, path: str | None = None) -> None:
        try:
            if path is not None:
                self.path = os.path.abspath(path.replace("{pid}", str(os.getpid())))
                os.mkdir(self.path, 0o700)
            else:
                sweep(parent or tempfile.gettempdir())
                self.path = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent)
        except FileExistsError:
            raise UsageError(f"working folder {path!r} exists; it must be a new one, since it is removed") from None
        except OSError as error:
            raise StreamError(
                f"no scratch folder can be made: {error.strerror}",
                url=path or parent or tempfile.gettempdir(),
                hint="set TMPDIR to a folder on a disk with room",
            ) from None
        # Locked before it has its name, so that no other run ever sees it unlocked.
        self._lock = os.open(os.path.join(self.path, _UNBORN), _CREATE, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        ownfiles.keep_from_children(self._lock)
        os.rename(os.path.join(self.path, _UNBORN), os.path.join(self.path, _LOCK))

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        # What a command left running may still create files for a moment.
        for _attempt in range(5):
            _remove_run(self.path)
            if not os.path.exists(self.path):
                break
        ownfiles.close(self._lock)


def sweep(parent: str) -> int:
    """Remove scratch folders in ``parent`` whose runs are dead and were ours. Returns how many."""
    removed = 0
    with suppress(FileNotFoundError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                # A run that ends takes its folder away at any moment.
                with suppress(FileNotFoundError):
                    removed += _sweep_one(entry)
    return removed


def _sweep_one(entry: os.DirEntry[str]) -> bool:
    if entry.stat(follow_symlinks=False).st_uid != os.getuid():
        return False
    try:
        lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR)
    except OSError:
        # No lock file: not ours, or made this very moment, or its run died at once.
        age = time.time() - entry.stat(follow_symlinks=False).st_mtime
        if age > _NEWBORN or not _runs(entry.name.removeprefix(PREFIX).partition("-")[0]):
            with suppress(OSError):
                os.unlink(os.path.join(entry.path, _UNBORN))
            with suppress(OSError):
                os.rmdir(entry.path)
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        _remove_run(entry.path)
        return True
    finally:
        os.close(lock)


def _runs(pid: str) -> bool:
    """Whether there may be a process of this number."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (OSError, ValueError, OverflowError):
        return True
    return True


class FieldNameError(ValueError):
    """A field can not be the name of a file."""


def extract(sample: Sample, folder: str, base: str) -> None:
    """Write a sample as files into a new folder: ``base.FIELD``, ``__key__`` and ``__source__``.

    Raises:
        FieldNameError: a field's name can not be a file's, or two are one on this file system.
        OSError: the disk is full, or worse.
    """
    os.mkdir(folder, 0o700)
    write_file(f"{folder}/__key__", sample["__key__"].encode("utf-8", "surrogateescape"))
    write_file(f"{folder}/__source__", str(sample.get("__url__", "-")).encode("utf-8", "surrogateescape"))
    prefix = f"{folder}/{base}."
    for field, content in sample.items():
        if field == "__key__" or field == "__url__":
            continue
        try:
            if "/" in field:
                raise ValueError("it has a slash")
            write_file(prefix + field, content)
        except (ValueError, FileExistsError) as error:
            raise FieldNameError(f"field {printable(field)!r} can not be a file's name: {error}") from None
        except OSError as error:
            if len(os.fsencode(field)) + len(base) < 250:
                raise
            raise FieldNameError(f"field {printable(field)!r} can not be a file's name: {error.strerror}") from None


def write_file(path: str, content: bytes | FieldFile) -> None:
    """Create a file that must not exist yet."""
    file = os.open(path, _CREATE, 0o644)
    try:
        if isinstance(content, FieldFile):
            # A copy: the command may change it, and if it fails, the original is kept.
            write_pieces(file, content.pieces())
            return
        written = os.write(file, content)
        while written < len(content):
            written += os.write(file, memoryview(content)[written:])
    finally:
        os.close(file)


class Rules(NamedTuple):
    """How the files that a command left become samples.

    base: the part of a file's name before its first dot for the sample itself. multi: other
    bases are samples of their own, key + separator + the base. subdirs: so is every folder.
    include, exclude: regular expressions searched in file names; what they leave out is dropped.
    """

    base: str = "sample"
    multi: bool = False
    subdirs: bool = False
    separator: str = ""
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None

    def wants(self, name: str) -> bool:
        """Whether include and exclude let a file through."""
        if self.exclude is not None and self.exclude.search(name):
            return False
        return self.include is None or self.include.search(name) is not None


def gather(folder: str, original: Sample, rules: Rules) -> tuple[list[Sample], list[str]]:
    """Samples made of the files in a folder, and names of files that belong to no sample.

    Raises:
        FileNotFoundError: the folder is gone.
        ValueError: ``__key__`` is empty.
    """
    files, folders, stray = _list(folder)
    key = read_key(folder, original["__key__"], "__key__" in files)
    fields: dict[str, dict[str, bytes | FieldFile]] = {}
    held = 0
    for name in files:
        stem, _, field = name.partition(".")
        if stem and field and (stem == rules.base or rules.multi):
            if rules.wants(name):
                content = _read_file(f"{folder}/{name}", LARGE if held < 2 * LARGE else PIECE)
                held += len(content) if isinstance(content, bytes) else 0
                fields.setdefault(stem, {})[field] = content
        elif name not in ("__key__", "__source__"):
            stray.append(name)
    made: list[Sample] = []
    for stem in sorted(fields):
        suffix = stem[len(rules.base) :] if stem.startswith(rules.base) else stem
        made.append({"__key__": f"{key}{rules.separator}{suffix}" if suffix else key, **fields[stem]})
    for name in folders:
        if not rules.subdirs:
            stray.append(f"{name}/")
            continue
        inner = f"{folder}/{name}"
        inner_original = {"__key__": f"{key}{rules.separator or '/'}{name}"}
        more, more_stray = gather(inner, inner_original, rules._replace(subdirs=False))
        made += more
        stray += [f"{name}/{left}" for left in more_stray]
    keys: list[str] = [sample["__key__"] for sample in made]
    if len(set(keys)) < len(keys):
        twice = next(each for each in keys if keys.count(each) > 1)
        raise ValueError(f"two samples that the command made have the same key {printable(twice)!r}")
    return made, stray


def _list(folder: str) -> tuple[list[str], list[str], list[str]]:
    """Names of the files, of the folders, and of all else: dangling links, pipes, sockets."""
    files, folders, other = [], [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif os.path.isfile(entry.path):  # a link to one; False for links in a circle, where is_file() raises
                files.append(entry.name)
            else:
                other.append(entry.name)
    return sorted(files), sorted(folders), sorted(other)


def read_key(folder: str, original: str, present: bool) -> str:
    """The key after the command ran: ``__key__``, one newline at its end not counted."""
    if not present:
        return original
    raw = _read_file(f"{folder}/__key__", PIECE)
    if isinstance(raw, FieldFile):
        raise ValueError(f"the command left a __key__ of {len(raw)} bytes")
    if raw == original.encode("utf-8", "surrogateescape"):
        return original
    key = raw.decode("utf-8", "surrogateescape").removesuffix("\n")
    if not key:
        raise ValueError("the command left an empty __key__")
    return key


def _read_file(path: str, large: int) -> bytes | FieldFile:
    """The content of a file; above ``large`` bytes it stays there, also once its name is gone."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{os.path.basename(path)!r} is not a regular file")
        if status.st_size > large:
            return FieldFile.opened(os.dup(file), path)
        content = os.read(file, status.st_size)
        # More than 2 GiB, or still growing in the hands of something in the background.
        while len(content) < status.st_size and (more := os.read(file, status.st_size - len(content))):
            content += more
        return content
    finally:
        os.close(file)


def _remove_run(folder: str) -> None:
    """Remove a run's folder, its lock last: killed half way, it is still known to be one that is left behind."""
    with suppress(OSError):
        if not os.path.islink(folder):
            with os.scandir(folder) as entries:
                inside = [entry.path for entry in entries if entry.name != _LOCK]
            for path in inside:
                if os.path.isdir(path) and not os.path.islink(path):
                    remove(path)
                else:
                    os.unlink(path)
    remove(folder)


def remove(folder: str) -> None:
    """Remove a folder, whatever a command made of it."""
    try:
        if os.path.islink(folder):
            # Put in its place by the command. What it points to is not ours.
            os.unlink(folder)
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                os.unlink(entry.path)
        os.rmdir(folder)
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            _permit(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _permit(folder: str) -> None:
    """Take back what chmod did to a folder and those in it, so that they can be removed."""
    with suppress(OSError):
        os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _permit(entry.path)
