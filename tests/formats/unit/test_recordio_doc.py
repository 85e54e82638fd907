"""docs/formats/recordio.md is what the code does."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from recordiobuild import HELLO, VECTORS, written

from tarkit.formats.recordio import read_index, read_records, write
from tarkit.formats.recordio.chunk import GO, MAGIC, MOST, PYRECORDIO, Dialect
from tarkit.formats.tally import Tally

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "recordio.md").read_text(encoding="utf-8")
BOTH = pytest.mark.parametrize("dialect", [GO, PYRECORDIO], ids=lambda each: each.name)


def tables(first_line: str) -> list[list[list[str]]]:
    """The cells of each table that begins with this line."""
    found = [part.partition("\n\n")[0] for part in PAGE.split(f"\n{first_line}\n")[1:]]
    assert found, first_line
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[1:]] for table in found]


def example(dialect: Dialect) -> bytes:
    """The file in the hex dump of a dialect."""
    content = b""
    for line in PAGE.partition(f"```hex {dialect.name.lower()}\n")[2].partition("```")[0].splitlines():
        offset, _, digits = line.partition("  ")
        assert int(offset, 16) == len(content)
        content += bytes.fromhex(digits)
    return content


@BOTH
def test_the_fields_table(dialect: Dialect) -> None:
    (rows,) = tables("| offset | Go | pyrecordio |")
    column = {row[1 if dialect is GO else 2]: int(row[0]) for row in rows}
    header = MAGIC + bytes.fromhex("11000000 22000000 33000000 44000000")
    parsed = dialect.parse(header)
    for name, value in zip(
        ("checksum", "compressor", "size", "records"),
        (parsed.checksum, parsed.compressor, parsed.size, parsed.records),
        strict=True,
    ):
        assert int.from_bytes(header[column[name] : column[name] + 4], "little") == value
    assert column["magic"] == 0


def test_the_compressors_table() -> None:
    (rows,) = tables("| compression | Go | pyrecordio | the payload is |")
    assert {row[0]: int(row[1]) for row in rows} == GO.codes
    assert {row[0]: int(row[2]) for row in rows} == PYRECORDIO.codes


@BOTH
def test_the_examples_and_their_tables(dialect: Dialect) -> None:
    content = example(dialect)
    assert content == VECTORS["go7-hello" if dialect is GO else "py-hello"]
    assert list(read_records(io.BytesIO(content))) == HELLO
    assert written(HELLO, dialect=dialect) == content
    rows = tables("| offset | length | field | bytes |")[0 if dialect is GO else 1]
    end = 0
    for offset, length, field, digits in rows:
        assert int(offset) == end, "the fields follow each other"
        end += int(length)
        assert content[int(offset) : end] == bytes.fromhex(digits.strip("`"))
        if number := re.fullmatch(r"(?:length|size|records): (\d+)", field):
            assert int.from_bytes(content[int(offset) : end], "little") == int(number[1])
        if record := re.fullmatch(r"record: `(.+)`", field):
            assert content[int(offset) : end] == record[1].encode()
        if (summed := re.match(r"checksum of the (\d+) bytes from 20 on", field)) is not None:
            assert len(content) == 20 + int(summed[1])
            assert dialect.checksum(content[20:], 0) == int.from_bytes(content[int(offset) : end], "little")
    assert end == len(content)


@BOTH
@pytest.mark.parametrize("field", ["payload", "magic", "checksum", "compressor", "records", "size"])
def test_what_damage_costs(field: str, dialect: Dialect) -> None:
    (rows,) = tables("| damaged part | detected by | next chunk found by |")
    assert sum(field in row[0].split(", ") for row in rows) == 1
    (fields,) = tables("| offset | Go | pyrecordio |")
    places = {row[1 if dialect is GO else 2]: int(row[0]) for row in fields} | {"payload": 25}
    content = bytearray(written([b"one", b"two", b"three"], "snappy", 3, dialect))
    chunk = read_index(io.BytesIO(content)).chunks[1]
    content[chunk.offset + places[field]] ^= 0x40
    tally = Tally()
    assert list(read_records(io.BytesIO(content), on_damage="skip", tally=tally)) == [b"one", b"three"]
    ((_, start, end, reason),) = tally.damage
    assert (start, end) == (chunk.offset, chunk.offset + chunk.size)
    assert reason.startswith("records 1 to 1: ")


def test_the_numbers_on_the_page() -> None:
    assert f"at most {MOST:,} bytes" in PAGE
    assert f"at most {write._MOST_RECORDS:,} records" in PAGE
    assert f"The default is {write.MAX_CHUNK_SIZE >> 20} MiB" in PAGE


def test_the_program_at_the_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(PAGE.partition("```python\n")[2].partition("```")[0], {})
    assert capsys.readouterr().out == "1000\n"
    assert list(read_records("train-0000.recordio"))[999] == b"record 999"
