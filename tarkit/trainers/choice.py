"""Choose samples of shards by key, by fields and their sizes, or by the hash of the key.

Only the indexes of the shards are read.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from numbers import Real
from typing import TypedDict

from tarkit.errors import MissingInputError, TransformError, UsageError, counted, printable
from tarkit.formats.tally import check_policy
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.samples.indexedshard import IndexedShard
from tarkit.steps.keylists import KeyList
from tarkit.steps.parts import Parts, parse_shares
from tarkit.steps.selection import Selection
from tarkit.steps.where import Where
from tarkit.trainers.subset import Numbers, compact

_log = logging.getLogger(__name__)

SizeTest = Callable[[str, Mapping[str, int]], object]
"""Function of a key and of field -> bytes, which returns True for the samples to choose."""


class SubsetOptions(TypedDict, total=False):
    """Keyword arguments that choose samples; all of them must choose a sample.

    They use what the indexes have: keys, names of fields and their sizes. All indexes are read when
    the data set is opened, several at a time.

    Attributes:
        keys: keys of the samples: a list or other iterable; or a path or URL of a list with a key
            on each line, or of a table and its column, ``data.csv:id``, as for ``tarkit select
            --keys``. Above 200,000 keys, their digests are sorted in a temporary file. Default: all
            samples.
        on_missing_key: ``error``, or ``allow``: a warning counts the keys that no sample has.
            Default: ``error``.
        where: condition in the language of ``tarkit select --where``, without contents of fields:
            ``size(jpg) > 10000 and has(cls)``, ``match(key, '^cat/')``; or a function of a key and
            a dict of field to size in bytes, which returns True to choose the sample. Default: all
            samples.
        split: part and shares, such as ``("val", "train=0.9,val=0.1")``, or a dict as shares: the
            samples of that part of a split by the hash of the key, the one of ``tarkit create
            --split``. Default: all samples.
        split_by: regular expression; samples whose keys have the same match, or the same first
            group, are in one part, as with ``tarkit create --split-by``. Default: the whole key
            decides.
    """

    keys: str | os.PathLike[str] | Iterable[str] | None
    on_missing_key: str
    where: str | SizeTest | None
    split: tuple[str, str | Mapping[str, float]] | None
    split_by: str | None


class SampleChoice:
    """A choice of samples by what their indexes have.

    Args:
        options: see :class:`SubsetOptions`.

    Attributes:
        selects: True if any option is given.

    Raises:
        UsageError: an option is not valid.
        DataError, MissingInputError, StreamError: a list of keys cannot be read.
    """

    @keywords_of(SubsetOptions)
    def __init__(self, **options: Unpack[SubsetOptions]) -> None:
        self._is_strict = options.get("on_missing_key", "error") == "error"
        check_policy("on_missing_key", options.get("on_missing_key", "error"), ("error", "allow"))
        keys, where, split = options.get("keys"), options.get("where"), options.get("split")
        if keys is None and not self._is_strict:
            raise UsageError("on_missing_key= goes with keys=")
        if not isinstance(keys, (str, os.PathLike, Iterable, type(None))):
            raise UsageError(f"keys is {printable(repr(keys))}; it must be a file of keys, or several keys")
        self._keys = None if keys is None else _keys_of(keys)
        self._where = Selection(where=_of_index(where)) if isinstance(where, str) else None
        self._test = None if isinstance(where, str) else where
        if not (self._test is None or callable(self._test)) or iscoroutinefunction(self._test):
            raise UsageError(
                f"where is {printable(repr(where))}; it must be a condition as text, or a function (not async)"
            )
        if split is None and options.get("split_by") is not None:
            raise UsageError("split_by= goes with split=")
        self._split = None if split is None else _part_of(split, options.get("split_by"))
        self.selects = not (keys is None and where is None and split is None)

    def numbers(self, shard: IndexedShard) -> Numbers:
        """Return the numbers of the chosen samples of a shard.

        Raises:
            DataError: the index is damaged, or a key does not match ``split_by``.
            TransformError: the function ``where`` raised an exception.
        """
        return compact(array("I", (at for at, key in enumerate(shard.keys()) if self._chooses(shard, at, key))))

    def _chooses(self, shard: IndexedShard, number: int, key: str) -> bool:
        if self._keys is not None and key not in self._keys:
            return False
        if self._split is not None and self._split[1].part_of(key) != self._split[0]:
            return False
        if self._where is None and self._test is None:
            return True
        sizes = {each.field: each.size for each in shard.index[number]}
        if self._where is not None:
            # A range has a size, which is all that the condition reads of a field.
            sample = {"__key__": key, "__url__": shard.url, **{field: range(size) for field, size in sizes.items()}}
            return self._where.apply(sample) is not None
        try:
            return bool(self._test is None or self._test(key, sizes))
        except Exception as error:
            raise TransformError(f"where raised {printable(repr(error))}", url=shard.url, key=key) from error

    def check(self) -> None:
        """Check, after the last shard, that the samples have all keys and fields that are named.

        Raises:
            MissingInputError: no sample has a key of the list, unless that is allowed.
            DataError: no sample has a field of the condition.
        """
        if self._where is not None:
            self._where.check()
        missing, some = (0, []) if self._keys is None else self._keys.not_found()
        if not missing:
            return
        shown = ", ".join(printable(repr(key)) for key in some) + ", …" * (missing > len(some))
        reason = f"keys= has {counted(missing, 'key')} that no sample has: {shown}"
        if self._is_strict:
            raise MissingInputError(reason, hint="on_missing_key='allow' leaves them out")
        _log.warning("%s", reason)


def _keys_of(keys: str | os.PathLike[str] | Iterable[str]) -> KeyList:
    try:
        return KeyList(os.fspath(keys) if isinstance(keys, os.PathLike) else keys)
    except MissingInputError as error:
        raise type(error)(f"{error}; keys= names a file of keys, or is a list of them") from error


def _of_index(where: str) -> str:
    """Return a condition that needs no content of a field.

    Raises:
        UsageError: it reads a field, or is not a condition.
    """
    if contents := list(Where(where).contents):
        raise UsageError(
            f"where {printable(where)!r} reads the content of {printable(contents[0])}, and an index has only key, "
            "has(FIELD) and size(FIELD): tarkit show --where ... --json > chosen.jsonl, then keys='chosen.jsonl:key'"
        )
    return where


def _part_of(split: tuple[str, str | Mapping[str, float]], by: str | None) -> tuple[str, Parts]:
    example = "such as ('val', 'train=0.9,val=0.1')"
    name, shares = split if isinstance(split, (tuple, list)) and len(split) == 2 else (None, None)
    if isinstance(shares, Mapping):
        is_good = all(isinstance(each, str) and isinstance(share, Real) for each, share in shares.items())
    else:
        is_good = isinstance(shares, str)
    if not (is_good and isinstance(by, (str, type(None)))):
        given = f"split is {printable(repr(split))}" + ("" if by is None else f", split_by is {printable(repr(by))}")
        raise UsageError(f"{given}; split must be a part and the shares, {example}, and split_by a text")
    parts = Parts(parse_shares(shares) if isinstance(shares, str) else shares, by)
    if name not in parts.shares:
        known = printable(", ".join(parts.shares))
        raise UsageError(f"split: {printable(repr(name))} is not a part; the parts are {known}")
    return name, parts
