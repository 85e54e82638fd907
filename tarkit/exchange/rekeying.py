"""Give the samples of different inputs different keys."""

from __future__ import annotations

from tarkit.errors import DataError, printable
from tarkit.formats.tar.headers import BLOCK, HeaderTemplate
from tarkit.samples.rawsamples import RawSample, piece_of
from tarkit.samples.sample import KeyRule, skip_reason
from tarkit.samples.tarwriter import default_mtime
from tarkit.store.fieldfile import FieldFile


class Rekeyed:
    """A function that puts the number of its input before the key of a sample.

    Args:
        rule: key rule, by which the new names must be those of the same fields.
    """

    def __init__(self, rule: KeyRule) -> None:
        self._rule = rule
        self._template = HeaderTemplate(
            mode=0o444, mtime=default_mtime(), user="bigdata", group="bigdata", format="pax"
        )

    def __call__(self, sample: RawSample, shard: int, url: str) -> RawSample:
        """Return the sample with a new key and new headers.

        Raises:
            DataError: with the new key, names are not read as the same fields.
        """
        prefix = f"{shard:06d}/".encode()
        words = sample.words.split(b"\0")
        parts, made, at = list[bytes | FieldFile](), b"", 0
        key = prefix.decode() + sample.key
        for field, offset, size, old in zip(*(iter(words[:-1]),) * 4, strict=True):
            name, length = prefix + old, int(size)
            text, wanted = name.decode("utf-8", "surrogateescape"), field.decode("utf-8", "surrogateescape")
            if skip_reason(text, self._rule) is not None or self._rule(text) != (key, wanted):
                hint = "use a key rule that allows a folder before the key"
                reason = f"with --rekey, member {printable(text)!r} would not be field {printable(wanted)!r} of {key!r}"
                raise DataError(reason, url=url, key=sample.key, hint=hint)
            head = self._template.encode_any(name, length)
            parts += (head, piece_of(sample.parts, int(offset), length), bytes(-length % BLOCK))
            made += b"%b\0%d\0%d\0%b\0" % (field, at + len(head), length, name)
            at += len(head) + length + -length % BLOCK
        return RawSample(key, tuple(part for part in parts if len(part)), at, made)
