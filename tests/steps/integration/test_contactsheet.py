"""Contact sheets: what is on the page, its limits, and decoders that crash."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.extras import MissingExtraError
from tarkit.samples.sample import Sample
from tarkit.steps import contactsheet as module
from tarkit.steps.contactsheet import MOST_SAMPLES, ContactSheet, contact_sheet
from tarkit.steps.thumbnails import thumbnails

Image = pytest.importorskip("PIL.Image")


def photo(shade: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (64, 48), (shade, 99, 0)).save(stream, "JPEG")
    return stream.getvalue()


PHOTO = photo()


def sample(key: str, **fields: Any) -> Sample:
    return {"__key__": key, "__url__": "s.tar", **fields}


def data_of(sheet: ContactSheet) -> Any:
    (block,) = re.findall(rb'<script type="application/json" id="data">(.*?)</script>', sheet.page)
    return json.loads(block)


def fields_of(sheet: ContactSheet, number: int) -> dict[str, Any]:
    return {field["name"]: field for field in data_of(sheet)["samples"][number]["fields"]}


def test_the_samples_are_on_the_page_in_order() -> None:
    shades = range(0, 250, 5)
    samples = [sample(f"k{n}", jpg=photo(n), cls=b"%d" % (n % 3), txt=b"text") for n in shades]
    done: list[int] = []
    sheet = contact_sheet(samples, title="t", edge=32, parallel=3, progress=done.append)
    assert (sheet.samples, sheet.lacks, sheet.broken, done) == (50, [], [], list(range(1, 51)))
    found = data_of(sheet)["samples"]
    assert [(each["key"], each["url"], each["class"]) for each in found] == [
        (f"k{n}", "s.tar", str(n % 3)) for n in shades
    ]
    for each, shade in zip(found, shades, strict=True):
        picture, label, text = each["fields"]
        image = Image.open(io.BytesIO(b64decode(picture["src"].partition(",")[2])))
        assert image.size == (32, 24) and abs(image.getpixel((9, 9))[0] - shade) < 5
        assert (picture["note"], label["text"], text["text"], text["bytes"]) == (
            "64 × 48 JPEG",
            str(shade % 3),
            "text",
            4,
        )
    assert contact_sheet(samples, title="t", edge=32, parallel=1).page == sheet.page


def test_a_picture_without_a_sample_and_a_sample_without_a_picture() -> None:
    """Thumbnails go to their own sample, also beside those that have none."""
    fields: list[dict[str, Any]] = [
        {},
        {"jpg": PHOTO},
        {"txt": b"x"},
        {"jpg": PHOTO[:300]},
        {"a.jpg": PHOTO, "b.jpg": b""},
        {},
    ]
    sheet = contact_sheet((sample(str(n), **each) for n, each in enumerate(fields)), title="t", parallel=2)
    shown = [{name for name, field in fields_of(sheet, n).items() if "src" in field} for n in range(6)]
    assert shown == [set(), {"jpg"}, set(), set(), {"a.jpg"}, set()]
    assert sheet.lacks == ["2 pictures could not be decoded."]
    assert [line.partition(": ")[0] for line in sheet.broken] == ["s.tar, key '3', jpg", "s.tar, key '4', b.jpg"]
    assert "runcated" in fields_of(sheet, 3)["jpg"]["broken"]


def test_the_number_of_samples_is_bounded() -> None:
    """Of an input without an end, no more is read than what shows that there is more."""
    read = []

    def endless() -> Iterator[Sample]:
        for number in itertools.count():
            read.append(number)
            yield sample(str(number), txt=b"x")

    sheet = contact_sheet(endless(), title="t", number=10)
    assert (sheet.samples, len(read)) == (10, 11)
    assert sheet.lacks == ["There are more samples: these are the first 10, as many as requested."]
    assert data_of(sheet)["lacks"] == sheet.lacks
    assert contact_sheet([sample("a")] * 10, title="t", number=10).lacks == []
    assert contact_sheet([], title="t").samples == 0
    with pytest.raises(UsageError, match="at most 2000 samples, not 2001; tarkit sample"):
        contact_sheet([], title="t", number=MOST_SAMPLES + 1)


def test_the_size_of_the_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole samples only; what is not ASCII takes more room."""
    monkeypatch.setattr(module, "_MOST_BYTES", 1_000_000)
    samples = [sample(str(number), txt="é".encode() * 1900) for number in range(200)]
    sheet = contact_sheet(samples, title="t")
    assert 80 < sheet.samples < 90 and 900_000 < len(sheet.page) < 1_020_000
    reason = f"these are the first {sheet.samples}, a page has at most 1 MB."
    assert sheet.lacks == [f"There are more samples: {reason}"]


def test_sound_and_video() -> None:
    fields = {"wav": b"RIFF", "x.MP4": b"mp4", "mp3": bytes(2_000_001), "flac": range(10**9), "wav.gz": b"\x1f\x8b"}
    found = fields_of(contact_sheet([sample("a", **fields)], title="t"), 0)
    assert (found["wav"]["src"], found["wav"]["type"]) == ("data:audio/wav;base64,UklGRg==", "audio/wav")
    assert found["x.MP4"]["src"] == "data:video/mp4;base64,bXA0"
    assert all(found[name]["why"] == "more than the 2 MB that can be played here" for name in ("mp3", "flac"))
    assert (found["flac"]["bytes"], "src" in found["mp3"], "src" in found["flac"]) == (10**9, False, False)
    assert found["wav.gz"] == {"name": "wav.gz", "bytes": 2, "text": "(its gzip stream is cut short)"}


def test_contents_that_were_not_read() -> None:
    """What stands for too large a content is not decoded, and is named."""
    sheet = contact_sheet([sample("a", jpg=range(10**9), txt=range(10**9), cls=b"x" * 5000)], title="t")
    found = fields_of(sheet, 0)
    assert sheet.broken == ["s.tar, key 'a', jpg: too large to be read"]
    assert found["txt"] == {"name": "txt", "bytes": 10**9, "text": None}
    assert len(found["cls"]["text"]) == 2001 and len(data_of(sheet)["samples"][0]["class"]) == 101


def crashing(sample: Sample, edge: int) -> Sample:
    if sample["__key__"] == "bad":
        os.kill(os.getpid(), signal.SIGSEGV)
    return thumbnails(sample, edge)


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_decoder_that_crashes_costs_its_sample_only(parallel: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "thumbnails", crashing)
    keys = ["a", "b", "bad", "c", "d", "e"]
    sheet = contact_sheet([sample(key, jpg=PHOTO, txt=b"x") for key in keys], title="t", parallel=parallel)
    assert [key for number, key in enumerate(keys) if "src" in fields_of(sheet, number)["jpg"]] == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]
    (line,) = sheet.broken
    assert line == "s.tar, key 'bad', jpg: the decoder failed: the mapper's process was killed by SIGSEGV"
    assert fields_of(sheet, 2)["txt"]["text"] == "x"


def test_without_pillow_there_are_no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, needed_for: str, extra: str) -> Any:
        raise MissingExtraError(needed_for, extra)

    monkeypatch.setattr(module, "library", missing)
    assert contact_sheet([sample("a", txt=b"x")], title="t").samples == 1
    with pytest.raises(MissingExtraError, match=r"a contact sheet with pictures needs .* pip install pillow"):
        contact_sheet([sample("a", jpg=PHOTO)], title="t")
