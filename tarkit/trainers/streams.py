"""Streams of a mixture, and the number of samples of each in an epoch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Number
from typing import TYPE_CHECKING

from tarkit.errors import UsageError, printable
from tarkit.names.url import display_name, name_of_shard
from tarkit.specs.shardspec import spec_texts
from tarkit.trainers.sharednumbers import checked_number

if TYPE_CHECKING:
    from fractions import Fraction

_KINDS = "proportion", "repeat", "choose"
_EPOCH_SIZES = "shortest", "longest"
_LEAST, _MOST = 1e-100, 1e100
"""Smallest and largest amount beside 0: others would take long to compute with."""


@dataclass(frozen=True)
class Stream:
    """Shards of a mixture, and how many of their samples an epoch has.

    At most one of ``proportion``, ``repeat`` and ``choose`` is given; none of them means
    ``repeat=1``. A stream with 0 is not opened.

    >>> Stream("web-{0000..0147}.tar", proportion=0.7).amount
    Fraction(7, 10)

    Args:
        urls: a path, URL, shard spec or manifest, or several.
        proportion: share of the stream's samples in those of all streams with ``proportion``; only
            the ratios count.
        repeat: number of passes over the stream in an epoch, such as 2 or 0.5.
        choose: number of samples in an epoch.
        name: name of the stream in states and messages. The order of its samples depends on it.
            None: the first of ``urls`` without its folder.

    Raises:
        UsageError: several amounts are given, or a value is not valid.
    """

    urls: str | os.PathLike[str] | Iterable[str]
    _: KW_ONLY
    proportion: float | Fraction | None = None
    repeat: float | Fraction | None = None
    choose: int | None = None
    name: str | None = None
    specs: tuple[str, ...] = field(init=False, repr=False)
    """Texts of ``urls``."""
    kind: str = field(init=False, repr=False)
    """``proportion``, ``repeat`` or ``choose``."""
    amount: Fraction = field(init=False, repr=False)
    """Value of it: a float is the decimal number of 15 digits that it is nearest to."""

    def __post_init__(self) -> None:
        specs = tuple(spec_texts(self.urls))
        if not specs:
            raise UsageError("a stream names no shards")
        if not isinstance(self.name, (str, type(None))) or self.name == "":
            raise UsageError(f"name of a stream is {printable(repr(self.name))}; it must be a text")
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) > 1:
            raise UsageError(f"stream {self._shown(specs)} has {' and '.join(given)}; it can have one of them")
        kind = given[0] if given else "repeat"
        value = getattr(self, kind) if given else 1
        object.__setattr__(self, "urls", specs)
        object.__setattr__(self, "specs", specs)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "amount", _fraction(value, f"{kind} of stream {self._shown(specs)}", kind == "choose"))

    def _shown(self, specs: Sequence[str]) -> str:
        return f"{printable(self.name or display_name(specs[0]))!r}"

    @property
    def text(self) -> str:
        """The amount as text, such as ``proportion=0.7``."""
        decimal = repr(float(self.amount))
        is_decimal = self.amount.denominator > 1 and _exact(decimal) == self.amount
        return f"{self.kind}={decimal if is_decimal else self.amount}"


def _exact(text: str) -> Fraction:
    from fractions import Fraction  # which few programs need

    return Fraction(text)


def _fraction(value: object, what: str, is_whole: bool) -> Fraction:
    """Return a number as an exact fraction.

    Raises:
        UsageError: the value is not a number from 0 on, or not within bounds.
    """
    # Decimal is not a Real.
    is_number = isinstance(value, Integral if is_whole else Number) and not isinstance(value, (bool, complex))
    try:
        # Looked at as a float first: an exact fraction may have any number of digits.
        if not is_number or not (value == 0 or _LEAST <= float(value) <= _MOST):  # type: ignore[arg-type]
            raise ValueError
        # 1 - 0.7 is 0.30000000000000004: not what is meant, and a share that is never whole.
        found = _exact(f"{value:.15g}" if isinstance(value, float) else str(value))
    except (ValueError, ArithmeticError):
        must = "a whole number from 0 on" if is_whole else "a number from 0 on, such as 0.5"
        must += f" (of {_LEAST:g} to {_MOST:g})"
        raise UsageError(f"{what} is {printable(repr(value))}; it must be {must}") from None
    return found


def streams_of(urls: object) -> list[Stream] | None:
    """Return the streams that are given in place of shards, or None if shards are.

    Raises:
        UsageError: streams and names are in one list, two streams have one name, or no stream has
            samples in an epoch.
    """
    if isinstance(urls, Stream):
        return [urls]
    if not isinstance(urls, Sequence) or not any(isinstance(each, Stream) for each in urls):
        return None
    if other := next((each for each in urls if not isinstance(each, Stream)), None):
        raise UsageError(f"{printable(repr(other))} is beside streams; each must be a Stream")
    if not any(stream.amount for stream in urls):
        raise UsageError("each stream has 0 samples in an epoch; one must have more")
    return list(urls)


def opened_specs(streams: Sequence[Stream]) -> list[str]:
    """Return the shard specs of the streams that have samples in an epoch."""
    return [spec for stream in streams if stream.amount for spec in stream.specs]


def stream_names(streams: Sequence[Stream]) -> list[str]:
    """Return the name of each stream; streams without one are named for their first shards.

    Raises:
        UsageError: two streams have the same name.
    """
    found: list[str] = []
    given = Counter(stream.name for stream in streams)
    for stream in streams:
        name = name_of_shard(stream.specs[0]) if stream.name is None else stream.name
        if stream.name is not None and given[name] > 1:
            raise UsageError(f"two streams have the name {printable(name)!r}; the order of a stream depends on it")
        plain, number = name, 2
        while stream.name is None and (name in found or name in given):
            name, number = f"{plain}#{number}", number + 1
        found.append(name)
    return found


def epoch_amounts(
    streams: Sequence[Stream], names: Sequence[str], counts: Sequence[int], size: int | str | None
) -> list[Fraction]:
    """Return the number of samples of each stream in an epoch, as fractions.

    ``repeat`` and ``choose`` are numbers of samples. Streams with ``proportion`` share the rest of
    an epoch of ``size`` samples. If all streams have ``proportion``, ``size`` can also be None, for
    as many samples as the streams have; "shortest", where the first stream ends; or "longest",
    where each stream has ended once.

    Args:
        counts: number of samples of each stream; 0 for one with the amount 0, which is not opened.

    Raises:
        UsageError: these amounts and this size do not fit together, or a stream has no samples.
    """
    _check_amounts(streams, names, counts)
    relative = [stream.kind == "proportion" for stream in streams]
    own = [
        stream.amount * (count if stream.kind == "repeat" else 1) for stream, count in zip(streams, counts, strict=True)
    ]
    fixed: Fraction | int = sum((amount for amount, each in zip(own, relative, strict=True) if not each))
    weights: Fraction | int = sum((amount for amount, each in zip(own, relative, strict=True) if each))
    if isinstance(size, str):
        if size not in _EPOCH_SIZES:
            must = f"a number of samples, or one of {', '.join(_EPOCH_SIZES)}"
            raise UsageError(f"epoch_size is {printable(repr(size))}; it must be {must}")
    elif size is not None:
        size = checked_number("epoch_size", size, 1)
    if not weights:
        if size not in (None, fixed):
            raise UsageError(f"epoch_size is {size}, and the epoch has {shown(fixed)} samples by repeat and choose")
        return own
    if fixed and not isinstance(size, int):
        hint = "epoch_size= must be a number of samples, of which streams with proportion have the rest"
        raise UsageError(f"streams with proportion are beside streams with repeat or choose: {hint}")
    if isinstance(size, int) and size <= fixed:
        raise UsageError(f"epoch_size is {size}, and repeat and choose take {shown(fixed)}: proportion has no rest")
    if isinstance(size, int):
        rest = size - fixed
    elif size is None:
        rest = sum(count for stream, count in zip(streams, counts, strict=True) if stream.amount)
    else:
        used = [(stream.amount, count) for stream, count in zip(streams, counts, strict=True) if stream.amount]
        rest = weights * (min if size == "shortest" else max)(count / amount for amount, count in used)
    return [amount * rest / weights if each else amount for amount, each in zip(own, relative, strict=True)]


def _check_amounts(streams: Sequence[Stream], names: Sequence[str], counts: Sequence[int]) -> None:
    relative = any(stream.kind == "proportion" for stream in streams)
    for stream, name, count in zip(streams, names, counts, strict=True):
        if stream.amount and not count:
            raise UsageError(f"stream {printable(name)!r} has no samples, and {stream.text}")
        if relative and all(getattr(stream, kind) is None for kind in _KINDS):
            hint = "name one of proportion, repeat and choose"
            raise UsageError(f"stream {printable(name)!r} has no amount, and others have proportion: {hint}")


def shown(number: Fraction | int) -> str:
    """Return a number as text, in at most six digits if it is not whole."""
    return f"{number.numerator}" if number.denominator == 1 else f"{float(number):.6g}"
