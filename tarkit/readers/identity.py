"""Identity of a file's content when its records were counted, as text for other processes.

A store has a version of each object. A local file has a time of change, which ``touch`` and a copy
change, too. So a digest is kept with it: of the whole file if it is small or its records are
counted by reading all of it (equal digests prove equal content), else of a sample; a decision by
such a sample alone is logged.
"""

from __future__ import annotations

import json
import logging
from hashlib import blake2b
from typing import NamedTuple

from tarkit.errors import ReplacedError, StreamError, quoted
from tarkit.names.url import display_name, local_path
from tarkit.store.entries import identify

_log = logging.getLogger(__name__)
COUNT_ANEW = "count its records anew (tarkit serve: with another --state)"
"""Advice about a source whose content changed since a service counted its records."""
WHOLE = 8 << 20
"""Size in bytes up to which a local file's digest is always of the whole file."""
SAMPLE, _BLOCK = 1 << 20, 1 << 14
"""Size in bytes of a sample of a larger file, and of each block of it. The blocks are spread
evenly, from its first byte to its last one.
"""
_ALL = "all"


class Content(NamedTuple):
    """The known facts about a file's content.

    Attributes:
        size: size in bytes.
        tag: changes with the content; for a local file, it may also change without it.
        digest: digest of a local file. None: not known, so not compared.
    """

    size: int | None
    tag: str | None
    digest: str | None = None

    def __str__(self) -> str:
        return json.dumps(self)

    def is_same(self, other: Content) -> bool:
        """Return True unless the facts show different contents."""
        if None not in (self.size, other.size) and self.size != other.size:
            return False
        if self.tag == other.tag or None in (self.tag, other.tag):
            return True
        return self.digest is not None and self.digest == other.digest

    def replaced(self, url: str, found: Content, when: str, hint: str | None) -> ReplacedError:
        """Return the error for a source whose content has changed.

        Args:
            when: "since …".
        """
        differs = "its content differs"
        if None in (self.size, found.size):
            differs = f"it is {quoted(str(found.tag))}, not {quoted(str(self.tag))}"
        elif self.size != found.size:
            differs = f"it has {found.size} bytes, not {self.size}"
        return ReplacedError(f"was replaced {when}: {differs}", url=display_name(url), hint=hint)


def current_content(url: str, whole: bool = False) -> Content:
    """Return the current facts about a file.

    Call it before the records are counted, so that the facts are never those of a later file.

    Args:
        whole: compute the digest of the whole file, even of a large one.
    """
    size, tag = identify(url)
    path = local_path(url)
    return Content(size, tag, None if size is None or path is None else _digest(path, size, whole or size <= WHOLE))


def _digest(path: str, size: int, whole: bool) -> str:
    found = blake2b(digest_size=16)
    try:
        with open(path, "rb", buffering=0) as file:
            for start in () if whole else range(SAMPLE // _BLOCK - 1):
                file.seek((size - _BLOCK) * start // (SAMPLE // _BLOCK - 1))
                found.update(file.read(_BLOCK))
            file.seek(0 if whole else size - _BLOCK)
            while data := file.read(1 << 20):
                found.update(data)
    except OSError as error:
        raise StreamError(f"cannot be read: {error.strerror}", url=path) from error
    return f"{_ALL if whole else 'sample'} {found.hexdigest()}"


def parsed_content(text: str) -> Content:
    """Parse an identity; one that a user's reader made is a tag."""
    try:
        size, tag, digest = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return Content(None, text or None)
    # A reader's own text may be a list of three, too.
    is_ours = type(size) in (int, type(None)) and all(isinstance(each, str | None) for each in (tag, digest))
    return Content(size, tag, digest) if is_ours else Content(None, text)


def same_content(one: str, other: str) -> bool:
    """Return True if two identities may be of the same content; "" matches any."""
    return one == other or parsed_content(one).is_same(parsed_content(other))


def checked_content(url: str, known: Content, when: str, hint: str | None = None) -> Content:
    """Return the current facts about a file, which must agree with the known ones.

    Args:
        when: "since …", and hint: for the message.

    Raises:
        ReplacedError: the content of the file has changed.
    """
    size, tag = identify(url)
    if (size, tag) == known[:2]:
        return known
    is_whole = known.digest is not None and known.digest.startswith(_ALL)
    found = current_content(url, is_whole) if known.digest and size == known.size else Content(size, tag)
    if not known.is_same(found):
        raise known.replaced(url, found, when, hint)
    if known.digest and not is_whole:
        _log.warning(
            "%s: its time of change is not that of when its records were counted, and its size and a sample of %d "
            "bytes are the same: it is taken for the same file",
            display_name(url),
            SAMPLE,
        )
    return found
