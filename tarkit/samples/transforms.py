"""Lazy steps over samples: each takes an iterable of samples and gives an iterator.

Nothing is drawn from the input before it is asked for. Arguments are checked at the call, samples as they pass."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from tarkit.errors import DataError, DuplicateFieldError, MissingFieldError, UsageError, printable
from tarkit.formats.tally import Tally
from tarkit.samples.sample import Sample, is_reserved

T = TypeVar("T")

_FIELDS_SHOWN = 20


def select(samples: Iterable[T], predicate: Callable[[T], object]) -> Iterator[T]:
    """The samples for which ``predicate(sample)`` is true."""
    return (sample for sample in samples if predicate(sample))


def take(samples: Iterable[T], count: int) -> Iterator[T]:
    """The first ``count`` samples, or all if there are fewer. No sample beyond them is drawn.
    Raises: UsageError: count is negative."""
    if count < 0:
        raise UsageError(f"take: count is {count}; it must be 0 or more")
    return itertools.islice(samples, count)


def shuffle(samples: Iterable[T], buffer: int, seed: int, initial: int | None = None) -> Iterator[T]:
    """The same samples in another order: a buffer shuffle, the same for the same seed and input.

    ``buffer`` samples are held; each new one takes the place of one of them, drawn at random, which
    goes out; at the end the rest goes out in random order. No sample comes more than ``buffer`` places earlier
    than it stood, so the order is fully random only if the buffer holds all samples. With ``initial``, the first
    sample goes out when so many are held, and two are read for each that goes out until the buffer is full.

    Raises:
        UsageError: buffer or initial is below 1, or seed is not a whole number.
    """
    for name, value in (("buffer", buffer), ("initial", buffer if initial is None else initial)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"shuffle: {name} is {value!r}; it must be a number of samples, 1 or more")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise UsageError(f"shuffle: seed is {seed!r}; it must be a whole number, so that the order can be had again")
    return _shuffled(samples, buffer, random.Random(seed), min(buffer, initial or buffer))


def _shuffled(samples: Iterable[T], buffer: int, rng: random.Random, initial: int) -> Iterator[T]:
    source = iter(samples)
    held = list(itertools.islice(source, initial))
    growing = initial < buffer
    for sample in source:
        place = rng.randrange(len(held))
        held[place], sample = sample, held[place]
        yield sample
        if growing:
            held.extend(itertools.islice(source, 1))
            growing = len(held) < buffer
    rng.shuffle(held)
    yield from held


def rsample(samples: Iterable[T], share: float, seed: int) -> Iterator[T]:
    """Each sample with the probability ``share``, the same for the same seed. Raises: UsageError: it is not 0 to 1."""
    if not 0 <= share <= 1:
        raise UsageError(f"rsample: the share is {share!r}; it must be 0 to 1")
    rng = random.Random(seed)
    return (sample for sample in samples if rng.random() < share)


def rename_fields(
    samples: Iterable[Sample], names: Mapping[str, str | Iterable[str]], keep: bool = True
) -> Iterator[Sample]:
    """Samples with fields renamed: ``{"image": "jpg|png"}`` makes ``image`` of the first of them that is there.

    ``|`` or ``;`` separate the alternatives. Only the field that was found is taken away; other fields, also
    alternatives that were not needed, stay. One field may be given several new names. Names can be swapped.
    Without ``keep``, nothing stays, also no metadata.

    Raises:
        UsageError: a name is empty or is metadata (``__key__``).
        DataError: a sample has none of the alternatives.
        DuplicateFieldError: a new name is a field that stays in the sample.
    """
    plan = {new: _alternatives(old) for new, old in names.items()}
    for name in itertools.chain(plan, *plan.values()):
        if is_reserved(name):
            raise UsageError(f"rename: {name!r} is metadata, not a field")
    if "" in plan:
        raise UsageError("rename: the new name of a field is empty")
    return (_renamed(sample, plan, keep) for sample in samples)


def _renamed(sample: Sample, plan: Mapping[str, list[str]], keep: bool) -> Sample:
    found = {new: _first_present(sample, olds, "rename") for new, olds in plan.items()}
    if not keep:
        return {new: sample[old] for new, old in found.items()}
    taken = set(found.values())
    result = {name: value for name, value in sample.items() if name not in taken}
    for new, old in found.items():
        if new in result:
            reason = f"rename: {old!r} cannot become {new!r}, which the sample has already"
            raise DuplicateFieldError(reason, url=sample.get("__url__"), key=sample.get("__key__"))
    result.update((new, sample[old]) for new, old in found.items())
    return result


def keep_fields(
    samples: Iterable[Sample], fields: str | Iterable[str], missing: str = "error", *, tally: Tally | None = None
) -> Iterator[Sample]:
    """Samples with only these fields, in the sample's order, and their metadata (``__key__``, ``__url__``).

    Args:
        fields: a list, or text with spaces between the names.
        missing: error: every sample must have each field. ignore: some sample must have it. allow: no sample need.
        tally: its ``missing_fields`` counts the samples that lack a field.

    Raises:
        UsageError: no fields, or another policy.
        DataError: a sample lacks one of the fields; or after the last one, no sample has it.
    """
    if missing not in ("error", "ignore", "allow"):
        raise UsageError(f"keep_fields: missing is {missing!r}; it must be error, ignore or allow")
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


def require_fields(samples: Iterable[Sample], fields: Iterable[str | tuple[str, ...]]) -> Iterator[Sample]:
    """The same samples; after the last one, an error if a field was in none of them: its name is misspelt.
    A tuple of fields stands for any of them. An input without samples passes.
    Raises: DataError: no sample had one of the fields; the message lists those that there were."""
    unseen = {(field,) if isinstance(field, str) else field: None for field in fields}
    others: dict[str, None] = {}
    urls: dict[str | None, None] = {}
    for sample in samples:
        if unseen:
            # Whether there is one shard or more is all that the message needs; there may be ten million.
            if len(urls) < 2:
                urls[sample.get("__url__")] = None
            for names in [names for names in unseen if any(name in sample for name in names)]:
                del unseen[names]
            if unseen and len(others) <= _FIELDS_SHOWN:
                others |= dict.fromkeys(name for name in sample if not is_reserved(name))
        yield sample
    if unseen and urls:
        reason = (
            f"no sample has the field {field_list(itertools.chain(*unseen), quote=True)} that was asked for; "
            f"the samples have {field_list(others)}"
        )
        raise DataError(reason, url=next(iter(urls)) if len(urls) == 1 else None)


def map_fields(samples: Iterable[Sample], functions: Mapping[str, Callable[[Any], Any]]) -> Iterator[Sample]:
    """Samples in which each named field's value is replaced by ``function(value)``.
    Raises: DataError: a sample lacks one of the fields. What a function raises goes through."""
    for sample in samples:
        made = {
            name: function(sample[_first_present(sample, [name], "map_fields")]) for name, function in functions.items()
        }
        yield {**sample, **made}


def map_tuple(samples: Iterable[Any], functions: Sequence[Callable[[Any], Any] | None]) -> Iterator[tuple[Any, ...]]:
    """Tuples with ``functions[i](value)`` for value number i; None, and no function at the end, leave it as it is.
    Raises: DataError: a sample is not a tuple or list, or has fewer values than there are functions."""
    for sample in samples:
        if not isinstance(sample, (tuple, list)) or len(sample) < len(functions):
            has = len(sample) if isinstance(sample, (tuple, list)) else type(sample).__name__
            raise DataError(f"map_tuple: there are {len(functions)} functions, and the sample has {has} values")
        made = (value if each is None else each(value) for each, value in zip(functions, sample, strict=False))
        yield (*made, *sample[len(functions) :])


def to_tuple(
    samples: Iterable[Sample], *fields: str, missing_is_error: bool = True, none_is_error: bool | None = None
) -> Iterator[tuple[Any, ...]]:
    """One tuple per sample: the values of ``fields``, in that order; ``__key__`` can be one of them.

    ``"png;jpg"`` or ``"png|jpg"`` stands for the first of the two that is there. One text with spaces,
    ``"png;jpg cls"``, is split at them.

    Args:
        missing_is_error: else the value of a field that a sample has not is None.
        none_is_error: whether a value may not be None; by default, as missing_is_error.

    Raises:
        UsageError: no fields.
        DataError: a sample has none of the alternatives, or its value is None.
    """
    if not all(isinstance(field, str) for field in fields):
        raise UsageError(f"to_tuple: fields are named by text, such as 'png;jpg cls'; got {fields!r}")
    wanted = alternatives(fields)
    if not wanted:
        raise UsageError("to_tuple: no fields are named")
    no_none = missing_is_error if none_is_error is None else none_is_error
    return (tuple(_value(sample, names, missing_is_error, no_none) for names in wanted) for sample in samples)


def _value(sample: Sample, names: list[str], must: bool, no_none: bool) -> Any:
    found = _first_present(sample, names, "to_tuple") if must else next((n for n in names if n in sample), None)
    value = None if found is None else sample[found]
    if value is None and no_none:
        raise DataError(
            f"to_tuple: field {found or names[0]!r} is None", url=sample.get("__url__"), key=sample.get("__key__")
        )
    return value


def alternatives(fields: Iterable[str]) -> list[list[str]]:
    """Of each field in such texts as ``"png;jpg cls"`` the names of which the first that a sample has is meant.
    Raises: UsageError: a name is empty."""
    return [_alternatives(name) for field in fields for name in field.split()]


def _alternatives(text: str | Iterable[str]) -> list[str]:
    names = text.replace("|", ";").split(";") if isinstance(text, str) else list(text)
    if not all(names):
        raise UsageError(f"{text!r} must be a field, or fields with | or ; between them")
    return names


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
