"""The scratch folder of a run, and samples as files in it.

A scratch folder holds a locked file for as long as its run lives. A run that was killed leaves its
folder behind, unlocked; the next run removes such folders.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from contextlib import suppress
from typing import NamedTuple

from tarkit.errors import StreamError, UsageError, printable
from tarkit.mapping.openfolder import OpenFolder
from tarkit.mapping.removal import remove_folder
from tarkit.samples.sample import BOOKKEEPING, Sample, is_reserved, why_reserved
from tarkit.store.fieldfile import LARGE, PIECE, FieldFile, SampleRoom, scratch_hint
from tarkit.store.sinks import write_all
from tarkit.store.temporary import close_locked, create_locked, may_run, try_lock
from tarkit.store.trees import remove_if_empty

PREFIX = "tarproc-"
_LOCK = "lock"
_UNBORN = ".lock"
_NEWBORN = 60.0  # seconds
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL)
_OWN_FILES = ("__key__", "__source__")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


class Scratch:
    """A private folder for one run, removed at the end of the context.

    Args:
        parent: folder to create it in; None means the system's (``$TMPDIR``).
        path: its exact path instead, which must not exist; ``{pid}`` is replaced by the process id.
    """

    def __init__(self, parent: str | None = None, path: str | None = None) -> None:
        place = parent or tempfile.gettempdir() if path is None else path.replace("{pid}", str(os.getpid()))
        place = os.path.abspath(place)
        if "\n" in place:
            # Commands that read names line by line would take a part of it for the whole.
            raise UsageError(f"{place!r} has a newline in its name; set TMPDIR to another folder")
        try:
            if path is not None:
                self.path = place
                os.mkdir(place, 0o700)
            else:
                sweep(place)
                self.path = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place)
        except FileExistsError:
            raise UsageError(f"working folder {path!r} exists; it must be a new one, since it is removed") from None
        except OSError as error:
            raise StreamError(
                f"no scratch folder can be made: {error.strerror}", url=place, hint=scratch_hint(error)
            ) from None
        # Locked before it has its name, so that no other run ever sees it unlocked.
        self._unborn = os.path.join(self.path, _UNBORN)
        self._lock = create_locked(self._unborn)
        os.rename(self._unborn, os.path.join(self.path, _LOCK))

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        # What a command left running may still create files for a moment.
        for _attempt in range(5):
            _remove_run(self.path)
            if not os.path.exists(self.path):
                break
        close_locked(self._lock, self._unborn)


def sweep(parent: str) -> None:
    """Remove this user's scratch folders in ``parent`` whose runs are dead."""
    with suppress(FileNotFoundError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                # A run that ends takes its folder away at any moment.
                with suppress(FileNotFoundError):
                    _sweep_one(entry)


def _sweep_one(entry: os.DirEntry[str]) -> None:
    if entry.stat(follow_symlinks=False).st_uid != os.getuid():
        return
    try:
        lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR)
    except OSError:
        # No lock file: not ours, or made this very moment, or its run died at once.
        age = time.time() - entry.stat(follow_symlinks=False).st_mtime
        if age > _NEWBORN or not may_run(entry.name.removeprefix(PREFIX).partition("-")[0]):
            with suppress(OSError):
                if remove_if_empty(entry.path):
                    os.unlink(os.path.join(entry.path, _UNBORN))
                    os.rmdir(entry.path)
        return
    try:
        with suppress(OSError):
            if try_lock(lock):
                _remove_run(entry.path)
    finally:
        os.close(lock)


class FieldNameError(ValueError):
    """A field has a name that a file cannot have."""


def extract(sample: Sample, folder: str, base: str) -> None:
    """Write a sample as files into a new folder: ``base.FIELD``, ``__key__`` and ``__source__``.

    Raises:
        FieldNameError: a field's name cannot be a file's, or two are one on this file system.
        OSError: the disk is full, or worse.
    """
    os.mkdir(folder, 0o700)
    write_file(f"{folder}/__key__", sample["__key__"].encode("utf-8", "surrogateescape"))
    write_file(f"{folder}/__source__", str(sample.get("__url__", "-")).encode("utf-8", "surrogateescape"))
    prefix = f"{folder}/{base}."
    for field, content in sample.items():
        if field in BOOKKEEPING:
            continue
        try:
            if "/" in field:
                raise ValueError("it has a slash")
            write_file(prefix + field, content)
        except (ValueError, FileExistsError) as error:
            raise FieldNameError(f"field {printable(field)!r} cannot be a file's name: {error}") from None
        except OSError as error:
            if len(os.fsencode(field)) + len(base) < 250:
                raise
            raise FieldNameError(f"field {printable(field)!r} cannot be a file's name: {error.strerror}") from None


def write_file(path: str, content: bytes | FieldFile) -> None:
    """Create a file that must not exist yet."""
    file = os.open(path, _CREATE, 0o644)
    try:
        if isinstance(content, FieldFile):
            # A copy: the command may change it, and if it fails, the original is kept.
            content.write_to(file)
        else:
            write_all(file, content)
    finally:
        os.close(file)


class Rules(NamedTuple):
    """Rules for making samples of the files that a command left.

    Attributes:
        base: the part of a file's name before its first dot for the sample itself.
        multi: files with other bases are samples of their own, with the key: key + separator +
            base.
        subdirs: each folder is a sample of its own, too.
        include, exclude: regular expressions searched in file names; other files are dropped.
        large: size in bytes above which the content of a file is not held in memory.
        folder: folder for content that is neither held in memory nor in its own file; None means
            the system's (``$TMPDIR``).
    """

    base: str = "sample"
    multi: bool = False
    subdirs: bool = False
    separator: str = ""
    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    large: int = LARGE
    folder: str | None = None

    def wants(self, name: str) -> bool:
        """Return True if include and exclude let a file through."""
        if self.exclude is not None and self.exclude.search(name):
            return False
        return self.include is None or self.include.search(name) is not None


def has_other_names(folder: str, depth: int) -> bool:
    """Return True if a file in a folder also has a second name (``ln``).

    Args:
        depth: levels of folders below that are looked at.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth and has_other_names(entry.path, depth - 1):
                    return True
            elif entry.name not in _OWN_FILES and entry.stat(follow_symlinks=False).st_nlink > 1:
                return True
    return False


def collect(folder: str, original: Sample, rules: Rules, within: str = "") -> tuple[list[Sample], list[str]]:
    """Make samples of the files in a folder, and list everything else in it with its kind.

    Links are followed to targets in the folder.

    Args:
        within: name of a folder in it, from which the samples are made.

    Raises:
        FileNotFoundError: the folder does not exist any more.
        ValueError: a key is not valid, a file's name is not valid for a field, or a link leads out
            of the folder.
    """
    with OpenFolder(folder) as root:
        if not within:
            return _collect(root, original["__key__"], rules)
        with OpenFolder(within, root) as inner:
            return _collect(inner, original["__key__"], rules)


def _collect(folder: OpenFolder, original: str, rules: Rules) -> tuple[list[Sample], list[str]]:
    names = folder.names()
    stray = [f"{name} (a {kind})" for name, kind in names.items() if kind not in ("file", "link", "folder")]
    fields: dict[str, dict[str, bytes | FieldFile]] = {}
    room = SampleRoom(2 * rules.large, rules.folder)
    keys: dict[str, str] = {}
    for name, kind in names.items():
        if kind not in ("file", "link"):
            continue
        stem, _, field = name.partition(".")
        if not (stem and field and (stem == rules.base or rules.multi)):
            if name not in _OWN_FILES:
                stray.append(name if field or not name.endswith(".") else f"{name} (no field after the dot)")
        elif field == "__key__":
            keys[stem] = _read_key(folder, name, original)
        elif rules.wants(name):
            if is_reserved(field):
                raise ValueError(why_reserved(field, f"{stem}."))
            read = _read_link if kind == "link" else _read_file
            content = read(folder, name, rules)
            if content is None:
                stray.append(f"{name} (a link that leads to no file)")
            else:
                fields.setdefault(stem, {})[field] = room.hold(content)
    present = names.get("__key__") in ("file", "link")
    key = _read_key(folder, "__key__", original) if present else original
    key = _one_key(key, keys.pop(rules.base, original), original, rules.base)
    made: list[Sample] = []
    for stem in sorted(fields):
        suffix = stem[len(rules.base) :] if stem.startswith(rules.base) else stem
        own = keys.pop(stem, f"{key}{rules.separator}{suffix}" if suffix else key)
        made.append({"__key__": own, **fields[stem]})
    stray += [f"{stem}.__key__" for stem in keys]
    for name in [name for name, kind in names.items() if kind == "folder"]:
        if not rules.subdirs:
            stray.append(f"{name}/ (a folder)")
            continue
        with OpenFolder(name, folder) as inner:
            more, more_stray = _collect(inner, f"{key}{rules.separator or '/'}{name}", rules._replace(subdirs=False))
        made += more
        stray += [f"{name}/{left}" for left in more_stray]
    made_keys: list[str] = [sample["__key__"] for sample in made]
    if len(set(made_keys)) < len(made_keys):
        twice = next(each for each in made_keys if made_keys.count(each) > 1)
        raise ValueError(f"two samples that the command made have the same key {printable(twice)!r}")
    return made, stray


def _one_key(key: str, own: str, original: str, base: str) -> str:
    """Choose from ``__key__`` and ``BASE.__key__`` the one that the command has changed."""
    if original not in (key, own) and key != own:
        raise ValueError(
            f"the command left two keys: {printable(key)!r} in __key__, and {printable(own)!r} in {base}.__key__"
        )
    return key if own == original else own


def _read_key(folder: OpenFolder, name: str, original: str) -> str:
    """Return the key in a file, without one newline at its end."""
    raw = _read_file(folder, name, Rules(large=PIECE))
    if isinstance(raw, FieldFile):
        raise ValueError(f"the command left a {name} of {len(raw)} bytes")
    if raw == original.encode("utf-8", "surrogateescape"):
        return original
    key = raw.decode("utf-8", "surrogateescape").removesuffix("\n")
    if not key:
        raise ValueError(f"the command left an empty {name}")
    return key


def _read_link(folder: OpenFolder, name: str, rules: Rules) -> bytes | FieldFile | None:
    """Return the file that a link leads to, or None."""
    try:
        return _read_file(folder, name, rules)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise


def _read_file(folder: OpenFolder, name: str, rules: Rules) -> bytes | FieldFile:
    """Return the content of a file; large content stays in the file, even if that is deleted."""
    file, size = folder.open(name)
    try:
        if size > rules.large:
            content = FieldFile.opened(os.dup(file), name)
            # By another of its names, the next command may write to it before it is read.
            is_shared = os.fstat(file).st_nlink > 1
            return FieldFile.keep(content.pieces(), rules.folder, url=name) if is_shared else content
        held = os.read(file, size)
        # Still growing in the hands of something in the background.
        while len(held) < size and (more := os.read(file, size - len(held))):
            held += more
        return held
    finally:
        os.close(file)


def _remove_run(folder: str) -> None:
    """Remove a run's folder, its lock last, so that an interrupted removal can be resumed.

    The lock stays as long as a mount point does: a later run removes the folder when that is
    unmounted.
    """
    left = {_LOCK}
    with suppress(OSError):
        if remove_if_empty(folder):
            os.chmod(folder, 0o700)
            for name in os.listdir(folder):
                if name != _LOCK:
                    remove_folder(os.path.join(folder, name))
            left.update(os.listdir(folder))
    if left == {_LOCK}:
        remove_folder(folder)
