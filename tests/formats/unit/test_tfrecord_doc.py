"""The examples in docs/formats/tfrecord.md and docs/formats/example.md are what the code reads and
writes.
"""

from __future__ import annotations

import ast
import io
import re
from pathlib import Path

import google_crc32c
import pytest
from formatpages import hex_blocks

from tarkit.formats.example import (
    decode_example,
    decode_sequence_example,
    encode_example,
    encode_sequence_example,
)
from tarkit.formats.tfrecord import RecordWriter, read_records

DOCS = Path(__file__).resolve().parents[3] / "docs" / "formats"
TFRECORD = (DOCS / "tfrecord.md").read_text(encoding="utf-8")
EXAMPLE = (DOCS / "example.md").read_text(encoding="utf-8")
FEATURES = {"label": 3, "name": b"cat", "none": None, "score": 0.5}


def rows(page: str, titles: str) -> list[list[str]]:
    table = page.partition(f"\n| {titles} |")[2].partition("\n\n")[0]
    assert table, f"no table has the titles {titles}"
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_the_file_of_the_page() -> None:
    (data,) = hex_blocks(TFRECORD)
    assert f"{len(data)} bytes" in TFRECORD
    assert list(read_records(io.BytesIO(data))) == [b"cat", b""]
    file = io.BytesIO()
    with RecordWriter(file) as writer:
        writer.write(b"cat")
        writer.write(b"")
    assert file.getvalue() == data


def test_the_fields_of_the_file() -> None:
    (data,) = hex_blocks(TFRECORD)
    covered, before = 0, b""
    for offset, length, name, value in rows(TFRECORD, "offset | length | field | value"):
        assert int(offset) == covered
        covered += int(length)
        raw, words = data[int(offset) : covered], re.findall("`(.*?)`", value)
        if name == "data":
            assert words == [raw.decode()] or (words, raw) == ([], b"")
        elif name == "length":
            assert int(words[0]) == int.from_bytes(raw, "little")
        else:
            crc = google_crc32c.value(before)
            turned = (crc >> 15) + (crc << 17) % 2**32
            assert [int(word, 16) for word in words] == [(turned + 0xA282EAD8) % 2**32, crc]
            assert int(words[0], 16) == int.from_bytes(raw, "little")
        before = raw
    assert covered == len(data)


def test_the_messages_of_the_page() -> None:
    example, sequence = hex_blocks(EXAMPLE)
    assert f"{len(example)} bytes" in EXAMPLE
    assert f"{len(sequence)} bytes" in EXAMPLE
    assert encode_example(FEATURES) == example
    assert encode_example(decode_example(example)) == example
    context, lists = {"label": 7}, {"frame": [b"1", None]}
    assert encode_sequence_example(context, lists) == sequence
    assert encode_sequence_example(*decode_sequence_example(sequence)) == sequence
    shown = [ast.literal_eval(span) for span in re.findall(r"`(\{.*?\})`", EXAMPLE)]
    assert shown == [FEATURES, context, lists]


def test_the_bytes_of_the_message() -> None:
    data = hex_blocks(EXAMPLE)[0]
    covered = 0
    for offset, cell, _ in rows(EXAMPLE, "offset | bytes | meaning"):
        assert int(offset) == covered
        raw = bytes.fromhex(cell.strip("`"))
        assert data[covered : covered + len(raw)] == raw
        covered += len(raw)
    assert covered == len(data)


@pytest.mark.parametrize("page", [TFRECORD, EXAMPLE], ids=["tfrecord", "example"])
def test_the_python_of_the_pages_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "page", "exec"), {})
    assert capsys.readouterr().out.strip() == "".join(re.findall("# (.*)", code))
