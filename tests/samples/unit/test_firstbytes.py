"""The first bytes of fields, against files that other libraries write."""

from __future__ import annotations

import gzip
import io
import json
import wave
import zipfile

import numpy as np
import pytest
from PIL import Image

from tarkit.samples.firstbytes import why_other_content


def picture(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (200, 30, 30)).save(stream, kind)
    return stream.getvalue()


def sound() -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(100))
    return stream.getvalue()


def array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


def archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a", "b")
    return stream.getvalue()


FILES = {
    "jpg": picture("JPEG"),
    "png": picture("PNG"),
    "gif": picture("GIF"),
    "webp": picture("WEBP"),
    "bmp": picture("BMP"),
    "tif": picture("TIFF"),
    "ppm": picture("PPM"),
    "wav": sound(),
    "npy": array(),
    "npz": archive(),
    "gz": gzip.compress(b"a"),
    "json": json.dumps({"a": [1]}).encode(),
}
HTML = b"\n<!-- busy --><!DOCTYPE html><html><body>Please wait</body></html>"


@pytest.mark.parametrize("field", FILES)
def test_a_field_has_what_its_extension_says_and_nothing_else(field: str) -> None:
    assert why_other_content(f"a.{field.upper()}", FILES[field]) is None
    for other, content in FILES.items():
        is_same = other == field
        assert (why_other_content(field, content) is None) == is_same, other
    assert why_other_content(field, HTML) == "it is a page of HTML"
    assert why_other_content(field, b"") is not None


def test_a_message_says_what_it_is() -> None:
    assert why_other_content("jpg", FILES["png"]) == "it is not jpg: it looks like a PNG image"


@pytest.mark.parametrize("field", ["txt", "bin", "caption", "mp3"])
def test_html_is_refused_in_other_fields(field: str) -> None:
    assert why_other_content(field, HTML) is not None


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("html", HTML),
        ("svg", b"<svg><foreignObject><body></body></foreignObject></svg>"),
        ("txt", b"a <html> tag"),
        ("unknown", b"\x00"),
        ("jpeg", FILES["jpg"]),
        ("mp4", b"\x00\x00\x00\x18ftypmp42"),
        ("mp3", b"\xff\xfb\x90\x00"),
    ],
)
def test_what_is_accepted(field: str, content: bytes) -> None:
    assert why_other_content(field, content) is None
