"""Rules of Kubernetes for names, and valid names made of any text.

Each check returns None, or a phrase with the problem and the rule. The rules are those of
k8s.io/apimachinery (pkg/util/validation, which follows RFC 1123 and RFC 1035).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from tarkit.errors import printable

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_ENDS = "with a letter or digit at both ends"


def _check(form: str, longest: int | None, rule: str) -> Callable[[str], str | None]:
    """Return a check of the form and length of a text."""
    compiled = re.compile(form)

    def check(text: str) -> str | None:
        if not text:
            return "must not be empty"
        if longest is not None and len(text) > longest:
            return f"{_shown(text)} has {len(text)} characters; at most {longest} are allowed"
        return None if compiled.fullmatch(text) else f"{_shown(text)} may have {rule}"

    return check


dns_label = _check(_LABEL.pattern, LABEL_LENGTH, f"only a-z, 0-9 and -, {_ENDS}")
"""Check names of containers, volumes, and Jobs with their pods' index: ``[a-z0-9-]``, 63
characters.
"""

dns_label_1035 = _check(
    "[a-z](?:[-a-z0-9]*[a-z0-9])?", LABEL_LENGTH, "only a-z, 0-9 and -, a letter first, a letter or digit last"
)
"""Check names of services before Kubernetes 1.36 (KEP 5311): a DNS label that begins with a letter.
"""

dns_subdomain = _check(
    rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*",
    SUBDOMAIN_LENGTH,
    f"only a-z, 0-9, - and ., {_ENDS} and around each dot",
)
"""Check names of most objects: DNS labels with dots between them, 253 characters."""

_label_value = _check(
    "[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", LABEL_LENGTH, f"only letters, digits, -, _ and ., {_ENDS}"
)
_config_key = _check("[-._a-zA-Z0-9]+", SUBDOMAIN_LENGTH, "only letters, digits, -, _ and . (no /)")


def label_value(text: str) -> str | None:
    """Check the value of a label: empty, or 63 of letters, digits, ``-_.``."""
    return _label_value(text) if text else None


def config_key(text: str) -> str | None:
    """Check a key of a ConfigMap or Secret: up to 253 letters, digits, ``-_.``."""
    if text == "." or text.startswith(".."):
        return f"{_shown(text)} must not be . nor begin with .."
    return _config_key(text)


def safe_label(text: str) -> str:
    """Return a DNS label made from any text; the same for the same text.

    A text that is a DNS label is returned as it is. Others are made lower case, with ``-`` for each
    character that is not allowed; if more was lost than case and such characters at the ends, six
    digits of a hash are added, which keep different texts different. A DNS label is a valid label
    value, too.
    """
    if len(text) <= LABEL_LENGTH and _LABEL.fullmatch(text):
        return text
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain == text.lower().strip("-_.") and 0 < len(plain) <= LABEL_LENGTH:
        return plain
    digits = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    plain = plain[: LABEL_LENGTH - 7].rstrip("-")
    return f"{plain}-{digits}" if plain else f"x-{digits}"


def index_name_budget(completions: int) -> int:
    """Return the length of the longest valid name of an Indexed Job.

    The name, ``-`` and the last index are one DNS label.
    """
    return LABEL_LENGTH - 1 - len(str(max(completions - 1, 0)))


def _shown(text: str) -> str:
    return repr(printable(text)).replace("\\\\", "\\")
