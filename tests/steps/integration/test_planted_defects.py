"""Each planted defect is found by check_shards, and nothing else is reported."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import tarbuild
from httpserver import Fault, FaultServer
from PIL import Image
from planted import (
    SPAN,
    array,
    box,
    flipped,
    jpeg_of,
    member,
    picture,
    plain_samples,
    png_chunk,
    png_of,
    shard,
    sound,
    text_bomb,
    video,
)
from tarbuild import END

from tarkit.errors import StreamError
from tarkit.samples.indexing import ensure_index
from tarkit.samples.read import read_samples
from tarkit.specs.manifest import write_manifest
from tarkit.steps import repeats as repeats_module
from tarkit.steps import shardcheck
from tarkit.steps.check import check_shards
from tarkit.steps.findings import KINDS, CheckReport, Finding
from tarkit.steps.repeats import Repeats

JPEG, PNG, WEBP, GIF = (picture(kind) for kind in ("JPEG", "PNG", "WEBP", "GIF"))
MOVING = picture("GIF", frames=3)
PROGRESSIVE = picture("JPEG", progressive=True)
ODD_TIFF = picture("TIFF").replace(struct.pack("<HHII", 262, 3, 1, 2), struct.pack("<HHII", 262, 3, 1, 77))
IEND = png_chunk(b"IEND", b"")
SECOND = SPAN  # offset of the second sample
JSON_AT = 1024  # offset of the second member in a plain sample


class Expected(NamedTuple):
    """What must be reported of a shard; the member is given by its offset."""

    kind: str
    key: str | None = None
    field: str | None = None
    offset: int | None = None
    is_warning: bool = False


def content(field: str, data: bytes, kind: str, is_warning: bool = False) -> tuple[bytes, list[Expected]]:
    """A shard whose second sample has this content between good ones."""
    samples = plain_samples(f"{zlib.crc32(data):08x}", 3)
    key = list(samples)[1]
    samples[key] = {**samples[key], field: data}
    return shard(samples), [Expected(kind, key, field, SECOND + 2 * JSON_AT, is_warning)]


CONTENTS: dict[str, tuple[str, bytes, str] | tuple[str, bytes, str, bool]] = {
    "a JPEG without its end": ("jpg", JPEG[:-2], "picture"),
    "a JPEG cut in half": ("jpg", JPEG[: len(JPEG) // 2], "picture"),
    "a progressive JPEG cut in half": ("jpeg", PROGRESSIVE[: len(PROGRESSIVE) // 2], "picture"),
    "a JPEG with zeros in the middle": ("jpg", JPEG[:2000] + bytes(2000) + JPEG[4000:], "picture"),
    "a JPEG with bytes behind": ("jpg", JPEG + b"x" * 50, "trailing-bytes", True),
    "a newline before a JPEG": ("jpg", b"\n" + JPEG, "picture"),
    "a page in place of a JPEG": ("jpg", b"<html>404</html>", "picture"),
    "a JPEG that is a bomb": ("jpg", jpeg_of(60000, 60000), "not-decoded", True),
    "a PNG named .jpg": ("jpg", PNG, "wrong-name", True),
    "a PNG cut in half": ("png", PNG[: len(PNG) // 2], "picture"),
    "a PNG with a flipped bit": ("png", flipped(PNG, len(PNG) // 2), "picture"),
    "a PNG without IEND": ("seg.PNG", PNG[: -len(IEND)], "picture"),
    "a PNG without its last 4 bytes": ("png", PNG[:-4], "picture"),
    "a PNG with a wrong CRC of IEND": ("png", flipped(PNG, len(PNG) - 1), "picture"),
    "a PNG with bytes behind": ("png", PNG + b"x", "trailing-bytes", True),
    "a PNG whose data are too short": ("png", png_of(2000, 2000), "picture"),
    "a PNG that is a bomb": ("png", png_of(12000, 12000), "not-decoded", True),
    "a PNG that is a large bomb": ("png", png_of(60000, 60000), "not-decoded", True),
    "a PNG with a text that is a bomb": ("png", text_bomb(), "picture"),
    "a WebP cut in half": ("webp", WEBP[: len(WEBP) // 2], "picture"),
    "a WebP with bytes behind": ("webp", WEBP + b"x" * 3, "trailing-bytes", True),
    "a GIF cut in half": ("gif", GIF[: len(GIF) // 2], "picture"),
    "a GIF without its trailer": ("gif", GIF[:-1], "picture"),
    "a GIF with bytes behind": ("gif", GIF + b"x", "trailing-bytes", True),
    "a moving GIF cut in its second frame": ("gif", MOVING[: len(MOVING) // 2], "picture"),
    "a TIFF cut in half": ("tif", picture("TIFF")[:3000], "picture"),
    "a TIFF that Pillow does not know": ("tif", ODD_TIFF, "not-decoded", True),
    "a BMP cut in half": ("bmp", picture("BMP")[:3000], "picture"),
    "a picture of no known kind": ("img", b"\x01\x02\x03\x04", "picture"),
    "JSON that is cut": ("json.x.json", b'{"a": [1, 2', "json"),
    "JSON with NaN": ("meta.json", b'{"a": NaN}', "json"),
    "JSON with a name twice": ("meta.json", b'{"a": 1, "b": {"c": 1, "c": 2}}', "json"),
    "JSON with half of a surrogate pair": ("meta.json", b'{"a": "\\ud800"}', "json"),
    "JSON with a number that is infinite": ("meta.json", b"[1e999]", "json"),
    "JSON that is too deep": ("meta.json", b"[" * 100_000 + b"]" * 100_000, "json"),
    "JSON with a byte order mark": ("meta.json", b"\xef\xbb\xbf{}", "byte-order-mark", True),
    "JSON in gzip that is cut": ("meta.json.gz", gzip.compress(b'{"a": 1}' * 9)[:-9], "json"),
    "a class that is a word": ("index", b"cat", "number"),
    "a text that is not UTF-8": ("txt", b"caf\xe9", "text"),
    "an array that is cut": ("npy", array([1.5] * 99)[:-8], "array"),
    "an array with bytes behind": ("npy", array([1.5]) + b"x", "trailing-bytes", True),
    "an array that is a pickle": ("npy", array([{"a": 1}], allow_pickle=True), "array"),
    "an array without its magic": ("npy", b"\0" + array([1])[1:], "array"),
    "a WAV that is cut": ("wav", sound()[:1000], "audio"),
    "a WAV without data": ("wav", sound()[:36], "audio"),
    "a WAV that is something else": ("wav", b"ID3\x04" + bytes(99), "audio"),
    "a WAV with bytes behind": ("wav", sound() + b"x", "trailing-bytes", True),
    "an MP4 that is cut": ("mp4", video()[:-9], "video"),
    "an MP4 without moov": ("mp4", box(b"ftyp", b"isom") + box(b"mdat", bytes(99)), "video"),
    "an MP4 that is something else": ("mp4", b"\x1aE\xdf\xa3" + bytes(99), "video"),
    "an MP4 with a box that is none": ("mp4", box(b"moov") + b"\1\1\1\1\1\1\1\1\1", "video"),
    "MessagePack behind which is more": ("cls2", b"1 2", "number"),
}
"""Field, content, kind of the finding, and whether it is a warning."""


def damaged(prefix: str, change: Callable[[bytes], bytes], *expected: Expected) -> tuple[bytes, list[Expected]]:
    """A shard of four samples that was changed; {0} in a key stands for its prefix."""
    found = change(shard(plain_samples(prefix)))
    return found, [each._replace(key=each.key and f"{prefix}-{each.key}") for each in expected]


def replaced(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + new + data[at + len(new) :]


def inserted(at: int, new: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + new + data[at:]


LONG = b"long-" + b"x" * 120 + b".json"
STRUCTURES: dict[str, tuple[bytes, list[Expected]]] = {
    "cut in a member": damaged("a", lambda data: data[: SPAN + 512], Expected("cut", "1", "cls", SPAN)),
    "cut in a header": damaged("b", lambda data: data[: SPAN + 1124], Expected("cut", "1", None, SPAN + 1024)),
    "no end mark": damaged("c", lambda data: data[: -len(END)], Expected("cut", "3", None, 4 * SPAN)),
    "a flipped bit in a name": damaged(
        "d", lambda data: flipped(data, SPAN + JSON_AT), Expected("damage", "1", None, SPAN + JSON_AT)
    ),
    "the first header of a sample is damaged": damaged(
        "e", lambda data: flipped(data, SPAN + 20), Expected("damage", "0", None, SPAN)
    ),
    "zeros in a header": damaged("f", replaced(SPAN + 100, bytes(60)), Expected("damage", "0", None, SPAN)),
    "a size that is not a number": damaged(
        "g", replaced(SPAN, tarbuild.header(b"g-1.cls", size_field=b"9" * 12)), Expected("damage", "0", None, SPAN)
    ),
    "a size beyond the end": damaged(
        "h", replaced(SPAN, tarbuild.header(b"h-1.cls", 99_999)), Expected("cut", "1", "cls", SPAN)
    ),
    "a damaged long name of GNU tar": damaged(
        "i", inserted(SPAN, flipped(tarbuild.long_name(LONG), 3)), Expected("damage", "0", None, SPAN)
    ),
    "a PAX record without a length": damaged(
        "j", inserted(SPAN, tarbuild.member(b"pax", b"x path=y\n", kind=b"x")), Expected("damage", "0", None, SPAN)
    ),
    "a PAX size that is not a number": damaged(
        "k", inserted(SPAN, tarbuild.pax({b"size": b"-5"})), Expected("damage", "0", None, SPAN)
    ),
    "bytes after the end mark": damaged(
        "l", lambda data: data + b"x" * 600, Expected("damage", None, None, 4 * SPAN + 1024)
    ),
    "a picture in place of a shard": (PNG, [Expected("not-a-tar", offset=0)]),
    "a page in place of a shard": (b"<html>not found</html>", [Expected("not-a-tar", offset=0)]),
    "an empty file": (b"", [Expected("cut", offset=0)]),
    "a repeated key": damaged(
        "o", lambda data: data[: -len(END)] + data[:SPAN] + END, Expected("repeated-key", "0", "cls", 4 * SPAN)
    ),
    "a repeated field": damaged(
        "p", inserted(JSON_AT, member("p-0.cls", b"7")), Expected("repeated-field", "0", "cls", JSON_AT)
    ),
    "an empty picture": damaged(
        "q", inserted(SPAN, member("q-0.jpg", b"")), Expected("empty-member", "0", "jpg", SPAN)
    ),
    "an empty text": damaged(
        "r", inserted(SPAN, member("r-0.txt", b"")), Expected("empty-member", "0", "txt", SPAN, True)
    ),
    "a missing field": damaged(
        "s", lambda data: data[: SPAN + JSON_AT] + data[2 * SPAN :], Expected("missing-field", "1", None, SPAN)
    ),
    "a hard link": damaged(
        "t", inserted(SPAN, tarbuild.member(b"t-0.jpg", kind=b"1")), Expected("unsupported-member", "0", "jpg", SPAN)
    ),
    "a sparse file": damaged(
        "u", inserted(SPAN, tarbuild.member(b"u-0.bin", kind=b"S")), Expected("unsupported-member", "0", "bin", SPAN)
    ),
    "a member of an unknown type": damaged(
        "v", inserted(SPAN, tarbuild.member(b"v-0.bin", kind=b"Z")), Expected("unsupported-member", "0", "bin", SPAN)
    ),
}  # fmt: skip


def report_of(folder: Path, names: Iterable[str], **options: Any) -> tuple[list[Finding], CheckReport]:
    report = CheckReport()
    found = list(check_shards([str(folder / name) for name in names], report=report, **options))
    return found, report


def as_expected(finding: Finding) -> Expected:
    return Expected(finding.kind, finding.key, finding.field, finding.offset, finding.is_warning)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[Expected]], dict[str, list[Expected]]]:
    """What is expected, and what was found, by the name of the defect; all in one check."""
    folder = tmp_path_factory.mktemp("planted")
    shards = {**STRUCTURES, **{name: content(*each) for name, each in CONTENTS.items()}}
    for name, (data, _) in shards.items():
        (folder / name).write_bytes(data)
    found, _ = report_of(folder, shards, decode=True, require="json|x,cls", parallel=2)
    given: dict[str, list[Expected]] = {name: [] for name in shards}
    for finding in found:
        given[Path(finding.shard).name].append(as_expected(finding))
    return {name: expected for name, (_, expected) in shards.items()}, given


def test_there_are_more_than_forty_defects() -> None:
    assert len(STRUCTURES) + len(CONTENTS) >= 70


@pytest.mark.parametrize("name", [*STRUCTURES, *CONTENTS])
def test_each_defect_is_found_and_nothing_else(name: str, planted: tuple[dict[str, Any], dict[str, Any]]) -> None:
    expected, given = planted
    assert given[name] == expected[name]
    assert {each.kind for each in given[name]} <= KINDS.keys()


def test_cut_and_damaged_gzip(tmp_path: Path) -> None:
    """Which sample is the last one depends on the decoder's buffers."""
    whole = gzip.compress(shard(plain_samples("n")), mtime=0)
    for name, data in (("cut.tgz", whole[:-40]), ("flipped.tgz", flipped(whole, len(whole) // 2))):
        (tmp_path / name).write_bytes(data)
        (finding,) = report_of(tmp_path, [name])[0]
        assert finding.kind == "damage" and (name == "flipped.tgz" or str(finding.key).startswith("n-"))


def flac() -> bytes:
    """A sound; without soundfile, nothing reads it."""
    try:
        import soundfile
    except ImportError:
        return b"fLaC"
    stream = io.BytesIO()
    soundfile.write(stream, [0.0, 0.5, -0.5], 8000, format="FLAC")
    return stream.getvalue()


def test_clean_samples_of_every_kind_give_nothing(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    float_sound = sound().replace(
        struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16), struct.pack("<HHIIHH", 3, 1, 8000, 32000, 4, 32)
    )
    npz = io.BytesIO()
    numpy.savez(npz, a=[1, 2])
    contents = [
        *(("jpg", picture("JPEG", mode)) for mode in ("L", "RGB", "CMYK")),
        ("JPEG", PROGRESSIVE),
        ("jpg", picture("JPEG", exif=exif)),
        *(("png", picture("PNG", mode)) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
        ("png", picture("PNG", frames=3)),
        ("gif", GIF),
        ("gif", MOVING),
        ("webp", WEBP),
        ("webp", picture("WEBP", frames=3)),
        ("tiff", picture("TIFF", compression="tiff_lzw")),
        ("tif", picture("TIFF", frames=2)),
        ("bmp", picture("BMP")),
        ("ppm", picture("PPM")),
        ("img", picture("WEBP", quality=9)),
        ("json", b' {"a": [1.5, -2e10, "\\ud83d\\ude00", null]}\n'),
        ("json.gz", gzip.compress(b"{}")),
        ("cls", b"-12\n"),
        ("txt", "caf\u00e9".encode()),
        ("npy", array(numpy.zeros((3, 0, 2)))),
        ("npy", array([[1, 2]], version=(2, 0))),
        ("npy", array(numpy.zeros(3, [("\u00e9", "f4"), ("b", "U3")]), version=(3, 0))),
        ("npz", npz.getvalue()),
        ("wav", sound()),
        ("wav", float_sound),
        ("wav", sound().replace(b"data" + struct.pack("<I", 2000), b"data" + b"\xff" * 4)),
        ("mp4", video()),
        ("mov", box(b"moov") + struct.pack(">I4sQQI4s", 1, b"mdat", 24, 0, 0, b"free") + b"x" * 9),
        ("heic", b"x"),
        ("flac", flac()),
    ]
    samples = {f"k{n}": {"cls": b"1", "x": b"1", f"a.{field}": data} for n, (field, data) in enumerate(contents)}
    (tmp_path / "a.tar").write_bytes(shard(samples))
    found, report = report_of(tmp_path, ["a.tar"], decode=True, require="y|x,cls", repeated_contents=True)
    assert found == []
    assert report.tally.samples == len(contents)
    assert report.unchecked[".heic: no check exists"] == 1
    assert report.unchecked[".x: no check exists"] == len(contents)
    assert report.unchecked["audio that is not WAV (pip install soundfile)"] in (0, 1)


INDEXES: dict[str, Callable[[bytes], bytes]] = {
    "of another shard": lambda text: text.replace(b"a-", b"b-"),
    "with another key in the middle": lambda text: text.replace(b"a-1", b"a-9"),
    "with another size": lambda text: text.replace(b"json 3584 19", b"json 3584 18"),
    "cut": lambda text: text[:-3],
    "with a sample too few": lambda text: b"v1.2 3\n" + b"".join(text.splitlines(True)[1:4]),
    "of something else": lambda text: b"hello\n",
    "empty": lambda text: b"",
}


@pytest.mark.parametrize("how", INDEXES)
def test_a_stale_index(tmp_path: Path, how: str) -> None:
    (tmp_path / "a.tar").write_bytes(shard(plain_samples("a")))
    ensure_index(str(tmp_path / "a.tar"))
    assert report_of(tmp_path, ["a.tar"])[0] == []
    text = (tmp_path / "a.idx").read_bytes()
    stale = INDEXES[how](text)
    assert stale != text
    (tmp_path / "a.idx").write_bytes(stale)
    found, report = report_of(tmp_path, ["a.tar"])
    assert [each.kind for each in found] == ["stale-index"] and report.codes == {65}


def test_an_index_with_escaped_names(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(shard({"a b%": {"cls": b"1", "x.txt": b"2"}, "c": {"cls": b"3"}}))
    ensure_index(str(tmp_path / "a.tar"))
    text = (tmp_path / "a.idx").read_bytes()
    assert text.startswith(b"tarkit-v1 2\n") and report_of(tmp_path, ["a.tar"])[0] == []
    (tmp_path / "a.idx").write_bytes(text.replace(b"a%20b", b"a%20c"))
    (found,) = report_of(tmp_path, ["a.tar"])[0]
    assert found.kind == "stale-index" and "its line 2 is not that of the shard" in found.message


def test_an_index_of_a_damaged_shard_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(shard(plain_samples("a")))
    ensure_index(str(tmp_path / "a.tar"))
    (tmp_path / "a.tar").write_bytes(shard(plain_samples("a"))[:-1024])
    found, report = report_of(tmp_path, ["a.tar"])
    assert [each.kind for each in found] == ["cut"]
    assert report.unchecked == {"index of a shard with damage, repeated keys or fields": 1}


def manifest_of(folder: Path, *names: str) -> dict[str, Any]:
    listed = [ensure_index(str(folder / name), listed=True).listed for name in names]
    write_manifest(str(folder / "dataset.json"), [each for each in listed if each is not None])
    return json.loads((folder / "dataset.json").read_text())  # type: ignore[no-any-return]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], int]] = {
    "samples": (lambda all: all["shardlist"][0].update(nsamples=5), 1),
    "bytes": (lambda all: all["shardlist"][1].update(filesize=5), 1),
    "the checksum": (lambda all: all["shardlist"][1].update(md5sum="0" * 32), 1),
    "a shard that it lacks": (lambda all: all["shardlist"].pop(), 1),
    "a shard that is not there": (lambda all: all["shardlist"][0].update(url="c.tar"), 2),
    "its version": (lambda all: all.update(wids_version=7), 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_stale_manifest(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.tar").write_bytes(shard(plain_samples("a")))
    (tmp_path / "b.tar").write_bytes(shard(plain_samples("b", 2)))
    written = manifest_of(tmp_path, "a.tar", "b.tar")
    manifest = tmp_path / "dataset.json"
    assert report_of(tmp_path, ["a.tar", "b.tar"], manifest=str(manifest))[0] == []
    change, number = CHANGES[what]
    change(written)
    manifest.write_text(json.dumps(written))
    found, report = report_of(tmp_path, ["a.tar", "b.tar"], manifest=str(manifest))
    assert [each.kind for each in found] == ["stale-manifest"] * number and report.codes == {65}


def test_a_compressed_shard_has_its_checksum_in_the_manifest(tmp_path: Path) -> None:
    data = gzip.compress(shard(plain_samples("a")), mtime=0)
    (tmp_path / "a.tgz").write_bytes(data)
    entry = {"url": "a.tgz", "nsamples": 4, "filesize": len(data), "md5sum": hashlib.md5(data).hexdigest()}
    for md5sum, number in ((entry["md5sum"], 0), ("1" * 32, 1)):
        written = {"wids_version": 1, "shardlist": [{**entry, "md5sum": md5sum}]}
        (tmp_path / "dataset.json").write_text(json.dumps(written))
        assert len(report_of(tmp_path, ["a.tgz"], manifest=str(tmp_path / "dataset.json"))[0]) == number


@pytest.mark.parametrize("most", [500_000, 5])
def test_what_is_repeated_over_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(Repeats.__init__, "__defaults__", (most,))
    samples = plain_samples("a", 6)
    odd = "k\udce9\n"
    (tmp_path / "0.tar").write_bytes(shard(samples))
    (tmp_path / "1.tar").write_bytes(
        shard({"b": {"cls": b"1", "x.json": samples["a-2"]["json"]}, "a-4": {"cls": b"9"}})
    )
    (tmp_path / "2.tar").write_bytes(tarbuild.member(b"k\xe9\n.cls", b"5") + END)
    (tmp_path / "3.tar").write_bytes(tarbuild.member(b"k\xe9\n.cls", b"6") + shard({"a-4": {"cls": b"8"}}))
    names = [f"{n}.tar" for n in range(4)]
    found, report = report_of(tmp_path, names, repeated_contents=True, bad_keys=str(tmp_path / "bad.txt"))
    shown = [(Path(each.shard).name, each.kind, each.key, each.offset) for each in found]
    assert shown == [
        ("1.tar", "repeated-key", "a-4", 2048),
        ("3.tar", "repeated-key", "a-4", 1024),
        ("3.tar", "repeated-key", odd, 0),
        ("1.tar", "repeated-content", "b", 1024),
    ]
    assert "0.tar: key a-4, offset 8192" in found[0].message and "key a-2, " in found[3].message
    assert (tmp_path / "bad.txt").read_text() == "a-4\nb\n"
    assert (report.bad_keys, report.unlisted_keys) == (2, 1)


def test_a_shard_that_is_named_twice_or_missing_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(shard(plain_samples("a")))
    (tmp_path / "b.tar").write_bytes(shard(plain_samples("b")))
    found, report = report_of(tmp_path, ["a.tar", "no.tar", "a.tar", "b.tar"])
    assert [each.kind for each in found] == ["unreadable", "repeated-shard"]
    assert report.codes == {65, 66} and report.tally.samples == 8


def test_damage_names_the_samples_on_both_of_its_sides(tmp_path: Path) -> None:
    """They are those that reading with on_damage=skip drops."""
    data = shard(plain_samples("a"))
    (tmp_path / "a.tar").write_bytes(flipped(flipped(data, SPAN), 3 * SPAN))
    report_of(tmp_path, ["a.tar"], bad_keys=str(tmp_path / "bad.txt"), require="json,cls")
    kept = [sample["__key__"] for sample in read_samples([str(tmp_path / "a.tar")], on_damage="skip")]
    assert {*(tmp_path / "bad.txt").read_text().split()} | {*kept} == set(plain_samples("a"))
    assert not {*(tmp_path / "bad.txt").read_text().split()} & {*kept}


def test_a_shard_over_http_is_read_once_and_resumed(tmp_path: Path) -> None:
    samples = {f"a-{n}": {"cls": b"1", "jpg": picture("JPEG", quality=90)} for n in range(90)}
    samples["a-7"]["jpg"] = samples["a-7"]["jpg"][:-2]
    (tmp_path / "a.tar").write_bytes(shard(samples))
    ensure_index(str(tmp_path / "a.tar"))
    with FaultServer() as server:
        url = server.put("a.tar", shard(samples), Fault("cut", 300_000))
        server.put("a.idx", (tmp_path / "a.idx").read_bytes())
        report = CheckReport()
        found = list(check_shards([url], decode=True, report=report))
        assert [as_expected(each)[:3] for each in found] == [("picture", "a-7", "jpg")] and found[0].shard == url
        assert len(server.asked("a.tar")) == 2
        server.put("a.idx", b"v1.2 0\n")
        assert [each.kind for each in check_shards([url])] == ["stale-index"]


def test_what_is_not_checked_has_few_reasons(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(shard({"a": {f"x{n}": b"1" for n in range(50)}}))
    report = report_of(tmp_path, ["a.tar"], decode=True)[1]
    assert len(report.unchecked) == 21 and report.unchecked["of other names"] == 30


def test_large_members_are_neither_held_nor_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shardcheck, "_LARGEST", 300_000)
    samples = {name: {"jpg": JPEG + bytes(600_000), "json": b"{}"} for name in ("a", "b")}
    samples["c"] = {"jpg": JPEG}
    (tmp_path / "a.tar").write_bytes(shard(samples))
    found, report = report_of(tmp_path, ["a.tar"], decode=True, repeated_contents=True)
    assert [(each.kind, each.key, each.is_warning) for each in found] == [
        ("not-decoded", "a", True),
        ("not-decoded", "b", True),
    ]
    assert report.unchecked == {"large contents for repeats": 2}


def test_keys_that_do_not_fit_on_the_disk_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    repeats = Repeats(most=1)
    monkeypatch.setattr(repeats_module, "_TABLE", "no SQL")
    with pytest.raises(StreamError, match="a temporary database cannot be written"):
        repeats.add(0, {"a": 1, "b": 2})
