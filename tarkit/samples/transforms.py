"""Lazy steps over samples: each takes an iterable of samples and gives an iterator.

Nothing is drawn from the input before it is asked for. Arguments are checked at the call, samples
as they pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tarkit.errors import DataError, MissingFieldError, UsageError, printable
from tarkit.formats.tally import Tally, check_policy
from tarkit.samples.sample import Sample, is_reserved

_FIELDS_SHOWN = 20


def keep_fields(
    samples: Iterable[Sample], fields: str | Iterable[str], missing: str = "error", *, tally: Tally | None = None
) -> Iterator[Sample]:
    """Samples with only these fields, in the sample's order, and their metadata (``__key__``,
    ``__url__``).

    Args:
        fields: a list, or text with spaces between the names.
        missing: error: every sample must have each field. ignore: some sample must have it. allow:
            no sample need.
        tally: its ``missing_fields`` counts the samples that lack a field.

    Raises:
        UsageError: no fields, or another policy.
        DataError: a sample lacks one of the fields; or after the last one, no sample has it.
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
        for name in wanted:
            if name not in sample:
                lacking[name] = lacking.get(name, 0) + 1
                if missing == "error":
                    _first_present(sample, [name], "keep_fields")
        yield {name: value for name, value in sample.items() if name in wanted or is_reserved(name)}


def require_fields(samples: Iterable[Sample], fields: Iterable[str]) -> Iterator[Sample]:
    """The same samples.

    After the last one, an error if a field was in none of them: its name is misspelt. An input
    without samples passes.

    Raises:
        DataError: no sample had one of the fields; the message lists those that there were.
    """
    unseen = dict.fromkeys(fields)
    others: dict[str, None] = {}
    urls: dict[str | None, None] = {}
    for sample in samples:
        if unseen:
            # Whether there is one shard or more is all that the message needs; there may be ten
            # million.
            if len(urls) < 2:
                urls[sample.get("__url__")] = None
            for name in [name for name in unseen if name in sample]:
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


def field_values(sample: Sample, fields: Iterable[list[str]]) -> tuple[Any, ...]:
    """The value of each field, of which any of several names is meant.

    ``__key__`` can be one of them.

    Raises:
        DataError: the sample has none of these names.
    """
    return tuple(sample[_first_present(sample, names, "fields")] for names in fields)


def alternatives(text: str) -> list[list[str]]:
    """Of each field in such a text as ``"png;jpg cls"`` the names of which the first that a sample
    has is meant.

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
    """The names in order, the first of them if there are many."""
    found = [repr(printable(name)) if quote else printable(name) for name in sorted(names)]
    more = f" and {len(found) - _FIELDS_SHOWN} more" if len(found) > _FIELDS_SHOWN else ""
    return (", ".join(found[:_FIELDS_SHOWN]) or "no fields") + more
