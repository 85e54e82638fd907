"""Make the members of samples whose names are new: headers before content that is kept."""

from __future__ import annotations

from collections.abc import Iterable

from tarkit.errors import DataError, printable
from tarkit.formats.tar.headers import BLOCK, HeaderTemplate
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import KeyRule, skip_reason
from tarkit.samples.tarwriter import default_mtime
from tarkit.store.fieldfile import FieldFile


class NewMembers:
    """A maker of raw samples.

    Args:
        rule: key rule by which the names must be read as the same keys and fields.
        option: the option that makes new names, for errors.
        hint: what to do if names are read as other ones.
        mtime: time of the members in seconds since 1970; None: 0, or that of SOURCE_DATE_EPOCH.
        format: tar format of names and sizes that do not fit a ustar header.
    """

    def __init__(self, rule: KeyRule, option: str, hint: str, mtime: float | None = None, format: str = "pax") -> None:
        self._rule, self._option, self._hint = rule, option, hint
        seconds = default_mtime() if mtime is None else int(mtime)
        self._template = HeaderTemplate(mode=0o444, mtime=seconds, user="bigdata", group="bigdata", format=format)

    def sample(self, key: str, members: Iterable[tuple[str, bytes, bytes | FieldFile]], *, url: str) -> RawSample:
        """Return a sample.

        Args:
            key: its key.
            members: (field, name, content) of each member.
            url: its shard or table, for errors.

        Raises:
            DataError: a name is not read as its key and field, or does not fit the format.
        """
        parts, words, at = list[bytes | FieldFile](), b"", 0
        for field, name, content in members:
            text = name.decode("utf-8", "surrogateescape")
            if skip_reason(text, self._rule) is not None or self._rule(text) != (key, field):
                found = f"member {printable(text)!r} would not be field {printable(field)!r} of {printable(key)!r}"
                raise DataError(f"with {self._option}, {found}", url=url, key=key, hint=self._hint)
            size = len(content)
            try:
                head = self._template.encode_any(name, size)
            except ValueError as error:
                raise DataError(f"field {printable(field)!r}: {error}", url=url, key=key) from None
            parts += (part for part in (head, content, bytes(-size % BLOCK)) if len(part))
            words += b"%b\0%d\0%d\0%b\0" % (field.encode("utf-8", "surrogateescape"), at + len(head), size, name)
            at += len(head) + size + -size % BLOCK
        return RawSample(key, tuple(parts), at, words)
