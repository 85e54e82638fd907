"""Lazy steps over samples: functions from an iterable of samples to an iterator.

Nothing is taken from the input before a sample is taken from the result. Arguments are checked at
the call, samples when they are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tarkit.errors import DataError, MissingFieldError, UsageError, printable
from tarkit.formats.tally import Tally, check_policy
from tarkit.samples.sample import Sample, is_reserved

_FIELDS_SHOWN = 20


def keep_fields(
    samples: Iterable[Sample], fields: str | Iterable[str], missing: str = "error", *, tally: Tally | None = None
) -> Iterator[Sample]:
    """Keep only these fields of each sample, in the sample's order, and its metadata.

    Args:
        samples: the samples.
        fields: a list, or text with spaces between the names. ``png|jpg`` is the first of them that
            a sample has.
        missing: error: every sample must have each field. ignore: at least one sample must have it.
            allow: no sample needs it.
        tally: its ``missing_fields`` counts the samples that lack a field.

    Raises:
        UsageError: no fields are named, or the policy does not exist.
        DataError: a sample lacks one of the fields; or, after the last sample, no sample has it.
    """
    check_policy("missing", missing, ("error", "ignore", "allow"))
    wanted = dict.fromkeys(fields.split() if isinstance(fields, str) else fields)
    if not wanted:
        raise UsageError("keep_fields: no fields are named")
    watched = samples if missing == "allow" else require_fields(samples, wanted)
    return _kept(watched, wanted, missing, {} if tally is None else tally.missing_fields)


def _kept(
    samples: Iterable[Sample], wanted: Mapping[str, None], missing: str, lacking: dict[str, int]
) -> Iterator[Sample]:
    for sample in samples:
        kept = only_fields(sample, wanted, lacking)
        if missing == "error":
            for name in wanted:
                _first_present(sample, [name] if name in sample else name.split("|"), "keep_fields")
        yield kept


def only_fields(sample: Sample, wanted: Iterable[str], lacking: dict[str, int]) -> Sample:
    """Return a sample with only the wanted fields, and its metadata.

    Args:
        wanted: names of fields, or alternatives such as ``png|jpg``.
        lacking: wanted field -> number of samples that lack it; counted here.
    """
    found = set()
    for name in wanted:
        field = name if name in sample else next((each for each in name.split("|") if each in sample), None)
        if field is None:
            lacking[name] = lacking.get(name, 0) + 1
        else:
            found.add(field)
    return {name: value for name, value in sample.items() if name in found or is_reserved(name)}


def require_fields(samples: Iterable[Sample], fields: Iterable[str]) -> Iterator[Sample]:
    """Yield the samples; after the last one, raise an error if no sample has a field.

    The name of such a field is probably misspelt. An input without samples passes.

    Raises:
        DataError: no sample has one of the fields; the message lists the fields that exist.
    """
    unseen = dict.fromkeys(fields)
    others: dict[str, None] = {}
    urls: dict[str | None, None] = {}
    for sample in samples:
        if unseen:
            # The message needs to know only if there is one shard or more; there may be ten
            # million.
            if len(urls) < 2:
                urls[sample.get("__url__")] = None
            for name in [name for name in unseen if any(map(sample.__contains__, (name, *name.split("|"))))]:
                del unseen[name]
            if unseen and len(others) <= _FIELDS_SHOWN:
                others |= dict.fromkeys(name for name in sample if not is_reserved(name))
        yield sample
    if unseen and urls:
        reason = (
            f"no sample has the field {field_list(unseen, quote=True)} that was asked for; "
            f"the samples have {field_list(others)}"
        )
        raise DataError(reason, url=next(iter(urls)) if len(urls) == 1 else None)


def field_names(text: str) -> list[str]:
    """Split the names of fields in a text, which has blanks or commas between them."""
    return [name for name in re.split(r"[\s,]+", text) if name]


def field_values(sample: Sample, fields: Iterable[list[str]]) -> tuple[Any, ...]:
    """Return the value of each field, where a field is a list of alternative names.

    ``__key__`` can be one of them.

    Raises:
        DataError: the sample has none of the names of a field.
    """
    return tuple(sample[_first_present(sample, names, "fields")] for names in fields)


def alternatives(text: str) -> list[list[str]]:
    """Parse fields such as ``"png;jpg cls"`` into a list of alternative names for each.

    The first name that a sample has is used.

    Raises:
        UsageError: a name is empty.
    """
    found = [field.replace("|", ";").split(";") for field in text.split()]
    if not all(name for names in found for name in names):
        raise UsageError(f"{text!r} must be a field, or fields with | or ; between them")
    return found


def _first_present(sample: Sample, names: list[str], step: str) -> str:
    for name in names:
        if name in sample:
            return name
    has = field_list(name for name in sample if not is_reserved(name))
    reason = f"{step}: the sample has no field {' or '.join(map(repr, names))}; it has {has}"
    raise MissingFieldError(reason, url=sample.get("__url__"), key=sample.get("__key__"))


def field_list(names: Iterable[str], *, quote: bool = False) -> str:
    """List names in order for a message; only the first of them if there are many."""
    found = [repr(printable(name)) if quote else printable(name) for name in sorted(names)]
    more = f" and {len(found) - _FIELDS_SHOWN} more" if len(found) > _FIELDS_SHOWN else ""
    return (", ".join(found[:_FIELDS_SHOWN]) or "no fields") + more
