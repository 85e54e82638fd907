"""Which content a file had when its records were counted, as text that another process compares with what it finds.

A store has a version of each object. A local file has a time of change, which ``touch`` and a copy change too, so a
digest is kept with it: equal digests prove equal content, of files above 1 MiB as far as a sample shows."""

from __future__ import annotations

import json
import logging
from hashlib import blake2b
from typing import NamedTuple

from tarkit.errors import ReplacedError, quoted
from tarkit.store.entries import identify
from tarkit.store.read import read_range
from tarkit.store.url import display_name, local_path

_log = logging.getLogger(__name__)
COUNT_ANEW = "count its records anew (tarkit serve: with another --state)"
"""What to do about a source that is not the one whose records a service counted."""
SAMPLE = 1 << 20
"""Bytes of a local file that its digest is of, at most."""
_BLOCK = 1 << 14
"""Bytes of a block of the sample. The blocks are spread evenly, from the first to the last byte."""


class Content(NamedTuple):
    """What is known of a file. size: bytes. tag: changes with the content, and of a local file also without. digest: of
    a local file. None: not known, so not compared. ``str()`` of it is the text."""

    size: int | None
    tag: str | None
    digest: str | None = None

    def __str__(self) -> str:
        return json.dumps(self)

    def is_same(self, other: Content) -> bool:
        """Whether nothing shows that the two are of different contents."""
        if None not in (self.size, other.size) and self.size != other.size:
            return False
        if self.tag == other.tag or None in (self.tag, other.tag):
            return True
        return self.digest is not None and self.digest == other.digest

    def replaced(self, url: str, found: Content, when: str, hint: str | None) -> ReplacedError:
        """The error of a source that has another content now. when: "since …"."""
        differs = "its content differs"
        if self.size != found.size:
            differs = f"it has {found.size} bytes, not {self.size}"
        elif self.size is None:
            differs = f"it is {quoted(str(found.tag))}, not {quoted(str(self.tag))}"
        return ReplacedError(f"was replaced {when}: {differs}", url=display_name(url), hint=hint)


def current_content(url: str) -> Content:
    """What a file is now. Taken before its records are counted, it is never that of a later file."""
    size, tag = identify(url)
    return Content(size, tag, None if size is None or local_path(url) is None else _digest(url, size))


def _digest(url: str, size: int) -> str:
    length, last = (size, 0) if size <= SAMPLE else (_BLOCK, SAMPLE // _BLOCK - 1)
    found = blake2b(digest_size=16)
    for number in range(last + 1):
        start = (size - length) * number // max(1, last)
        found.update(read_range(url, start, start + length, size=size))
    return found.hexdigest()


def parsed_content(text: str) -> Content:
    """What a text is of; one that a reader of the user's own made is a tag."""
    try:
        size, tag, digest = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return Content(None, text or None)
    return Content(size, tag, digest)


def same_content(one: str, other: str) -> bool:
    """Whether two identities may be of the same content; "" is not known."""
    return one == other or parsed_content(one).is_same(parsed_content(other))


def checked_content(url: str, known: Content, when: str, hint: str | None = None) -> Content:
    """What a file is now, which must be what was known of it. when: "since …", and hint: for the message.

    Raises:
        ReplacedError: it has another content.
    """
    size, tag = identify(url)
    if (size, tag) == known[:2]:
        return known
    found = current_content(url) if known.digest else Content(size, tag)
    if not known.is_same(found):
        raise known.replaced(url, found, when, hint)
    if found.tag != known.tag and (found.size or 0) > SAMPLE:
        _log.warning(
            "%s: its time of change is not that of when its records were counted, and its size and a sample of %d "
            "bytes are the same: it is taken for the same file",
            display_name(url),
            SAMPLE,
        )
    return found
