"""Which object a URL names right now, without reading it."""

from __future__ import annotations

import hashlib
import json
import os
from typing import NamedTuple

from tarkit.errors import MissingInputError, StreamError, UsageError
from tarkit.store.hdfs.files import connect, is_hdfs
from tarkit.store.http.read import head
from tarkit.store.objects.filesystem import look
from tarkit.store.objects.read import marks_of
from tarkit.store.sources import display_name, local_path, raise_os_error


class Identity(NamedTuple):
    """size: in bytes, or None if the store does not say. tag: changes when the content does (ETag,
    generation, checksum, time of change), or None."""

    size: int | None
    tag: str | None


def identify(url: str) -> Identity:
    """Size and tag of what is at a local path or URL.

    Raises:
        MissingInputError: nothing is there. StreamError, TemporaryStreamError: it can not be asked.
        UsageError: a command or standard input, which have no identity.
    """
    if url == "-" or url.startswith("pipe:"):
        raise UsageError(f"{display_name(url)}: a stream has no name for its output, and can not be looked at twice")
    path = local_path(url)
    if path is not None:
        return _of_file(path)
    if url.lower().startswith(("http://", "https://")):
        return Identity(*head(url, display_name(url)))
    if is_hdfs(url):
        return _of_hdfs(url)
    info = look(url)
    marks = marks_of(info)
    size = info.get("size")
    text = json.dumps(marks, sort_keys=True, default=str)
    return Identity(size if isinstance(size, int) else None, hashlib.sha256(text.encode()).hexdigest()[:32])


def _of_hdfs(url: str) -> Identity:
    cluster, path = connect(url)
    status = cluster.status(path)
    if status is None:
        raise MissingInputError("there is no such file", url=display_name(url))
    return Identity(status.size, f"inode-{status.number}-mtime-{status.mtime}")


def _of_file(path: str) -> Identity:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise MissingInputError("there is no such file", url=path) from None
    except OSError as error:
        raise_os_error(error, path)
    if os.path.isdir(path):
        raise StreamError("is a directory, not a shard", url=path)
    return Identity(status.st_size, f"mtime-{status.st_mtime_ns}")
