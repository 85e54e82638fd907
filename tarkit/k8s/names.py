"""What may be called how in Kubernetes, and how to make a valid name of any text.

Each check returns None, or a phrase that says what is wrong and what would be right. The rules are
those of k8s.io/apimachinery (pkg/util/validation, which follows RFC 1123 and RFC 1035).
"""

from __future__ import annotations

import hashlib
import re
from functools import cache

from tarkit.errors import printable

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Of taints."""

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_ENV_RELAXED = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PORT = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


def dns_label(text: str) -> str | None:
    """Of containers, volumes, and Jobs with their pods' index: ``[a-z0-9-]``, 63 characters."""
    return _checked(text, _LABEL, LABEL_LENGTH, "only a-z, 0-9 and -, with a letter or digit at both ends")


def service_name(text: str, kube_version: str = "1.33") -> str | None:
    """Of services: as :func:`dns_label`, and before 1.36 a letter first.

    Source: KEP 5311, on by default since 1.36, stable in 1.37.
    """
    if version(kube_version) >= (1, 36):
        return dns_label(text)
    return _checked(text, _LABEL_1035, LABEL_LENGTH, "only a-z, 0-9 and -, a letter first, a letter or digit last")


def dns_subdomain(text: str) -> str | None:
    """Of most objects: DNS labels with dots between them, 253 characters."""
    rule = "only a-z, 0-9, - and ., with a letter or digit at both ends and around each dot"
    return _checked(text, _SUBDOMAIN, SUBDOMAIN_LENGTH, rule)


def label_key(text: str) -> str | None:
    """Of labels and annotations: ``name`` or ``some.domain/name``."""
    prefix, mark, name = text.rpartition("/")
    if mark and (wrong := dns_subdomain(prefix)):
        return f"what is before the / must be a domain: {wrong}"
    rule = "only letters, digits, -, _ and . (and a domain/ before them), with a letter or digit at both ends"
    return _checked(name, _QUALIFIED, LABEL_LENGTH, rule)


def label_value(text: str) -> str | None:
    """Of labels: empty, or 63 of letters, digits, ``-_.``."""
    if not text:
        return None
    return _checked(
        text, _QUALIFIED, LABEL_LENGTH, "only letters, digits, -, _ and ., with a letter or digit at both ends"
    )


def env_name(text: str, kube_version: str = "1.33") -> str | None:
    """Of environment variables: printable ASCII but = since 1.32, before it letters, digits, ``-_.``.

    Source: KEP 4369, on by default since 1.32, stable in 1.34.
    """
    if version(kube_version) >= (1, 32):
        return _checked(text, _ENV_RELAXED, None, "only printable ASCII without =")
    rule = "only letters, digits, -, _ and ., and no digit first"
    return _checked(text, _ENV, None, rule)


def config_key(text: str) -> str | None:
    """Of entries of ConfigMaps and Secrets, which become files: letters, digits, ``-_.``, 253 characters."""
    if text in (".", "..") or text.startswith(".."):
        return f"{_shown(text)} must not be . nor begin with .."
    return _checked(text, _CONFIG_KEY, SUBDOMAIN_LENGTH, "only letters, digits, -, _ and . (no /)")


def port_name(text: str) -> str | None:
    """Of containers' ports: 15 of ``[a-z0-9-]`` with a letter among them."""
    if text.isdigit():
        return f"{_shown(text)} is a number; a port's name has a letter in it"
    return _checked(text, _PORT, 15, "only a-z, 0-9 and single -, with a letter or digit at both ends")


def safe_label(text: str) -> str:
    """A DNS label, hence a valid label value too, made of any text; the same for the same text.

    A text that is one already is returned as it is. Others are made lower case, what may not be in them becomes
    ``-``; if more than case and such characters at the ends was lost, six digits of a hash keep different texts
    different.
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
    """How long the name of an Indexed Job may be: name, ``-`` and the last index are one DNS label."""
    return LABEL_LENGTH - 1 - len(str(max(completions - 1, 0)))


@cache
def version(text: str) -> tuple[int, int]:
    """``1.33``, ``v1.33.2`` or ``1.33+`` as numbers that compare; (0, 0) if it is no version."""
    match = re.match(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _checked(text: str, form: re.Pattern[str], longest: int | None, rule: str) -> str | None:
    if not text:
        return "must not be empty"
    if longest is not None and len(text) > longest:
        return f"{_shown(text)} has {len(text)} characters; at most {longest} are allowed"
    if not form.fullmatch(text):
        return f"{_shown(text)} may have {rule}"
    return None


def _shown(text: str) -> str:
    return repr(printable(text)).replace("\\\\", "\\")
