"""Select samples: keep some of them, with some of their fields, under other names."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypedDict

from tarkit.errors import DataError, DuplicateFieldError, UsageError, printable, quoted
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.samples.sample import Sample, is_reserved
from tarkit.samples.transforms import field_list, field_names, only_fields

if TYPE_CHECKING:
    from typing_extensions import Self

    from tarkit.steps.keylists import KeyList
    from tarkit.steps.where import Where

_PLACE = re.compile(r"%(?:(%)|(s)|(0?[0-9]{0,2}d)|)")
_MOST_FIELDS = 1000


class SelectionOptions(TypedDict, total=False):
    """Keyword arguments of :class:`Selection`, which describes them."""

    fields: str | Iterable[str] | None
    drop_fields: str | Iterable[str] | None
    rename: Mapping[str, str] | Iterable[str] | None
    rekey: str | None
    match: str | None
    keys: str | None
    without_keys: str | None
    where: str | None


class Selection:
    """A choice of samples, and of their fields and names.

    A sample must meet all conditions, which see it as it is in its shard. Then fields are left out,
    then renamed, and the key is replaced last. A context manager.

    >>> with Selection(match="^cat/", fields="jpg cls") as selection:  # doctest: +SKIP
    ...     for sample in selection.select(read_samples("train.tar")):
    ...         print(sample["__key__"])

    Args:
        fields: names of the fields to keep, a list, or text with blanks or commas between them.
            ``jpg|png`` is the first of them that a sample has. Samples that lack one are counted;
            samples without any of them are dropped.
        drop_fields: names of the fields to leave out.
        rename: new name -> old name, or texts ``NEW=OLD``; ``jpg=jpeg|JPG`` renames the first of
            them that a sample has.
        rekey: new keys: ``%s`` is the old key, ``%06d`` the number of the sample among those that
            are kept, from 0.
        match: regular expression that must match anywhere in the key.
        keys: path or URL of a list of the keys to keep, one a line; or of a table with the name of
            a column, ``data.csv:id`` (see :class:`tarkit.steps.keylists.KeyList`). Above 200,000
            keys, their digests are sorted in a temporary file.
        without_keys: list of the keys to drop, in the same form.
        where: condition such as ``json.width >= 512 and cls != 7``, see :mod:`tarkit.steps.where`.

    Attributes:
        kept: number of samples kept so far.
        dropped: samples dropped so far, by the name of the option.
        lacking: field of ``fields`` -> number of kept samples that lack it.
        unknown_keys: after the last sample, option -> (number of keys in its list that no sample
            has, a few of them).
        unknown_values: after the last sample, values of JSON in ``where`` that no sample has.
        changes: True if the samples that are kept are changed.
        selects: True if any option is given.

    Raises:
        UsageError: an option is not valid.
        DataError: a list of keys is not one.
        MissingInputError: a list of keys does not exist.
        StreamError: a list of keys cannot be read, or there is no room to sort it.
    """

    @keywords_of(SelectionOptions)
    def __init__(self, **options: Unpack[SelectionOptions]) -> None:
        self._options = options
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.lacking: dict[str, int] = {}
        self.unknown_keys: dict[str, tuple[int, list[str]]] = {}
        self.unknown_values: list[str] = []
        self._where: Where | None = None
        self._lists: dict[str, KeyList] = {}
        self._fields = _names(options.get("fields"))
        self._drop = frozenset(_names(options.get("drop_fields")))
        self._rename = _renaming(options.get("rename"))
        self._rekey = _key_template(options.get("rekey"))
        self._conditions: list[tuple[str, Callable[[Sample], bool]]] = []
        if (match := options.get("match")) is not None:
            found = _pattern(match, "match").search
            self._conditions.append(("match", lambda sample: found(sample["__key__"]) is not None))
        self._unseen = {
            **dict.fromkeys(self._fields, "fields"),
            **dict.fromkeys(self._drop, "fields to drop"),
            **dict.fromkeys(self._rename.values(), "rename"),
        }
        if (where := options.get("where")) is not None:
            from tarkit.steps.where import Where

            self._where = Where(where)
            self._conditions.append(("where", self._where))
            self._unseen |= dict.fromkeys(self._where.fields, "where")
        for name, source in (("keys", options.get("keys")), ("without_keys", options.get("without_keys"))):
            if source is not None:
                from tarkit.steps.keylists import KeyList

                self._lists[name] = KeyList(source)
        self.changes = bool(self._fields or self._drop or self._rename or self._rekey)
        self.selects = bool(self.changes or self._conditions or self._lists)
        self._others: dict[str, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lists.clear()

    def again(self) -> Selection:
        """Return a new selection with the same options, for another pass over the samples."""
        return Selection(**self._options)

    def select(self, samples: Iterable[Sample], *, last: bool = True) -> Iterator[Sample]:
        """Yield the selected samples, changed as the options say.

        Args:
            last: True to check at their end that each named field was in a sample; False if more
                samples follow in a later call.

        Raises:
            DataError: no sample has a field that an option names, or a new name is taken.
        """
        yield from (found for sample in samples if (found := self.apply(sample)) is not None)
        if last:
            self.check()

    def apply(self, sample: Sample) -> Sample | None:
        """Return a sample, changed as the options say, or None if it is not selected.

        After the last sample, call :meth:`check`.

        Raises:
            DataError: a new name is taken, or a condition does not fit the sample.
        """
        return self._changed(sample) if self._keeps(sample) else None

    def _keeps(self, sample: Sample) -> bool:
        """Return True if a sample meets the conditions; count it if not."""
        if self._unseen:
            for name in [name for name in self._unseen if any(map(sample.__contains__, name.split("|")))]:
                del self._unseen[name]
            if len(self._others) < _MOST_FIELDS:
                self._others |= dict.fromkeys(name for name in sample if not is_reserved(name))
        # All lists are asked, so that each knows the keys that it has for nothing.
        wrong = [name for name, keys in self._lists.items() if (sample["__key__"] in keys) is not (name == "keys")]
        tests = (option for option, holds in self._conditions if not holds(sample))
        failed = wrong[0] if wrong else next(tests, None)
        if failed is not None:
            self.dropped[failed] += 1
        return failed is None

    def _changed(self, sample: Sample) -> Sample | None:
        """Return a sample that is kept, changed; None if no field is left of it."""
        if self.changes:
            made = only_fields(sample, self._fields, self.lacking) if self._fields else dict(sample)
            for name in self._drop:
                made.pop(name, None)
            if all(map(is_reserved, made)):
                self.dropped["fields" if self._fields else "drop_fields"] += 1
                return None
            sample = self._renamed(made)
            if self._rekey is not None:
                sample["__key__"] = _PLACE.sub(self._part_of_key(sample["__key__"]), self._rekey)
        self.kept += 1
        return sample

    def _part_of_key(self, key: str) -> Callable[[re.Match[str]], str]:
        return lambda place: "%" if place[1] else key if place[2] else f"%{place[3]}" % self.kept

    def _renamed(self, sample: Sample) -> Sample:
        moved = {}
        for new, old in self._rename.items():
            if (name := next(filter(sample.__contains__, old.split("|")), None)) is not None:
                moved[name] = new
        made = {moved.get(name, name): value for name, value in sample.items()}
        if len(made) < len(sample):
            taken = next(new for old, new in moved.items() if new in sample and new not in moved)
            reason = f"rename: the sample has a field {printable(taken)!r} already"
            hint = f"drop the field {printable(taken)!r}, too"
            raise DuplicateFieldError(reason, url=sample.get("__url__"), key=sample["__key__"], hint=hint)
        return made

    @property
    def lists(self) -> list[str]:
        """Paths and URLs of the lists of keys."""
        return [keys.url for keys in self._lists.values()]

    @property
    def unseen(self) -> bool:
        """True if an option names a field that no sample had so far."""
        return bool(self._unseen)

    def check(self) -> None:
        """Check, after the last sample, that each field named by an option was in a sample.

        Raises:
            DataError: a field was in no sample; its name is probably misspelt.
        """
        if self._unseen and self._others:
            name, option = next(iter(self._unseen.items()))
            near = difflib.get_close_matches(name, self._others, 1, 0.5)
            hint = f"did you mean {printable(near[0])}? " if near else ""
            reason = f"{option}: no sample has the field {printable(name)!r}"
            raise DataError(reason, hint=f"{hint}the samples have {field_list(self._others)}")
        values = self._where.found if self._where is not None else {}
        self.unknown_values = [name for name, is_found in values.items() if not is_found]
        self.unknown_keys = {name: found for name, keys in self._lists.items() if (found := keys.not_found())[0]}


def _names(names: str | Iterable[str] | None) -> list[str]:
    found = field_names(names) if isinstance(names, str) else list(names or ())
    if names is not None and not found:
        raise UsageError("no fields are named")
    return list(dict.fromkeys(found))


def _renaming(rename: Mapping[str, str] | Iterable[str] | None) -> dict[str, str]:
    """Return new name -> old name."""
    if isinstance(rename, Mapping):
        pairs = list(rename.items())
    else:
        texts = field_names(rename) if isinstance(rename, str) else [*map(str, rename or ())]
        pairs = [(new, old) for new, _, old in (text.partition("=") for text in texts)]
    olds: list[str] = [name for _, old in pairs for name in old.split("|")]
    if not all(olds) or not all(new for new, _ in pairs):
        raise UsageError("rename takes NEW=OLD, such as jpg=jpeg")
    if len({*olds}) < len(olds) or len(dict(pairs)) < len(pairs):
        raise UsageError("rename names a field twice")
    return dict(pairs)


def _key_template(text: str | None) -> str | None:
    places = [] if text is None else list(_PLACE.finditer(text))
    if text is not None and (any(place[0] == "%" for place in places) or all(place[1] for place in places)):
        raise UsageError(f"rekey {quoted(text)}: write %s for the old key, %06d for a number, and %% for a percent")
    return text


def _pattern(text: str, option: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"{option} {quoted(text)} is not a regular expression: {error}") from None
