"""How a sample is a record, and a record a sample."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass

from tarkit.errors import DataError, UsageError, printable
from tarkit.formats.example import decode_example, encode_example
from tarkit.formats.tally import DEFAULT_MEM, Tally
from tarkit.samples.sample import KeyRule, Sample, first_dot, is_reserved
from tarkit.store.url import display_name


@dataclass(frozen=True)
class Encoding:
    """How samples are records. field: one field of each; example: a tf.train.Example; piece: a piece of the tar.

    files: a file for each field. Without one of them: files where a format holds files, else a piece.
    rule, on_repeated_key, mem: as for read_samples. on_others, on_same_extension: as for har_samples."""

    field: str | None = None
    example: bool = False
    piece: bool = False
    files: bool = False
    rule: str | KeyRule = first_dot
    on_repeated_key: str = "error"
    on_others: str = "error"
    on_same_extension: str = "error"
    mem: int = DEFAULT_MEM

    def __post_init__(self) -> None:
        if (self.field is not None) + self.example + self.piece + self.files > 1:
            raise UsageError("a record is a field, an Example, a piece of a tar or a file: only one of them")

    @property
    def is_default(self) -> bool:
        """Whether it depends on the formats."""
        return self.field is None and not (self.example or self.piece or self.files)

    @property
    def suffix(self) -> str:
        """What follows the key of a sample in the name of a file."""
        return "" if self.files else f".{self.field}" if self.field else ".example" if self.example else ".tar"


DEFAULT = Encoding()


def content_of(sample: Sample, encoding: Encoding) -> bytes:
    """The record that a sample is: one of its fields, or an Example. Raises: DataError: it has not that field."""
    fields = {name: value for name, value in sample.items() if not is_reserved(name)}
    if encoding.field is None:
        return encode_example({"__key__": sample["__key__"].encode("utf-8", "surrogateescape"), **fields})
    if encoding.field not in fields:
        has = ", ".join(map(printable, fields)) or "none"
        raise DataError(
            f"the sample has no field {printable(encoding.field)}; it has {has}",
            url=sample["__url__"],
            key=sample["__key__"],
        )
    content: bytes = fields[encoding.field]
    return content


def sample_of(url: str, key: str, content: bytes, encoding: Encoding, tally: Tally) -> Sample:
    """The sample that a record is. tally: counts features without a value.
    Raises: DataError: it is not an Example, or one whose features cannot be fields."""
    if encoding.field is not None:
        return {"__key__": key, encoding.field: content}
    sample: Sample = {"__key__": key}
    try:
        features = decode_example(content)
    except DataError as error:
        error.url, error.key, error.hint = display_name(url), key, "say what the records are, with --field FIELD"
        raise
    for name, values in features.items():
        if name == "__url__":
            reason = "a feature is called __url__, which in a sample is the shard that it comes from; call it url"
            raise DataError(reason, url=display_name(url), key=key)
        if name == "__key__" and values is not None and len(values) == 1 and isinstance(values[0], bytes):
            sample["__key__"] = values[0].decode("utf-8", "surrogateescape")
            continue
        field = f"{name}.json" if isinstance(values, array) else name
        if field in sample:
            raise DataError(f"two features become the field {printable(field)}", url=display_name(url), key=key)
        if isinstance(values, array):
            sample[field] = json.dumps(values.tolist()).encode()
        elif not values:
            tally.skip("empty-feature")
        elif len(values) == 1:
            sample[field] = values[0]
        else:
            reason = f"feature {printable(name)} has {len(values)} values of bytes; a field has one"
            raise DataError(reason, url=display_name(url), key=key)
    return sample
