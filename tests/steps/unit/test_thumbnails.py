"""Thumbnails: every mode, orientation, and files that are damaged or too large."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from typing import Any

import pytest

from tarkit.steps import thumbnails as module
from tarkit.steps.thumbnails import is_picture, thumbnail, thumbnails

np = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

RAMP = np.tile(np.linspace(0, 255, 300).astype("uint8"), (200, 1))
"""Black on the left to white on the right, 300 x 200."""


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def ramp(mode: str) -> Any:
    return Image.fromarray(RAMP).convert(mode)


def opened(content: bytes) -> Any:
    image = Image.open(io.BytesIO(content))
    assert (image.format, image.mode) == ("JPEG", "RGB")
    return image


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(ramp("RGB"), "JPEG", exif=exif)


PICTURES = {
    "JPEG": encoded(ramp("RGB"), "JPEG"),
    "JPEG L": encoded(ramp("L"), "JPEG"),
    "JPEG CMYK": encoded(ramp("CMYK"), "JPEG"),
    "PNG 1": encoded(Image.fromarray(RAMP > 127), "PNG"),
    "PNG P": encoded(ramp("P"), "PNG"),
    "PNG LA": encoded(ramp("LA"), "PNG"),
    "PNG RGBA": encoded(ramp("RGBA"), "PNG"),
    "PNG I;16": encoded(Image.fromarray(RAMP.astype("uint16") + 40_000), "PNG"),
    "TIFF I": encoded(Image.fromarray(RAMP.astype("int32") * -1000), "TIFF"),
    "TIFF F": encoded(Image.fromarray(RAMP.astype("float32") / 1e6), "TIFF"),
    "GIF": encoded(ramp("P"), "GIF"),
    "BMP": encoded(ramp("RGB"), "BMP"),
    "WEBP": encoded(ramp("RGB"), "WEBP"),
    "PPM": encoded(ramp("RGB"), "PPM"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_of_each_mode_is_recognizable(kind: str) -> None:
    """Grey values that 8 bits do not hold are spread, where a plain conversion would cut them."""
    content, note = thumbnail(PICTURES[kind], 60)
    # Releases of Pillow differ in the modes of grey GIF and PNG files.
    assert note in (f"300 × 200 {kind}", f"300 × 200 {kind} L", f"300 × 200 {kind} P", f"300 × 200 {kind[:5]}")
    grey = opened(content).convert("L")
    assert grey.size == (60, 40)
    left, right = (0, 255) if kind != "TIFF I" else (255, 0)
    assert abs(grey.getpixel((0, 20)) - left) < 12 and abs(grey.getpixel((59, 20)) - right) < 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_orientation_says(orientation: int) -> None:
    content, note = thumbnail(turned(orientation), 60)
    wanted = module.library("PIL.ImageOps", "", "images").exif_transpose(Image.open(io.BytesIO(turned(orientation))))
    assert note == f"{wanted.width} × {wanted.height} JPEG"
    found, wanted = opened(content), wanted.resize(opened(content).size)
    assert np.abs(np.asarray(found).astype(int) - np.asarray(wanted)).mean() < 6


def test_a_damaged_orientation_is_ignored() -> None:
    content, note = thumbnail(encoded(ramp("RGB"), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05garbage"), 60)
    assert (opened(content).size, note) == ((60, 40), "300 × 200 JPEG")


@pytest.mark.parametrize("kind", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(kind: str) -> None:
    image = Image.new("RGBA", (30, 20), (0, 0, 0, 0)).convert(kind)
    content = encoded(image, "PNG", **({"transparency": image.getpixel((0, 0))} if kind == "P" else {}))
    assert opened(thumbnail(content, 60)[0]).getextrema() == ((255, 255),) * 3


def test_small_and_thin_pictures() -> None:
    for size, wanted in (((3, 2), (3, 2)), ((1, 1), (1, 1)), ((5000, 1), (60, 1)), ((61, 60), (60, 59))):
        for kind in ("PNG", "JPEG"):
            content, _ = thumbnail(encoded(Image.new("RGB", size), kind), 60)
            assert opened(content).size == wanted


def test_values_that_are_not_finite() -> None:
    for values in ([[np.nan, 1.0]], [[np.inf, 1.0]], [[2.0, 2.0]]):
        assert thumbnail(encoded(Image.fromarray(np.array(values, "float32")), "TIFF"), 60)[1] == "2 × 1 TIFF F"


def cut_png() -> bytes:
    return encoded(Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 50, 3), "uint8")), "PNG")[:2000]


BROKEN = [
    (PICTURES["JPEG"][:1500], "truncated"),
    (cut_png(), "truncated"),
    (PICTURES["GIF"][:-100], "truncated"),
    (b"", "not a picture in a known format"),
    (b"<html>404</html>", "not a picture in a known format; it begins with b'<html>404</h"),
    # Pillow would start a program for it.
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not a picture in a known format"),
    (encoded(Image.new("1", (30_000, 6_500)), "PNG"), "195000000 pixels"),
    (encoded(Image.new("1", (9_000, 6_000)), "PNG"), "9000 × 6000 pixels are too many; at most 50,000,000"),
]


@pytest.mark.parametrize(("content", "reason"), BROKEN, ids=[reason for _, reason in BROKEN])
def test_the_reason_why_there_is_no_thumbnail(content: bytes, reason: str) -> None:
    found = thumbnails({"__key__": "a", "__url__": "a.tar", "jpg": content, "txt": b"no picture"}, 60)
    assert found.keys() == {"__key__", "jpg"}
    assert reason in json.loads(found["jpg"])["broken"]


def test_a_large_jpeg_is_scaled_while_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PIXELS", 5000)
    assert thumbnail(PICTURES["JPEG"], 60)[1] == "300 × 200 JPEG"  # as 75 x 50
    with pytest.raises(ValueError, match="300 × 200 pixels are too many"):
        thumbnail(PICTURES["WEBP"], 60)


def test_the_mapper_returns_json_of_each_picture() -> None:
    found = thumbnails({"__key__": "a", "jpg": PICTURES["WEBP"], "seg.png": PICTURES["PNG P"]}, 60)
    assert {name: json.loads(found[name])["note"] for name in ("jpg", "seg.png")} == {
        "jpg": "300 × 200 WEBP",
        "seg.png": "300 × 200 PNG P",
    }
    head, _, content = json.loads(found["jpg"])["src"].partition(",")
    assert head == "data:image/jpeg;base64" and opened(b64decode(content)).size == (60, 40)


def test_fields_of_pictures() -> None:
    assert [is_picture(name) for name in ("jpg", "a.PNG", "webp", "img")] == [True] * 4
    assert [is_picture(name) for name in ("svg", "jpg.gz", "txt", "__jpg__", "eps", "jpg.txt")] == [False] * 6
