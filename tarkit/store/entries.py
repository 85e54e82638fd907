"""Look up, list, match and remove files at a local path or URL.

All of these functions raise MissingInputError for a file that does not exist (``glob`` returns no
match then); StreamError and TemporaryStreamError if the place does not answer; UsageError and
MissingExtraError for a URL of an unknown place, or of a place that cannot do this, such as a
command.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.names.url import display_name, is_chain, local_path, scheme_of
from tarkit.store.place import Entry, Identity
from tarkit.store.registry import function_of, offered
from tarkit.store.temporary import is_temporary_name, remove_if_dead

__all__ = [
    "Entry",
    "Identity",
    "check_same",
    "entries",
    "glob",
    "identify",
    "pinned",
    "remove",
    "remove_left_behind",
    "stat",
]


def stat(url: str) -> Entry:
    """Return the entry of a file or folder."""
    found: Entry = function_of(url, "stat")(url)
    return found


def pinned(url: str) -> str:
    """Add the current version to a URL or pattern, if its place has versions.

    For hf://, that is the commit.
    """
    pin = None if "://" not in url or is_chain(url) else _pin_of(scheme_of(url))
    return url if pin is None else str(pin(url))


@functools.cache
def _pin_of(scheme: str) -> Callable[..., Any] | None:
    """Return the function of a scheme that pins versions; cached, as lists have many names."""
    return offered(f"{scheme}://", "pinned")


def exists(url: str) -> bool:
    """Return True if a file or folder exists."""
    try:
        stat(url)
    except MissingInputError:
        return False
    return True


def identify(url: str) -> Identity:
    """Return the identity of the current content, without reading it.

    A local folder has none (StreamError).
    """
    found: Identity = function_of(url, "identify")(url)
    return found


def check_same(url: str, identity: Identity) -> None:
    """Check that a file still has this identity.

    Raises:
        TemporaryStreamError: the file was replaced.
    """
    if identify(url) != identity:
        raise TemporaryStreamError("was replaced while it was read", url=display_name(url))


def entries(url: str, recursive: bool = False) -> Iterator[Entry]:
    """Yield the entries of a folder, by name; with ``recursive``, the files below it at any depth.

    For a file, yield its own entry.
    """
    itself = stat(url)
    if itself.is_folder:
        yield from function_of(url, "entries")(url, recursive)
    else:
        yield itself


def glob(url: str) -> list[str]:
    """Return the paths or URLs that match a pattern (``*``, ``?``, ``[``, ``**``), sorted.

    ``**`` matches any depth.
    """
    found: list[str] = function_of(url, "glob")(url)
    return found


def remove(url: str, recursive: bool = False, *, dry_run: bool = False) -> bool:
    """Remove a file; with ``recursive``, a folder and all files in it.

    Without it, a folder is a UsageError.

    Args:
        dry_run: check everything, but remove nothing.

    Returns:
        True if it is a folder.
    """
    name = display_name(url)
    remove_one = function_of(url, "remove")
    path = local_path(url)
    is_folder = not (path is not None and os.path.islink(path)) and stat(url).is_folder
    if is_folder and not recursive:
        raise UsageError(f"{name} is a folder; pass -r to remove it with all files in it")
    if not dry_run:
        remove_one(url, name, is_folder)
    return is_folder


def remove_left_behind(folder: str, *, older_than: float, now: float) -> Iterator[str]:
    """Remove the temporary files that killed programs left in a folder; yield their names.

    The names have no secrets in them. A local file that a living program still writes is locked,
    and stays. On other stores a dead writer cannot be distinguished from a slow one, so only files
    that are older than ``older_than`` seconds at the time ``now`` are removed; on S3 also the parts
    of uploads that were never finished.

    Args:
        folder: path or URL of the folder.
        older_than: age in seconds.
        now: time in seconds since 1970.
    """
    try:
        left = [entry for entry in entries(folder) if not entry.is_folder and is_temporary_name(entry.name)]
    except MissingInputError:
        # In an object store a folder without objects does not exist, but may have unfinished
        # uploads.
        if local_path(folder) is not None:
            raise
        left = []
    for entry in left:
        path = local_path(entry.url)
        if path is not None:
            try:
                removed = remove_if_dead(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StreamError(f"cannot be removed: {(error.strerror or str(error)).lower()}", url=path) from None
        elif removed := entry.mtime is not None and now - entry.mtime >= older_than:
            remove(entry.url)
        if removed:
            yield display_name(entry.url)
    remove_unfinished = offered(folder, "remove_unfinished")
    if remove_unfinished is not None:
        for url in remove_unfinished(f"{folder.rstrip('/')}/", older_than, now):
            yield f"{display_name(url)} (an unfinished upload)"
