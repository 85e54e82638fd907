"""Texts for the values of fields: what people can read, within limits."""

from __future__ import annotations

import gzip
import io

import pytest

from tarkit.samples.codecs import encode_field
from tarkit.steps.fieldvalues import MOST_BYTES, value_text

np = pytest.importorskip("numpy")


VALUES: list[tuple[str, object, str | None]] = [
    ("cls", b"7", "7"),
    ("txt", "é\t日本\n".encode(), "é\t日本\n"),
    ("json", b'{"a": 1}', '{"a": 1}'),
    ("json", b"{not json", "{not json"),
    ("JSON.gz", gzip.compress(b'{"a": 1}'), '{"a": 1}'),
    ("unknown", b"text", "text"),
    ("svg", b"<svg/>", "<svg/>"),
    ("txt", b"", ""),
    ("bin", b"\x00\x01", None),
    ("bin", b"\x01\x1b", "\x01\x1b"),
    ("bin", b"\xff\xfe", None),
    ("pyd", b"\x80\x04.", None),
    ("txt.gz", b"\x1f\x8bxx", "(Error -3 while decompressing data: unknown compression method)"),
    ("txt.gz", gzip.compress(bytes(MOST_BYTES + 1)), "(it has more than 1048576 bytes once it is decompressed; "),
    ("npy", b"not an array", "(field 'npy' cannot be decoded"),
    ("npy", b"\x93NUMPY" + bytes(MOST_BYTES), None),
    ("mp4.range", range(10**9), None),
    ("none", None, None),
]


@pytest.mark.parametrize(
    ("field", "content", "text"), VALUES, ids=[f"{number}-{field}" for number, (field, _, _) in enumerate(VALUES)]
)
def test_value_text(field: str, content: object, text: str | None) -> None:
    found = value_text(field, content, 1000)
    assert found == text or (text is not None and text.startswith("(") and str(found).startswith(text))


def test_binary_formats() -> None:
    assert (
        value_text("npy", encode_field("npy", np.arange(6.0).reshape(2, 3)), 99)
        == "float64 2×3: 0.0 1.0 2.0 3.0 4.0 5.0"
    )
    assert value_text("npy", encode_field("npy", np.arange(99)), 99) == f"int64 99: {' '.join(map(str, range(16)))} …"
    assert value_text("npy", encode_field("npy", np.array(True)), 99) == "bool : True"
    pytest.importorskip("msgpack")
    assert value_text("mp", encode_field("mp", {"a": [1, None]}), 99) == "{'a': [1, None]}"
    stream = io.BytesIO()
    np.save(stream, np.array([object()]), allow_pickle=True)
    assert str(value_text("npy", stream.getvalue(), 99)).startswith("(field 'npy' cannot be decoded")


@pytest.mark.parametrize("character", ["x", "é", "日", "🙂"])
def test_a_long_text_is_cut(character: str) -> None:
    """Also where the cut is in the middle of a character's bytes."""
    content = character.encode() * 300_000
    for most in range(1, 9):
        assert value_text("txt", b"." + content, most) == f".{character * 9}"[:most] + "…"
    assert value_text("txt", character.encode() * 5, 5) == character * 5
