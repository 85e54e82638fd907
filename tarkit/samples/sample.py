"""Samples: the key rule, the skipping rule, and grouping members into samples.

A sample is a plain dict: ``__key__`` (str), ``__url__`` (str, its shard) and, for each field, its
bytes. ``docs/formats/tar.md`` is the specification of the three rules in this file, with a table of
names that the tests compare with this code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tarkit.errors import DuplicateFieldError, EncodeError, RepeatedKeyError, UsageError, printable
from tarkit.formats.tally import BESIDE_DAMAGE, INCOMPLETE, Tally, check_policy
from tarkit.formats.tar.walk import LOST_STRETCH, Member

Sample = dict[str, Any]
"""``__key__`` and ``__url__`` are str; every other entry is a field: bytes, unless decoded."""

KeyRule = Callable[[str], "tuple[str, str] | None"]
"""Member name -> (key, field), or None if the name has no field."""

KEY_RULES = ("first-dot", "last-dot")
"""Names of key rules; any other name is a regular expression."""

_METADATA = re.compile(r"__[^/]*__(/|\Z)")
_RESERVED = re.compile(r"__.*__\Z", re.DOTALL)

BOOKKEEPING = frozenset(("__key__", "__url__", "__local_path__", "__worker__", "__rank__"))
"""Metadata that the readers of tarkit and webdataset add to a sample. Writers leave it out."""


def is_reserved(name: str) -> bool:
    """Return True if a name has the form ``__name__``.

    Such an entry of a sample is metadata, never the field of a file.
    """
    return name[:2] == "__" and _RESERVED.match(name) is not None


def is_bookkeeping(name: str) -> bool:
    """Return True if an entry of a sample is metadata of a reader; False if it is a field.

    Writers leave out the metadata of readers.

    Raises:
        EncodeError: the name is metadata that no reader adds, so no reader would return it.
    """
    if name in BOOKKEEPING:
        return True
    if is_reserved(name):
        raise EncodeError(why_reserved(name))
    return False


def why_reserved(field: str, prefix: str = "") -> str:
    """Explain why a field cannot have a reserved name, and suggest a name.

    Args:
        prefix: beginning of the name of its file.
    """
    plain = prefix + (field.strip("_") or "field")
    return (
        f"{printable(prefix + field)!r} cannot be a field: names of the form __name__ are kept for what readers add "
        f"to a sample; call it {printable(plain)!r}"
    )


def first_dot(name: str) -> tuple[str, str] | None:
    """Split a member's name at the first dot of its base name into (key, field).

    The key includes the folder. None if the name has no field.

    >>> first_dot("images/a.b.c.jpg")
    ('images/a', 'b.c.jpg')
    """
    folder, slash, base = name.rpartition("/")
    stem, _, field = base.partition(".")
    return (folder + slash + stem, field) if stem and field else None


def last_dot(name: str) -> tuple[str, str] | None:
    """Split a member's name at the last dot of its base name into (key, field).

    The key includes the folder. None if the name has no field.

    >>> last_dot("images/a.b.c.jpg")
    ('images/a.b.c', 'jpg')
    """
    folder, slash, base = name.rpartition("/")
    stem, _, field = base.rpartition(".")
    return (folder + slash + stem, field) if stem and field else None


def key_rule(spec: str | KeyRule) -> KeyRule:
    """Return the rule named ``first-dot`` or ``last-dot``, or make one from a regular expression.

    A regular expression has two groups, key and field, and must match the whole name.

    Raises:
        UsageError: the expression does not compile or has not exactly two groups.
    """
    if callable(spec):
        return spec
    if spec in KEY_RULES:
        return first_dot if spec == "first-dot" else last_dot
    try:
        pattern = re.compile(spec, re.DOTALL)
    except re.error as error:
        raise UsageError(f"key rule {spec!r} is not first-dot, last-dot or a regular expression: {error}") from None
    if pattern.groups != 2:
        raise UsageError(f"key rule {spec!r} must have two groups, key and field; it has {pattern.groups}")

    def by_pattern(name: str) -> tuple[str, str] | None:
        match = pattern.fullmatch(name)
        if match is None or not match[1] or not match[2] or "/" in match[2]:
            return None
        return match[1], match[2]

    return by_pattern


def skip_reason(name: str, rule: KeyRule = first_dot) -> str | None:
    """Return why a regular file of this name is not part of a sample; None if it is.

    The reasons are the words under which skipped members are counted.
    """
    if _METADATA.match(name):
        return "metadata"
    base = name[name.rfind("/") + 1 :]
    if base.startswith("._"):
        return "macos-sidecar"
    split = rule(name)
    if split is None:
        return "hidden" if base.startswith(".") else "no-extension"
    if is_reserved(split[1]):
        return "reserved-field"
    return None


def in_sample(rule: KeyRule = first_dot) -> Callable[[str], bool]:
    """Return a function: True if a regular file of this name is part of a sample."""
    return lambda name: skip_reason(name, rule) is None


DUPLICATE_FIELD_POLICIES = ("error", "first", "last")
REPEATED_KEY_POLICIES = ("error", "allow")


def group_by_keys(
    members: Iterable[Member],
    *,
    url: str = "",
    rule: str | KeyRule = first_dot,
    on_duplicate_field: str = "error",
    on_repeated_key: str = "error",
    tally: Tally | None = None,
    sample_limit: int = sys.maxsize,
    spill: Callable[[Sample, str, Any], Any] | None = None,
) -> Iterator[Sample]:
    """Group the members of one shard into samples, in their order.

    A sample is a run of adjacent members with the same key. Lazy: at most one sample is in memory,
    besides the keys that were seen (keys and offsets, never bytes).

    >>> list(group_by_keys([("a.jpg", b"1", 0), ("a.cls", b"2", 1024)], url="s.tar"))
    [{'__key__': 'a', '__url__': 's.tar', 'jpg': b'1', 'cls': b'2'}]

    Args:
        members: (name, content, offset) of regular files, with marks (see Member). Where a stretch
            was lost, the samples on both of its sides are dropped, since they may not be whole;
            where one member was lost that belongs to a sample, that sample is dropped.
        url: the shard's name, for ``__url__`` and for errors.
        rule: a key rule, or its name: first-dot, last-dot, or a regular expression.
        on_duplicate_field: error, first (keep the first file) or last (keep the last).
        on_repeated_key: error, or allow (each run of adjacent members is a sample of its own).
        tally: counts damage and skipped or replaced members.
        sample_limit: bytes of the shard; where a sample spans more, ``spill(sample, name,
            content)`` gives the values of its further fields.

    Raises:
        DuplicateFieldError, RepeatedKeyError: the shard has such a field or key, and the policy is
            error.
        UsageError: a policy or rule does not exist.
    """
    split_name = key_rule(rule)
    check_policy("on_duplicate_field", on_duplicate_field, DUPLICATE_FIELD_POLICIES)
    check_policy("on_repeated_key", on_repeated_key, REPEATED_KEY_POLICIES)
    tally = Tally() if tally is None else tally
    simple_rule = split_name is first_dot
    seen: dict[str, int] = {}
    key: str | None = None
    sample: Sample = {}
    torn: str | None = None  # key of the last sample that damage followed
    dropped = ""  # the reason for which the current sample is dropped
    horizon = sample_limit  # no sample that spans more than sample_limit ends before this offset
    for name, content, offset in members:
        if simple_rule and "/" not in name:
            # first_dot() without the function call, which takes longer than the other work.
            name_key, _, field_name = name.partition(".")
        else:
            name_key, field_name = split_name(name) or ("", "")
        # The first characters nearly always show that skip_reason() would return None.
        if not name_key or not field_name or not simple_rule or name[0] == "_" or field_name[0] == "_":
            if not name and content and content != LOST_STRETCH:
                lost_key = (split_name(content.decode("utf-8", "surrogateescape")) or ("", ""))[0]
                if lost_key != key:
                    if key is not None and _settle(tally, dropped):
                        yield sample
                    if lost_key in seen and lost_key != torn and on_repeated_key == "error":
                        raise repeated_key(url, content.decode("utf-8", "replace"), lost_key, offset, seen[lost_key])
                    key, sample = lost_key, {"__key__": lost_key, "__url__": url}
                    seen[key] = offset
                dropped = INCOMPLETE
                continue
            if not name:
                # An archive ends here, or a stretch of it was lost: the sample ends, too.
                if key is not None and _settle(tally, dropped or (BESIDE_DAMAGE if content else "")):
                    yield sample
                torn = key or torn if content else None
                key, dropped = None, BESIDE_DAMAGE if content else ""
                continue
            reason = skip_reason(name, split_name)
            if reason is not None:
                tally.skip(reason)
                continue
        tally.members += 1
        if name_key == key:
            if field_name in sample:
                if on_duplicate_field == "error":
                    raise duplicate_field(url, name, key, field_name, offset, seen[key])
                tally.replaced += 1
                if on_duplicate_field == "first":
                    continue
            if offset + len(content) > horizon:
                # A rare case: the horizon moves by the limit, not by samples.
                horizon = seen[key] + sample_limit
                if offset + len(content) > horizon and spill is not None:
                    content = spill(sample, name, content)
            sample[field_name] = content
            continue
        if dropped and key is not None:
            _settle(tally, dropped)
            dropped = ""
        elif key is not None:
            tally.samples += 1
            yield sample
        key = name_key
        if key in seen and not (dropped and key == torn):
            if on_repeated_key == "error":
                raise repeated_key(url, name, key, offset, seen[key])
            tally.reopened += 1
        seen[key] = offset
        sample = {"__key__": key, "__url__": url, field_name: content}
    if key is not None and _settle(tally, dropped):
        yield sample


def _settle(tally: Tally, dropped: str) -> bool:
    """Count the current sample; False if it must be dropped for the given reason."""
    if dropped:
        tally.skip(dropped)
        return False
    tally.samples += 1
    return True


def duplicate_field(url: str, name: str, key: str, field: str, offset: int, begin: int) -> DuplicateFieldError:
    """Return the error for a field that is twice in a sample."""
    reason = f"field {field!r} is twice in one sample (the sample begins at offset {begin})"
    hint = "tarproc --on-duplicate-field first or last keeps one of them"
    return DuplicateFieldError(reason, url=url, offset=offset, member=name, key=key, hint=hint)


def repeated_key(url: str, name: str, key: str, offset: int, before: int) -> RepeatedKeyError:
    """Return the error for a key that comes back in a shard."""
    reason = f"the key comes back after other samples; it was first at offset {before}"
    hint = (
        "if these are files of one sample, extract the shard and make a new one with tarkit create; different samples "
        "are read with --on-repeated-key allow, which tarproc, show, split and convert have"
    )
    return RepeatedKeyError(reason, url=url, offset=offset, member=name, key=key, hint=hint)
