"""Statistics of shards: what Pillow, wave and json say of each content, and what cannot be read."""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import time
import types
import wave
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tarkit import TarWriter
from tarkit.errors import DataError, UsageError
from tarkit.steps import distribution, stats, statsreport
from tarkit.steps.classfolders import read_classes
from tarkit.steps.stats import gather_statistics
from tarkit.steps.statsreport import differences, lines_of, report_page


def picture(width: int, height: int, format: str = "JPEG", mode: str = "RGB", orientation: int = 0) -> bytes:
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.new(mode, (width, height)).save(buffer, format, exif=exif)
    return buffer.getvalue()


def sound(frames: int, rate: int = 16000, channels: int = 1) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * channels * frames))
    return buffer.getvalue()


def shards(folder: Path, *contents: list[dict[str, Any]]) -> list[str]:
    names = []
    for number, samples in enumerate(contents):
        names.append(str(folder / f"s-{len(list(folder.iterdir()))}-{number}.tar"))
        with TarWriter(names[-1], encoder=False) as writer:
            for key, sample in enumerate(samples):
                writer.write({"__key__": f"{number}-{key}", **sample})
    return names


def measured(folder: Path, *samples: dict[str, bytes], **options: Any) -> dict[str, Any]:
    return gather_statistics(shards(folder, list(samples)), **options).as_dict()


def test_fields_and_their_combinations(tmp_path: Path) -> None:
    found = measured(tmp_path, {"a": b"12", "b": b""}, {"a": b"1"}, {"b": b"", "a": b"123"})
    assert found["samples"] == 3
    assert found["sample"]["field"]["values"] == {"a": 3, "b": 2}
    assert found["sample"]["combination"]["values"] == {"a b": 2, "a": 1}
    assert (found["sample"]["bytes"]["total"], found["fields"]["a"]["bytes"]["median"]) == (6, 2)
    assert measured(tmp_path) == {"samples": 0, "sample": {}, "fields": {}}


def test_pictures_by_their_headers(tmp_path: Path) -> None:
    rotated = picture(64, 48, orientation=6)
    with Image.open(io.BytesIO(rotated)) as image:
        assert (image.size, image.getexif()[0x0112]) == ((64, 48), 6)
    deep = io.BytesIO()
    Image.new("I;16", (8, 8)).save(deep, "PNG")
    found = measured(
        tmp_path,
        {"jpg": rotated},
        {"jpg": picture(64, 48)},
        {"JPG": picture(10, 20, "PNG", "LA")},
        {"jpg": picture(64, 48, "WEBP", orientation=3)},
        {"png": deep.getvalue()},
        {"jpg": rotated[:700]},
        {"jpg": rotated.replace(b"Exif\0\0", b"Exif\0\0\xff\xff")},
    )["fields"]
    assert found["jpg"]["size"]["values"] == {"64 x 48": 5}
    assert (found["jpg"]["width"]["max"], found["jpg"]["height"]["count"]) == (64, 5)
    assert found["jpg"]["format"]["values"] == {"JPEG": 4, "WEBP": 1}
    assert found["jpg"]["orientation"]["values"] == {"6": 2, "none": 2, "3": 1}, "a broken EXIF is none"
    assert found["JPG"]["format"]["values"] == {"PNG": 1} and found["JPG"]["mode"]["values"] == {"LA": 1}
    assert found["png"]["mode"]["values"] == {"I;16": 1}


def test_json_keys_and_types(tmp_path: Path) -> None:
    value = {"a": 1, "b": {"c": None, "d": {"e": {"f": {"g": 1}}}}, "t": "x", "l": [{"z": 1}], "y": True, "n": 1.5}
    found = measured(tmp_path, {"json": json.dumps(value).encode()}, {"json": b"[1]"}, {"json": b'{"a": "x"}'})
    assert found["fields"]["json"]["key"]["values"] == {
        **{"(document): array": 1, "a: integer": 1, "a: string": 1, "b: object": 1, "b.c: null": 1},
        **{
            "b.d: object": 1,
            "b.d.e: object": 1,
            "b.d.e.f: object": 1,
            "l: array": 1,
            "n: number": 1,
            "t: string": 1,
            "y: boolean": 1,
        },
    }
    packed = {"meta.json.gz": gzip.compress(b'{"k": 1}'), "x.jpg.gz": gzip.compress(b"no")}
    fields = measured(tmp_path, packed)["fields"]
    assert fields["meta.json.gz"]["key"]["values"] == {"k: integer": 1} and [*fields["x.jpg.gz"]] == ["bytes"]


def test_text_and_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    floats = b"RIFF$\0\0\0WAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, 8000, 32000, 4, 32) + b"data\0\0\0\0"
    contents = [sound(8000), sound(16000, 8000, 2), sound(16000)[:-10], b"no", b"RIFF", floats]
    found = measured(tmp_path, {"txt": "äöü".encode()}, *({"wav": content} for content in contents))["fields"]
    assert (found["txt"]["characters"]["max"], found["txt"]["bytes"]["max"]) == (3, 6)
    assert found["wav"]["seconds"]["count"] == 2 and found["wav"]["seconds"]["total"] == 0.5 + 2
    assert found["wav"]["sound"]["values"] == {"16000 Hz, 1 channel": 1, "8000 Hz, 2 channels": 1}
    assert found["wav"]["unreadable"]["count"] == 3 and found["wav"]["not_measured"]["count"] == 1


def test_a_cut_sound_is_not_as_long_as_its_header_says(tmp_path: Path) -> None:
    found = measured(tmp_path, {"wav": sound(16000)[: -(16000 + 44)]})["fields"]["wav"]
    assert "seconds" not in found
    (reason,) = found["unreadable"]["values"]
    assert reason.endswith("key 0-0: its header announces 32000 bytes of sound, but it has 15956")


def test_what_cannot_be_read_is_counted_with_its_key(tmp_path: Path) -> None:
    (name,) = shards(tmp_path, [{"jpg": b"<html>", "json": b"{", "txt": b"\xff"}, {"jpg": picture(1, 1)}])
    found = gather_statistics([name]).as_dict()["fields"]
    assert found["jpg"]["unreadable"]["values"] == {f"{name}, key 0-0: Pillow cannot open it": 1}
    assert [found[field]["unreadable"]["count"] for field in ("jpg", "json", "txt")] == [1, 1, 1]
    assert (found["jpg"]["bytes"]["count"], found["jpg"]["width"]["count"]) == (2, 1)
    assert found["json"].keys() == found["txt"].keys() == {"bytes", "unreadable"}


def test_a_library_that_is_missing_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    found = measured(tmp_path, {"flac": b"fLaC", "jpg": b"x"})["fields"]
    assert found["flac"]["not_measured"]["values"] == {"the library soundfile is not installed": 1}
    (reason,) = found["jpg"]["not_measured"]["values"]
    assert "pip install pillow" in reason


def test_sound_by_soundfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its interface: the real library is not among those of the tests."""

    def info(file: io.BytesIO) -> types.SimpleNamespace:
        if file.read() == b"no":
            raise RuntimeError(f"Error opening {file}: Format not recognised.")
        return types.SimpleNamespace(frames=44100, samplerate=22050, channels=2)

    monkeypatch.setitem(sys.modules, "soundfile", types.SimpleNamespace(info=info))
    found = measured(tmp_path, {"mp3": b"x"}, {"ogg": b"y"}, {"flac": b"no"})["fields"]
    assert [found[name]["seconds"]["max"] for name in ("mp3", "ogg")] == [2.0, 2.0]
    assert found["mp3"]["sound"]["values"] == {"22050 Hz, 2 channels": 1}
    (reason,) = found["flac"]["unreadable"]["values"]
    assert reason.endswith("key 0-2: soundfile cannot open it")


def test_classes_and_their_table(tmp_path: Path) -> None:
    samples = [{"cls": value, "label": b" x\n"} for value in (b"0", b"1", b"1\n", b"7")]
    assert measured(tmp_path, *samples)["fields"]["cls"]["class"]["values"] == {"1": 2, "0": 1, "7": 1}
    found = measured(tmp_path, *samples, classes={"cat": 0, "dog": 1, "owl": 2})["fields"]
    assert found["cls"]["class"]["values"] == {"1 dog": 2, "0 cat": 1, "7 (not in the table)": 1, "2 owl": 0}
    found = measured(tmp_path, *samples, class_fields=["label"])["fields"]
    assert found["label"]["class"]["values"] == {"x": 4} and "class" not in found["cls"]
    with pytest.raises(UsageError, match="no sample has the field 'lable' of --class; the fields are cls, label"):
        measured(tmp_path, *samples, class_fields=["lable"])
    table = tmp_path / "classes.json"
    table.write_text('{"cat": 0}')
    assert read_classes(str(table)) == {"cat": 0}
    for text in ("[1]", '{"cat": "0"}'):
        table.write_text(text)
        with pytest.raises(DataError, match="is not a table of classes"):
            read_classes(str(table))


def test_the_result_is_that_of_one_shard_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "DISTINCT", 10)
    monkeypatch.setattr(distribution, "EXACT", 100)
    names = shards(tmp_path, *([{"txt": bytes(n % 50), f"f{n}": b""} for n in range(s, s + 40)] for s in range(6)))
    alone = gather_statistics(names)
    for parallel in (2, 5):
        assert gather_statistics(names, parallel=parallel).as_dict() == alone.as_dict()
    assert alone.samples == 240 and alone.values["", "field"].rest > 0 and not alone.numbers["", "bytes"].exact


def test_the_first_samples_and_a_choice(tmp_path: Path) -> None:
    names = shards(tmp_path, [{"a": b"1"}] * 3, [{"b": b"1"}] * 3)
    assert gather_statistics(names, number=4).as_dict()["sample"]["field"]["values"] == {"a": 3, "b": 1}

    def select(samples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return (sample for sample in samples if "b" in sample)

    seen: list[tuple[int, float]] = []
    found = gather_statistics(names, select=select, parallel=3, progress=lambda *numbers: seen.append(numbers))
    assert found.as_dict()["sample"]["field"]["values"] == {"b": 3}
    assert [samples for samples, _ in seen] == [1, 2, 3, 4, 5, 6] and seen[2][1] <= 1 < seen[5][1] <= 2
    seen.clear()
    gather_statistics(names, progress=lambda *numbers: seen.append(numbers))
    assert seen[2][1] <= 1 <= seen[5][1] <= 2


def test_large_contents_and_many_fields_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "_LIMITS", (1000, 3000))
    large = b"x" * (2 << 20)
    found = measured(tmp_path, {"txt": large}, {"txt": b"y", "w": b"1" * 1900, "x.txt": b"1" * 900, "y.txt": b"z"})
    assert (found["fields"]["txt"]["bytes"]["max"], found["sample"]["bytes"]["total"]) == (
        len(large),
        len(large) + 2802,
    )
    assert found["fields"]["txt"]["not_measured"]["values"] == {"more than 32 MiB": 1}
    assert found["fields"]["y.txt"]["not_measured"]["count"] == 1, "its sample spans too much"
    found = measured(
        tmp_path, {"txt": large}, select=lambda samples: (each for each in samples if len(each["txt"]) > 9)
    )
    assert found["fields"]["txt"]["characters"]["max"] == len(large), "a choice looks into contents"
    monkeypatch.undo()
    found = measured(tmp_path, {f"{number:03}.txt": b"1" for number in range(150)}, class_fields=["149.txt"])
    assert len(found["fields"]) == 102 and found["fields"]["(other fields)"]["characters"]["count"] == 49


def test_damage_is_an_error_or_counted(tmp_path: Path) -> None:
    names = shards(tmp_path, [{"txt": b"1"}] * 9, [{"txt": b"1"}] * 9)
    damaged = bytearray(Path(names[0]).read_bytes())
    damaged[4096 + 100] ^= 1
    Path(names[0]).write_bytes(damaged)
    with pytest.raises(DataError, match="offset 4096"):
        gather_statistics(names, parallel=2)
    found = gather_statistics(names, parallel=2, on_damage="skip")
    assert found.samples == 15 and len(found.tally.damage) == 1 and found.tally.skipped == {"sample-beside-damage": 2}


def test_two_data_sets(tmp_path: Path) -> None:
    a = gather_statistics(shards(tmp_path, [{"cls": b"%d" % (n % 4), "txt": b"x" * 10} for n in range(20)]))
    small = picture(2, 2, "PNG")
    b = gather_statistics(
        shards(tmp_path, [{"cls": b"%d" % (n // 9), "txt": b"x" * 30, "seg.png": small} for n in range(20)])
    )
    assert differences({"A": a, "B": b}) == [
        "sample combination: only in A: cls txt",
        "sample combination: only in B: cls seg.png txt",
        "sample field: only in B: seg.png",
        "cls class: only in A: 3",
        "cls class: 0: 25.0% of A, 45.0% of B",
        f"sample bytes: median 11 in A, {31 + len(small)} in B",
        "txt bytes: median 10 in A, 30 in B",
        "txt characters: median 10 in A, 30 in B",
    ]
    lines = list(lines_of({"A": a, "B": b}))
    assert lines[:2] == ["A: 20 samples, 220 bytes of content", f"B: 20 samples, {b.size:,} bytes of content"]
    table = lines[lines.index("cls class (4)  A  share  B  share") + 1 :][:4]
    assert [line.split() for line in table] == [
        ["0", "5", "25.0%", "9", "45.0%"],
        ["1", "5", "25.0%", "9", "45.0%"],
        ["2", "5", "25.0%", "2", "10.0%"],
        ["3", "5", "25.0%", "0", "0.0%"],
    ]
    assert differences({"A": a, "B": a}) == []
    assert "none of fields, values, shares or medians" in list(lines_of({"A": a, "B": a}))
    nothing = gather_statistics(shards(tmp_path, []))
    assert "sample field: only in B: cls, txt" in differences({"A": nothing, "B": a})
    assert next(lines_of({"A": nothing})) == "0 samples, 0 bytes of content"
    assert b'"numbers":[]' in report_page({"A": nothing}, ["a"])


def test_a_failure_stops_the_other_shards(tmp_path: Path) -> None:
    names = shards(tmp_path, [{"txt": b"1"}], [{"txt": b"1"}] * 3000)
    Path(names[0]).write_bytes(b"x" * 512)
    seen: list[float] = []
    with pytest.raises(DataError):
        gather_statistics(names, parallel=2, progress=lambda samples, shards: seen.append(samples) or time.sleep(0.001))
    assert len(seen) < 2900


def test_lines_of_many_values_and_of_numbers_that_are_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "EXACT", 10)
    monkeypatch.setattr(distribution, "DISTINCT", 30)
    found = gather_statistics(shards(tmp_path, [{"cls": b"%02d" % (n % 40)} for n in range(60)]))
    lines = list(lines_of({"A": found}))
    assert lines[0] == "60 samples, 120 bytes of content"
    assert "~ about: there are more than a million numbers" in lines and "~2" in lines[3]
    at = lines.index("cls class (30)  count  share")
    assert lines[at + 1].split() == ["00", "2", "3.3%"] and lines[at + 21] == "… 5 more, listed by --json"
    assert lines[at + 27] == "10 times a value after the first 50,000"


def test_a_page_holds_all_and_no_element_of_the_data(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>\u202e"
    found = gather_statistics(shards(tmp_path, [{"cls": hostile.encode(), "json": json.dumps({hostile: 1}).encode()}]))
    text = report_page({"A": found}, [hostile]).decode()
    assert "<img" not in text and "\u202e" not in text
    block = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    data = json.loads(block)
    assert (data["names"], data["sizes"]) == ([hostile], [[1, found.size]])
    assert {(each["field"], each["measure"]) for each in data["numbers"]} == {*found.numbers}
    assert all(sum(each["sets"][0]["bars"]) == each["sets"][0]["count"] == 1 for each in data["numbers"])
    (classes,) = (each for each in data["values"] if each["measure"] == "class")
    assert classes["rows"] == [[hostile, [[1, 1.0]]]] and len(data["values"]) == len(found.values)


def test_a_page_has_the_most_frequent_values_of_both_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statsreport, "_MOST_SHOWN", 2)
    a = gather_statistics(shards(tmp_path, [{"cls": b"%d" % (n // 4)} for n in range(10)]))
    b = gather_statistics(shards(tmp_path, [{"cls": b"%d" % min(n, 2)} for n in range(10)]))
    text = report_page({"A": a, "B": b}, ["a", "b"]).decode()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    (classes,) = (each for each in data["values"] if each["measure"] == "class")
    assert classes["rows"] == [["2", [[2, 0.2], [8, 0.8]]], ["0", [[4, 0.4], [1, 0.1]]]] and classes["distinct"] == 3
