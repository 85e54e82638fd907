"""Redact messages of libraries, servers and commands before they are shown."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import urllib.parse

from tarkit.errors import printable
from tarkit.names.redaction import redact, redact_text, secrets_in

_SHORTEST = 3
_LONG = 8
# Separators of the words of a URL, and of a command, in which a path is one word.
_SEPARATORS = re.compile(r"[\s:/?#@&;=]+"), re.compile(r"[\s'\"`$=;|&()<>{}?:#@,]+")


def without_secrets(text: str, url: str) -> str:
    """Return a foreign message on one line, without the secrets of ``url`` and of other URLs.

    For a ``pipe:`` command, all its words of three characters or more are secrets, except for names
    of programs and files.
    """
    is_command = url.startswith("pipe:")
    text = text.replace(url, redact(url))
    for secret in sorted(_secret_words(url, is_command), key=len, reverse=True):
        # A short word of a command may be a part of many longer words.
        alone = is_command and len(secret) < _LONG
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)" if alone else re.escape(secret), "…", text)
    return printable(redact_text(text).strip())


def _secret_words(url: str, is_command: bool) -> set[str]:
    words: set[str] = set()
    for part in secrets_in(url):
        for word in _shell_words(part.strip()) if is_command else (part, urllib.parse.unquote_plus(part)):
            words.update((word, *re.split(r"\s*[:=]\s*", word), *_SEPARATORS[is_command].split(word)))
    words |= {urllib.parse.quote(word, safe="") for word in words}
    return {word for word in words if len(word) >= _SHORTEST and not (is_command and _is_known(word))}


def _shell_words(command: str) -> list[str]:
    """Return a command, and its words without their quotes."""
    try:
        return [command, *shlex.split(command)]
    except ValueError:
        # A quote is not closed.
        return [command]


def _is_known(word: str) -> bool:
    """Return True if a word is the name of a program or a file of this machine."""
    folder = os.path.dirname(word)
    return shutil.which(word) is not None or os.path.exists(word) or (folder != "/" and os.path.isdir(folder))
