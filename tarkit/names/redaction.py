"""Redact URLs and commands: take out every part that can hold a secret.

No pattern describes a secret: all text in a place for secrets is one. Where a URL can be read in
two ways (in ``s3://KEY:a/b@bucket/x``, ``a/b`` is a password, or a port and a folder), the secrets
of both are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

# http and webhdfs with any number of slashes, or of backslashes as in JSON, where a user or query
# follows; every other scheme where a user with a password does. file:///a:b@c is a path.
_MISTYPED = (
    r"(?<![A-Za-z0-9+.\-])(?:(?:https?|s?webhdfs)(?::[/\\]*|[/\\]{2,})(?=[^\s@?#;]{0,999}[@?#;])"
    r"|(?!(?:file|local):)[A-Za-z][A-Za-z0-9+.\-]{1,39}:[/\\]+(?=[^/\\@\s:]{0,999}:[^\s@]{0,999}@))"
)
# Texts, since a program that only prints its help needs none of them compiled.
_BEGIN = rf"(?i){_MISTYPED}|://"
# One of them is in each text that has a scheme, or a place for a secret.
_MARK = r"[:@?#;]"
_SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*\Z"
_LONGEST_SCHEME = 40
_MOST_LINKS = 100
_NEXT_LINK = r"::(?=[A-Za-z][A-Za-z0-9+.\-]*(?:://|::))"
_NEXT_URL = rf"{_NEXT_LINK}|(?<![A-Za-z0-9+.\-])(?=[A-Za-z][A-Za-z0-9+.\-]{{0,39}}://)"
_IPV6_HOST = r"\[[0-9A-Fa-f:.]+(?:%\w+)?\](?::[0-9]*)?"
_PARAMETER = r"[A-Za-z][\w.\-]{0,39}"
_PROGRAM = r"[\w./+-]+"
_URL_IN_TEXT = rf"(?i)(?:[A-Za-z][A-Za-z0-9+.\-]{{0,39}}://|{_MISTYPED})[^\s'\"<>]+"
# Of a path of http, such as ;jsessionid=…
_PATH_PARAMETER = r"(;[\w.\-]+=)([^;/]+)"

Piece = tuple[str, str]
"""A part of a URL, and the text shown for it: the same text, unless it may be a secret."""


def redact(url: str) -> str:
    """Return a URL without user, password, query values and, for http, fragment.

    This holds for each link of fsspec's chains (``simplecache::s3://…``), and for the URL of an
    ``@LIST``. ``pipe:`` commands are cut to their first word, since tokens are often passed in
    their arguments; and to nothing, if that word may hold a secret itself (``TOKEN=… curl``). A
    mistyped URL, such as ``http:/user:password@host``, is redacted as well. Paths are returned as
    they are, as are keys of objects, in which ``@``, ``#`` and ``:`` are plain characters. Redacted
    text stays as it is.
    """
    if not re.search(_MARK, url):
        return url
    return "".join(shown for _, shown in _pieces(url))


def exposure(option: str, url: str) -> str:
    """Return a warning if a URL that goes into a manifest has a secret, or ""."""
    shown = redact(url)
    who = "everyone with access to the manifest or the job can read"
    return "" if shown == url else f"{option} {shown}: it has a password or a token, which {who}"


def redact_text(text: str, words: Iterable[str] = ()) -> str:
    """Redact the URLs in a text, and those of ``words`` that have a secret.

    Args:
        text: a sentence, such as a message.
        words: texts that may be in it, such as arguments of a program.
    """
    for word in words:
        for form in (word, word.partition("=")[2]):
            if (shown := redact(form)) != form:
                text = text.replace(form, shown)
    return re.sub(_URL_IN_TEXT, lambda match: redact(match[0]), text)


def secrets_in(url: str) -> list[str]:
    """List the parts that ``redact`` takes out of a URL or command."""
    return [text for text, shown in _pieces(url) if text and text != shown]


def _pieces(url: str) -> Iterator[Piece]:
    """Yield all parts of the URL, in order."""
    if url.startswith("@"):
        yield _plain("@")
        url = url[1:]
    if url.lstrip().startswith("pipe:"):
        yield from _command(url)
        return
    links = 0
    while begin := re.search(_BEGIN, url):
        links += 1
        if links > _MOST_LINKS:
            # The search for each link scans all of the text behind it.
            yield url, "…"
            return
        head = url[: begin.end()].rstrip(":/\\")
        scheme = re.search(_SCHEME, head[-_LONGEST_SCHEME:])
        yield _plain(url[: begin.end()])
        url = yield from _link(url[begin.end() :], scheme is not None and scheme[0].lower() in ("http", "https"))
    yield _plain(url)


def _plain(text: str) -> Piece:
    return text, text


def _command(url: str) -> Iterator[Piece]:
    start = url.index("pipe:") + len("pipe:")
    yield url[:start], "pipe:"
    words = url[start:].split(None, 1)
    if not words or not re.fullmatch(_PROGRAM, words[0]):
        yield url[start:], "…"
        return
    end = url.index(words[0], start) + len(words[0])
    yield url[start:end], words[0]
    if len(words) == 2:
        yield url[end:], " …"


def _link(rest: str, is_http: bool) -> Generator[Piece, None, str]:
    """Yield the parts of one link of a chain after its ``://``; return the text after it.

    Args:
        rest: the URL from there on.
        is_http: True if a ``#`` begins a fragment, which may be a token. In a key of an object it
            is a plain character.
    """
    link = re.search(_NEXT_LINK, rest)
    authority = rest[: link.start() if link else len(rest)].partition("/")[0]
    # A password may contain a "/", and even a "::".
    has_password = ":" in authority and not re.fullmatch(_IPV6_HOST, authority)
    user, at, _ = (rest if has_password else authority).rpartition("@")
    marks = "?#" if is_http else "?"
    if at:
        rest = rest[len(user + at) :]
        is_clear = len(user) < len(authority) and user != "…"
        if any(mark in user for mark in marks):
            # The "@" may also be in a query, where the text behind it is a secret.
            yield user + at, "…@"
            yield rest, "…"
            return ""
        yield user + at, "" if is_clear else "…@"
    # Also the next URL of a list of URLs, or a URL in a path.
    link = re.search(_NEXT_URL, rest)
    mark = re.search(f"[{marks}]", rest)
    if mark is None or (link and link.start() < mark.start()):
        end = link.end() if link else len(rest)
        yield from _path(rest[:end], is_http)
        return rest[end:]
    yield from _path(rest[: mark.end()], is_http)
    query, hash_, fragment = rest[mark.start() :].partition("#") if is_http else (rest[mark.start() :], "", "")
    if query:
        yield from _query(query[1:])
    if query and hash_:
        yield _plain(hash_)
    if hash_:
        yield fragment, "…"
    return ""


def _path(path: str, is_http: bool) -> Iterator[Piece]:
    """Keep a path, but redact the values of parameters in a path of http."""
    for number, part in enumerate(re.split(_PATH_PARAMETER, path) if is_http else [path]):
        yield part, "…" if number % 3 == 2 else part


def _query(query: str) -> Iterator[Piece]:
    """Keep the names of a query and redact the values.

    A part without a plain name and a value may be a token alone. A ``;`` may be a part of a value,
    even if some servers take it for a separator.
    """
    for part in re.split("(&)", query):
        name, _, value = part.partition("=")
        if part == "&":
            yield _plain(part)
        elif value[:1] not in ("", "=", ";") and re.fullmatch(_PARAMETER, name):
            yield _plain(f"{name}=")
            yield value, "…"
        else:
            yield part, "…"
