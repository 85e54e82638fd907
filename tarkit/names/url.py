"""Parse URLs: scheme, local path, query, base name.

A URL is ``SCHEME://…``, fsspec's chain of such URLs (``simplecache::s3://…``), ``pipe:COMMAND``, or
``-`` for standard input or output; every other text is a path.
"""

from __future__ import annotations

import os
import re
import urllib.parse

from tarkit.errors import UsageError, printable
from tarkit.names.redaction import redact

_URL = re.compile(r"((?:[A-Za-z0-9+.\-]+::)*)([A-Za-z][A-Za-z0-9+.\-]*)://")
display_name = redact
"""Return a URL without the secrets in it, for messages."""
_LOCAL = ("file", "local")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_WEBHDFS_OPTIONS = ("base", "delegation", "doas", "user.name")


def scheme_of(url: str) -> str:
    """Return the scheme in lower case; for a chain, the scheme of its last link.

    ``pipe`` for a command, "" for a path or ``-``.
    """
    if url.startswith("pipe:"):
        return "pipe"
    match = _url(url)
    return match[2].lower() if match else ""


def is_chain(url: str) -> bool:
    """Return True if this is fsspec's chain of URLs, ``simplecache::s3://…``."""
    match = _url(url)
    return match is not None and bool(match[1])


def is_url(text: str) -> bool:
    """Return True if this is ``SCHEME://…`` or a chain of such URLs."""
    return _url(text) is not None


def _url(text: str) -> re.Match[str] | None:
    return _URL.match(text) if "://" in text else None


def is_stream(url: str) -> bool:
    """Return True if this is standard input or output, or a command."""
    return url == "-" or url.startswith("pipe:")


def local_path(url: str) -> str | None:
    """Return the path of a path, file:// or local:// URL; None for every other URL.

    In file:// URLs %XX stands for a byte, unless a file with this literal name exists.

    Raises:
        UsageError: a file:// URL has a host, or a path has a zero byte.
    """
    if not is_url(url):
        if "\0" in url:
            raise UsageError(f"{printable(url)!r} is not a path: it has a zero byte")
        return url
    if scheme_of(url) not in _LOCAL or is_chain(url):
        return None
    rest = url.partition("://")[2]
    if rest.startswith("localhost/"):
        rest = rest[len("localhost") :]
    if not rest.startswith("/"):
        raise UsageError(f"{printable(url)!r} names a host; a local file is file:///path, with three slashes")
    if "%" in rest and not os.path.lexists(rest):
        rest = os.fsdecode(urllib.parse.unquote_to_bytes(os.fsencode(rest)))
    return rest


def split_query(url: str) -> tuple[str, str]:
    """Split a URL into (URL without query and fragment, the query with its ``?`` or ``#``).

    The second text is "" for schemes without queries. For webhdfs, the text after the last ``?`` is
    a query only if all of its options are tarkit's; paths may have a ``?``.
    """
    if "://" not in url:  # a path: lists of shards have many
        return url, ""
    scheme = "" if is_chain(url) else scheme_of(url)
    if scheme in ("http", "https"):
        end = min((at for mark in "?#" if (at := url.find(mark)) >= 0), default=len(url))
        return url[:end], url[end:]
    if scheme in ("webhdfs", "swebhdfs"):
        head, _, query = url.rpartition("?")
        if head and query and all(part.partition("=")[0] in _WEBHDFS_OPTIONS for part in query.split("&")):
            return head, f"?{query}"
    return url, ""


def join(folder: str, name: str) -> str:
    """Join a folder, which is a path or a URL, and a name in it.

    In a file:// URL, %XX in a name stands for another character: the result is a path then.
    """
    if (path := local_path(folder)) is not None:
        return os.path.join(path if "%" in name else folder, name)
    head, query = split_query(folder)
    return f"{head.rstrip('/')}/{name}{query}"


def base_name(url: str) -> str:
    """Return the last part of the path; "" for a bucket or server alone."""
    path = local_path(url)
    if path is not None:
        return os.path.basename(os.path.abspath(path))
    return split_query(url)[0].partition("://")[2].rstrip("/").partition("/")[2].rpartition("/")[2]


def name_of_shard(url: str) -> str:
    """Return a shard's name without folder and query.

    It is the same for a copy at another place, or under another signature.
    """
    return url.partition("?")[0].rpartition("/")[2]


def reads_once(url: str) -> bool:
    """Return True if a URL can be read only once: a stream, or a file such as a named pipe."""
    if is_stream(url):
        return True
    path = local_path(url)
    return path is not None and os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def one_name(url: str) -> str:
    """Return the same text for each path of a local file; for a URL, the URL without query."""
    path = local_path(url)
    return split_query(url)[0] if path is None else os.path.realpath(path)


def http_parts(url: str) -> urllib.parse.SplitResult:
    """Split an http or https URL for which a request can be made.

    Raises:
        ValueError: the URL is not valid; the message has none of its text.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        parts.port  # noqa: B018 (parsed when it is asked for)
    except ValueError:
        raise ValueError("its host or port is not valid") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("it begins with neither http:// nor https://")
    if not host or b" " in host:
        raise ValueError("it has no valid host")
    if _CONTROL.search(url) or not re.fullmatch("[!-~]*", parts.path + parts.query):
        raise ValueError("it has characters that must be percent-encoded")
    return parts


def server_of(url: str) -> str:
    """Return host and port, as they are in the URL."""
    return urllib.parse.urlsplit(url).netloc.rpartition("@")[2]


def name_of_file(file: object) -> str:
    """Return the name of a file object of the caller for messages, without secrets."""
    label = getattr(file, "name", None)
    return display_name(label) if isinstance(label, str) else "<stream>"
