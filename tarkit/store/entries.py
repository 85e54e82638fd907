"""What is at a local path or URL: an entry, an identity, a folder's entries, the matches of a
pattern; removing it.

All of these raise MissingInputError where nothing is (``glob`` finds nothing then); StreamError and
TemporaryStreamError where the place cannot be asked; UsageError and MissingExtraError for a URL of
which no place is known, or that is at one which cannot do this, such as a command.
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
    """What is there."""
    found: Entry = function_of(url, "stat")(url)
    return found


def pinned(url: str) -> str:
    """The URL or pattern, with the version in it that is there now if its place has such: of hf://,
    the commit.
    """
    pin = None if "://" not in url or is_chain(url) else _pin_of(scheme_of(url))
    return url if pin is None else str(pin(url))


@functools.cache
def _pin_of(scheme: str) -> Callable[..., Any] | None:
    """Once for each scheme, as each name of a list is looked at."""
    return offered(f"{scheme}://", "pinned")


def exists(url: str) -> bool:
    """Whether something is there."""
    try:
        stat(url)
    except MissingInputError:
        return False
    return True


def identify(url: str) -> Identity:
    """Which content is there right now, without reading it.

    A local folder has none (StreamError).
    """
    found: Identity = function_of(url, "identify")(url)
    return found


def check_same(url: str, identity: Identity) -> None:
    """Refuse to go on if what is there is not what had this identity.

    Raises:
        TemporaryStreamError: it was replaced.
    """
    if identify(url) != identity:
        raise TemporaryStreamError("was replaced while it was read", url=display_name(url))


def entries(url: str, recursive: bool = False) -> Iterator[Entry]:
    """What is in a folder, by name; with ``recursive``, the files below it at any depth.

    Of a file: itself.
    """
    itself = stat(url)
    if itself.is_folder:
        yield from function_of(url, "entries")(url, recursive)
    else:
        yield itself


def glob(url: str) -> list[str]:
    """The paths or URLs that a pattern (``*``, ``?``, ``[``, ``**`` for any depth) matches, sorted."""
    found: list[str] = function_of(url, "glob")(url)
    return found


def remove(url: str, recursive: bool = False) -> None:
    """Remove a file; with ``recursive``, a folder and all that is in it.

    Without it, a folder is a UsageError.
    """
    name = display_name(url)
    remove_one = function_of(url, "remove")
    path = local_path(url)
    is_folder = not (path is not None and os.path.islink(path)) and stat(url).is_folder
    if is_folder and not recursive:
        raise UsageError(f"{name} is a folder; say -r to remove it with all that is in it")
    remove_one(url, name, is_folder)


def remove_left_behind(folder: str, *, older_than: float, now: float) -> Iterator[str]:
    """Remove what killed programs left in a folder under temporary names.

    The names, as they may be shown. A local file that a living program still writes is locked, and
    stays. Elsewhere a dead writer looks like a slow one, so only what is older than ``older_than``
    seconds at the time ``now`` goes; on S3 that is also parts of uploads that were never finished.
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
