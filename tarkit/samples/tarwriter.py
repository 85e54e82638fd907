"""Write samples to one tar shard.

The same samples give the same bytes, for every user, place and time: time stamps are 0 unless
requested, owner and mode are fixed, fields are sorted. Headers are ustar; only where a name or size
needs more, a PAX header is added, or the form of GNU tar. Names and arguments are those of
webdataset 1.0.2's writer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, cast
from zlib import adler32

from tarkit.errors import EncodeError, StreamError, UsageError
from tarkit.formats.tally import check_policy
from tarkit.formats.tar import headers
from tarkit.formats.tar.headers import BLOCK, RECORD
from tarkit.samples.sample import (
    REPEATED_KEY_POLICIES,
    KeyRule,
    first_dot,
    is_bookkeeping,
    is_reserved,
    key_rule,
    skip_reason,
)
from tarkit.store.compression import check_tar_name
from tarkit.store.fieldfile import FieldFile
from tarkit.store.publish import FileWriter

if TYPE_CHECKING:
    from tarkit.samples.codecs import Encoder
    from tarkit.samples.writtenindex import WrittenIndex
else:
    Encoder = Any  # for typing.get_type_hints

_PADDING = [bytes(-size % BLOCK) for size in range(BLOCK)]
_FLUSH_AT = 1024 * 1024
_DIRECT_FROM = 256 * 1024
_FILE_FROM = 64 * 1024

_Plan = list[tuple[str, bytes]]


def default_mtime() -> int:
    """Return the time stamp of members: ``SOURCE_DATE_EPOCH`` in seconds since 1970, or 0.

    Source: reproducible-builds.org, "SOURCE_DATE_EPOCH specification".

    Raises:
        UsageError: the variable is not a number.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"SOURCE_DATE_EPOCH is {text!r}; it must be a number of seconds since 1970")
    return int(text)


class TarWriterOptions(TypedDict, total=False):
    """Keyword arguments of :class:`TarWriter`, which describes them."""

    user: str
    group: str
    mode: int
    compress: bool | str | None
    encoder: Encoder
    keep_meta: bool
    mtime: float | None
    format: int | str | None
    on_repeated_key: str
    rule: str | KeyRule
    checksum: bool | str
    index: bool


class TarWriter(FileWriter):
    """A writer of samples to one tar shard.

    A context manager: on a clean exit the shard is published whole under its name; on an exception
    nothing appears there. ``close()`` publishes, ``discard()`` leaves nothing.

    >>> with TarWriter("train-0.tar") as writer:  # doctest: +SKIP
    ...     writer.write({"__key__": "cat", "jpg": image, "cls": 3, "json": {"width": 640}})

    Args:
        fileobj: path, URL, ``-``, ``pipe:COMMAND``, or an open binary file, which stays open.
        user: owner of all members.
        group: group of all members.
        mode: permission bits of all members.
        compress: None: by the ending of the name; False, True (gzip), gz, bz2, xz, zst, lz4, or
            zst-seekable: zst in frames of 1 MiB with a table of them, for random access.
        encoder: True: encode by extension (:mod:`tarkit.samples.codecs`); False or None: accept
            bytes only; or a dict of extension -> function, or a function from sample to sample.
        keep_meta: True to write entries of the form ``__name__``, too, except ``__key__``; readers
            skip them. False: metadata of readers (``__url__`` and so on) is left out, and every
            other such name is an error.
        mtime: seconds since 1970 for all members; None: :func:`default_mtime`.
        format: format of names and sizes that do not fit a ustar header: ``pax`` (also None),
            ``gnu`` (long names and base-256 sizes of GNU tar) or ``ustar`` (rejects them); or one
            of tarfile's constants such as ``GNU_FORMAT``.
        on_repeated_key: error; or allow to write a key that this shard has already, but not for two
            adjacent samples, which would be read back as one.
        rule: key rule by which the shard will be read; keys and fields that would be read back
            differently are rejected.
        checksum: True to compute the SHA-256 of the file, for :meth:`checksum_of_file`; or the name
            of a different digest, ``md5``.
        index: True to write the index of the shard beside it, after the shard is published
            (``docs/formats/tar-index.md``). The shard's name must end in ``.tar``, or in
            ``.tar.zst``, which is then written as zst-seekable; repeated keys are a UsageError.

    Raises:
        EncodeError: (from write) a value cannot be encoded, or a key or field cannot be a name.
        StreamError: the shard, or (from close, when the shard is published) its index cannot be
            written.
    """

    _unit = "sample"

    def __init__(
        self,
        fileobj: str | os.PathLike[str] | BinaryIO,
        user: str = "bigdata",
        group: str = "bigdata",
        mode: int = 0o0444,
        compress: bool | str | None = None,
        encoder: Encoder = True,
        keep_meta: bool = False,
        mtime: float | None = None,
        format: int | str | None = None,
        *,
        on_repeated_key: str = "error",
        rule: str | KeyRule = first_dot,
        checksum: bool | str = False,
        index: bool = False,
    ) -> None:
        check_policy("on_repeated_key", on_repeated_key, REPEATED_KEY_POLICIES)
        if index and on_repeated_key != "error":
            raise UsageError("a shard with repeated keys has no index")
        compression: bool | str | None = "auto" if compress is None else compress
        if compression == "auto" and isinstance(fileobj, (str, os.PathLike)):
            check_tar_name(os.fspath(fileobj))
        self._index: WrittenIndex | None = None
        if index:
            from tarkit.samples.writtenindex import WrittenIndex

            self._index = WrittenIndex(fileobj, compression)
            compression = self._index.compression
        self.keep_meta = keep_meta
        self.bytes_written = 0
        self._encode = None
        if encoder:
            from tarkit.samples.codecs import make_encoder

            self._encode = make_encoder(encoder)
        self._seen: set[str] | None = set() if on_repeated_key == "error" else None
        self._last_key: str | None = None
        self._rule = key_rule(rule)
        self._plans: dict[tuple[str, ...], _Plan] = {}
        try:
            seconds = default_mtime() if mtime is None else int(mtime)
            self._template = headers.header_template(
                mode=mode, mtime=seconds, user=user, group=group, format=_format_name(format)
            )
        except UsageError:
            raise
        except (ValueError, OverflowError, TypeError, AttributeError) as error:
            raise UsageError(
                f"user {user!r}, group {group!r}, mode {mode!r} or mtime {mtime!r} cannot be in a header: {error}"
            ) from None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._ended = False
        name = "sha256" if checksum is True else checksum
        digest = hashlib.new(name, usedforsecurity=False) if name else None
        super().__init__(fileobj, compression)
        self._out.digest = digest

    @property
    def samples(self) -> int:
        """Number of samples written."""
        return self.records

    def write(self, obj: Mapping[str, Any]) -> int:
        """Write one sample: ``__key__`` and its fields, in sorted order.

        Nothing of a sample is written if any part of it is rejected.

        Args:
            obj: the sample: ``__key__``, and a value for each field.

        Returns:
            Size of the content in bytes, without headers.
        """
        pieces, size, key, plan = self._prepare(obj)
        self._append(pieces, size, key, plan)
        self._written.count += 1
        return size

    def write_all(self, samples: Sequence[Mapping[str, Any]]) -> int:
        """Write several samples, or none of them if one is rejected.

        Args:
            samples: the samples, each like that of :meth:`write`.

        Returns:
            Size of the content in bytes, without headers.
        """
        prepared = []
        last_key = self._last_key
        try:
            for sample in samples:
                prepared.append(self._prepare(sample))
        except BaseException:
            self._last_key = last_key
            if self._seen is not None:
                self._seen.difference_update(key for _, _, key, _ in prepared)
            raise
        for each in prepared:
            self._append(*each)
        self._written.count += len(prepared)
        return sum(size for _, size, _, _ in prepared)

    def write_raw(self, samples: Iterable[tuple[object, Sequence[bytes | FieldFile], int, bytes]]) -> int:
        """Write samples with the headers that they have; their keys are not compared with others.

        Args:
            samples: of each sample its key or place, which is not used; the bytes of its members,
                headers and padding included; the number of these bytes; and place and name of each
                member, see :class:`tarkit.samples.rawsamples.RawSample`.

        Returns:
            Number of samples.
        """
        number = 0
        add = None if self._index is None else self._index.add_raw
        for _, parts, size, words in samples:
            number += 1
            if add is not None:
                add(words, size)
            for part in parts:
                if isinstance(part, bytes) and len(part) < _DIRECT_FROM:
                    self._pending.append(part)
                    self._pending_bytes += len(part)
                else:
                    self._write_now(part)
            if self._pending_bytes >= _FLUSH_AT:
                self._flush()
        self._written.count += number
        return number

    def _prepare(self, obj: Mapping[str, Any]) -> tuple[list[bytes | FieldFile], int, str, _Plan]:
        """Check one sample; return its blocks, the size of its content, its key and its fields."""
        if self._ended:
            raise StreamError("the shard is closed, so no sample can be written to it", url=self.name)
        sample = obj if self._encode is None else self._encode(obj)
        key = sample.get("__key__")
        if type(key) is not str:
            raise EncodeError(f"a sample needs a __key__ that is a str, not {type(key).__name__}", url=self.name)
        names = tuple(sample)
        plan = self._plans.get(names) or self._plan(names, key)
        # Most keys pass this short test; all others are checked in full.
        if not key or "." in key or key[0] == "_" or key[-1] == "/" or "\0" in key or self._rule is not first_dot:
            self._check_names(key, plan)
        if self._seen is not None and key in self._seen:
            raise EncodeError(
                "the key was written before", url=self.name, key=key, hint="keys must be unique in a shard"
            )
        if key == self._last_key:
            reason = "the sample right before has the same key, and the two would be read back as one"
            raise EncodeError(reason, url=self.name, key=key, hint="give them different keys")
        middles, ends = self._template.middles, self._template.ends
        raw_key = key.encode("ascii") if key.isascii() else self._as_utf8(key, key)
        pieces: list[bytes | FieldFile] = []
        total = 0
        for field, suffix in plan:
            value = sample[field]
            if type(value) is not bytes:
                value = self._as_bytes(value, field, key)
            name = raw_key + suffix
            size = len(value)
            if len(name) <= 100 and size <= headers.MAX_SIZE:
                middle, checksum = middles[size]
                # The low half of Adler-32 is one more than the sum of the bytes (RFC 1950),
                # which for so few bytes never reaches its modulus.
                end = ends[checksum + (adler32(name) & 0xFFFF) - 1]
                pieces.append(name.ljust(100, b"\0") + middle + end)
            else:
                try:
                    pieces.append(self._template.encode_any(name, size))
                except ValueError as error:
                    raise EncodeError(f"field {field!r}: {error}", url=self.name, key=key) from None
            pieces.append(value)
            pieces.append(_PADDING[size & 511])
            total += size
        if self._seen is not None:
            self._seen.add(key)
        self._last_key = key
        return pieces, total, key, plan

    def _plan(self, names: tuple[str, ...], key: str) -> _Plan:
        """Select the names that are fields, in order, each with the end of its member name."""
        plan: _Plan = []
        for field in sorted(name for name in names if name != "__key__"):
            try:
                if not self.keep_meta and is_bookkeeping(field):
                    continue
            except EncodeError as error:
                error.url, error.key = self.name, key
                raise
            if "/" in field or "\0" in field or (not is_reserved(field) and skip_reason(f"k.{field}") is not None):
                raise EncodeError(f"{field!r} cannot be the field of a member's name", url=self.name, key=key)
            plan.append((field, b"." + self._as_utf8(field, key)))
        if not plan:
            raise EncodeError("the sample has no fields, so nothing would be written", url=self.name, key=key)
        if len(self._plans) < 10_000:
            self._plans[names] = plan
        return plan

    def _check_names(self, key: str, plan: _Plan) -> None:
        """Reject a key that would be read back differently."""
        for field, _ in plan:
            name = f"{key}.{field}"
            back = None if "\0" in key or skip_reason(name, self._rule) is not None else self._rule(name)
            if back != (None if is_reserved(field) else (key, field)):
                found = f"key {back[0]!r} and field {back[1]!r}" if back else "no sample"
                reason = f"member {name!r} would be read back as {found}"
                hint = "choose a key without a dot after its last slash, or another key rule"
                raise EncodeError(reason, url=self.name, key=key, hint=hint)

    def _as_utf8(self, text: str, key: str) -> bytes:
        """Encode a key or field, if it is read back as the same text."""
        try:
            raw = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raw = b""
        if raw.decode("utf-8", "surrogateescape") != text:
            raise EncodeError(f"{text!r} is not text that can be a member's name", url=self.name, key=key)
        return raw

    def _as_bytes(self, value: object, field: str, key: str) -> bytes | FieldFile:
        if isinstance(value, FieldFile):
            return value if len(value) >= _FILE_FROM else value.read()
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, str) and is_reserved(field):
            return value.encode("utf-8")
        reason = f"field {field!r} is {type(value).__name__}, not bytes"
        raise EncodeError(reason, url=self.name, key=key, hint="encode it, or use an encoder that does")

    def _append(self, pieces: list[bytes | FieldFile], content_bytes: int, key: str, plan: _Plan) -> None:
        if self._index is not None:
            self._index.add(key, plan, pieces)
        self.bytes_written += content_bytes
        self._pending_bytes += content_bytes + BLOCK * len(pieces)
        if content_bytes < _FILE_FROM:
            self._pending += cast("list[bytes]", pieces)  # as _as_bytes() has it
            if self._pending_bytes >= _FLUSH_AT:
                self._flush()
            return
        for piece in pieces:
            if isinstance(piece, bytes) and len(piece) < _DIRECT_FROM:
                self._pending.append(piece)
                continue
            # Joining would only copy content that is large enough for a write of its own.
            self._write_now(piece)
        if self._pending_bytes >= _FLUSH_AT:
            self._flush()

    def _write_now(self, piece: bytes | FieldFile) -> None:
        self._flush()
        try:
            self._out.write(piece)
        except BaseException as error:
            # A part of it is written, and nothing can follow that: close() raises this error, too.
            self._ended = True
            self._out.fail(error)
            raise

    def _flush(self) -> None:
        self._out.write(b"".join(self._pending))
        self._pending = []
        self._pending_bytes = 0

    def separate(self) -> None:
        """End the archive, and begin a new one in the same file, so that no sample spans both.

        Two adjacent samples may then have the same key. tarkit reads the archive after the mark, as
        does GNU tar with ``--ignore-zeros``; readers that stop at the mark see only what is before
        it.
        """
        self._pending.append(headers.END_OF_ARCHIVE)
        self._last_key = None
        if self._index is not None:
            self._index.pass_over(len(headers.END_OF_ARCHIVE))

    def _write_rest(self) -> None:
        self._ended = True
        self._flush()
        self._out.write(headers.END_OF_ARCHIVE)
        self._out.write(bytes(-self._out.bytes_written % RECORD))

    def checksum_of_file(self) -> tuple[int, str | None]:
        """Return the bytes of the file and its digest in hex, if requested; after close()."""
        digest = self._out.digest
        return self._out.bytes_sent, None if digest is None else digest.hexdigest()

    @property
    def indexed(self) -> int:
        """Number of samples in the shard's index, without those that have metadata only.

        0 if no index is written.
        """
        return 0 if self._index is None else len(self._index)

    def close(self) -> None:
        """Publish the shard, and then its index.

        A second call does nothing.
        """
        index = None if self.closed else self._index
        if index is not None:
            index.remove_earlier()
        super().close()
        if index is not None:
            index.publish()

    def discard(self) -> None:
        self._ended = True
        self._pending = []
        super().discard()


def _format_name(format: int | str | None) -> str:
    """Return one of headers.FORMATS, also from the numbers and names of the module tarfile."""
    numbers = {0: "ustar", 1: "gnu", 2: "pax", None: "pax"}
    name = format.removesuffix("_FORMAT").lower() if isinstance(format, str) else numbers.get(format, "")
    if name not in headers.FORMATS:
        raise UsageError(f"tar format {format!r} is not written; it must be one of {', '.join(headers.FORMATS)}")
    return name
