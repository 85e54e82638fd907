"""Programs that were written for two packages for RecordIO run over tarkit."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from test_recordio import DATA, HELLO, NUMBERS, RECORDS, VECTORS, written

from tarkit.errors import TarkitError, TruncatedError
from tarkit.formats import pyrecordio as recordio
from tarkit.formats.pyrecordio import File, RecordIOError


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.recordio")


# ---- Writer, Index, Scanner


def scanned(scanner: recordio.Scanner) -> list[bytes]:
    records = []
    while (record := scanner.record()) is not None:
        records.append(record)
    assert scanner.record() is None
    scanner.close()
    return records


def test_a_program_for_go_s_binding(path: str) -> None:
    writer = recordio.Writer(path)
    for record in [*HELLO, b"", b"last"]:
        writer.write(record)
    writer.close()
    writer.close()
    index = recordio.Index(path)
    assert index.num_records() == 5
    # An empty record ends nothing.
    assert scanned(recordio.Scanner(path, index=index)) == [*HELLO, b"", b"last"]
    assert scanned(recordio.Scanner(path, 1, 3)) == [*HELLO[1:], b""]
    index.close()


def test_the_bytes_of_go_s_binding(path: str) -> None:
    with recordio.Writer(path) as writer:
        for record in HELLO:
            writer.write(record)
    assert Path(path).read_bytes() == VECTORS["go7-hello"]


@pytest.mark.parametrize("start", [-3, 0, 1, 9, 10, 11, 50])
@pytest.mark.parametrize("length", [-5, -1, 0, 1, 4, 10, 99])
def test_where_a_scan_begins_and_ends(start: int, length: int, path: str) -> None:
    Path(path).write_bytes(written(RECORDS[:10], "none", 30))
    begin = max(start, 0)
    expected = RECORDS[begin:10] if length < 0 else RECORDS[begin : min(begin + length, 10)]
    assert scanned(recordio.Scanner(path, start, length)) == expected


def test_a_closed_scanner_gives_nothing(path: str) -> None:
    Path(path).write_bytes(written(HELLO))
    scanner = recordio.Scanner(path)
    assert scanner.record() == b"Hello"
    scanner.close()
    assert scanner.record() is None


def test_what_fails_is_a_runtime_error(path: str) -> None:
    for opening in (recordio.Index, recordio.Scanner):
        with pytest.raises(RuntimeError, match="no such file") as missing:
            opening(path)
        assert isinstance(missing.value, TarkitError)
        assert missing.value.exit_code == 66
    content = written(RECORDS[:20], "snappy", 30)
    Path(path).write_bytes(content[:-1])
    with pytest.raises(RecordIOError, match="the stream ends inside a chunk") as cut:
        recordio.Index(path)
    assert isinstance(cut.value.__cause__, TruncatedError)
    Path(path).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    scanner = recordio.Scanner(path)
    with pytest.raises(RuntimeError, match="checksum mismatch"):
        scanned(scanner)


@pytest.mark.parametrize("record", ["text", 7, None])
def test_only_bytes_are_records(record: Any, path: str) -> None:
    with pytest.raises(ValueError, match="a record is bytes"), recordio.Writer(path) as writer:
        writer.write(record)
    with pytest.raises(ValueError, match="a record is bytes"), File(path, "w") as file:
        file.write(record)
    assert not Path(path).exists()


@pytest.mark.parametrize("opening", [recordio.Writer, lambda path: File(path, "w")])
def test_a_forgotten_close_is_not_silent(opening: Any, path: str) -> None:
    output = opening(path)
    output.write(b"lost")
    with pytest.warns(ResourceWarning, match="its writer was never closed, so 1 record is not published"):
        del output
        gc.collect()
    assert not Path(path).exists()


def test_a_wrong_argument_is_an_error_and_no_warning(path: str) -> None:
    with pytest.raises(ValueError, match="no compression 'lzma' in RecordIO"):
        File(path, "w", compressor="lzma")
    with pytest.raises(TarkitError, match="nowhere"):
        recordio.Writer("nowhere://a")
    gc.collect()


# ---- File


@pytest.mark.parametrize("modes", [("w", "r"), ("write", "read")])
def test_a_program_for_pyrecordio(modes: tuple[str, str], path: str) -> None:
    with File(path, modes[0]) as out:
        for record in RECORDS[:300]:
            out.write(record)
    assert Path(path).read_bytes() == (DATA / "pyrecordio.recordio").read_bytes()
    with File(path, modes[1]) as file:
        assert file.count() == 300
        assert list(file) == RECORDS[:300]
        assert list(file.get_reader(100, 200)) == RECORDS[100:200]
        assert file.get(299) == RECORDS[299]


def test_encoder_and_decoder(path: str) -> None:
    with File(path, "w", max_chunk_size=10, encoder=lambda value: json.dumps(value).encode()) as out:
        for value in ({"a": 1}, [2], None):
            out.write(value)
    with File(path, "r", decoder=json.loads) as file:
        assert list(file) == [{"a": 1}, [2], None]
        assert file.get(1) == [2]


@pytest.mark.parametrize("compressor", ["snappy", "none", "gzip"])
def test_the_compressor_is_what_was_asked_for(compressor: str, path: str) -> None:
    with File(path, "w", compressor=compressor) as out:
        for record in HELLO:
            out.write(record)
    content = Path(path).read_bytes()
    assert content[12] == {"none": 1, "snappy": 2, "gzip": 3}[compressor]
    if f"py-hello-{compressor}" in VECTORS:
        assert content == VECTORS[f"py-hello-{compressor}"]
    with File(path, "r") as file:
        assert list(file) == HELLO


@pytest.mark.parametrize("number", [-1, 3, 100])
def test_a_number_that_no_record_has(number: int, path: str) -> None:
    Path(path).write_bytes(VECTORS["py-hello"])
    with File(path, "r") as file, pytest.raises(IndexError, match=f"no record {number}; the file has 3"):
        file.get(number)


def test_ranges_that_are_not_there_are_empty(path: str) -> None:
    Path(path).write_bytes(VECTORS["py-hello"])
    with File(path, "r") as file:
        assert [list(file.get_reader(*each)) for each in ((-1, 2), (2, 1), (3, 9))] == [[], [], []]
        assert list(file.get_reader(2, 9)) == HELLO[2:]


def test_what_a_mode_does_not_allow(path: str) -> None:
    with pytest.raises(ValueError, match="the mode is 'r', 'read', 'w' or 'write', not 'a'"):
        File(path, "a")
    with File(path, "w") as out:
        for reading in (out.count, out.get_reader, lambda: out.get(0)):
            with pytest.raises(RuntimeError, match="not open for reading"):
                reading()
    file = File(path, "r")
    with pytest.raises(RuntimeError, match="not open for writing"):
        file.write(b"x")
    file.close()
    with pytest.raises(RuntimeError, match="not open for reading"):
        file.count()


def test_damage_is_an_error_of_both_kinds(path: str) -> None:
    Path(path).write_bytes(VECTORS["py-hello"][:-1] + b"?")
    file = File(path, "r")
    for kind in (RuntimeError, ValueError):
        with pytest.raises(kind, match="checksum mismatch"):
            file.get(0)
    Path(path).write_bytes(b"not RecordIO, but long enough")
    with pytest.raises(ValueError, match="a chunk begins with 04 03 02 01"):
        File(path, "r")
    with pytest.raises(FileNotFoundError):
        File(path + "x", "r")


def test_go_s_files_are_read_too(path: str) -> None:
    Path(path).write_bytes(VECTORS["go-chunk10"])
    assert list(File(path, "r")) == NUMBERS
    Path(path).write_bytes(VECTORS["py-hello"])
    assert scanned(recordio.Scanner(path)) == HELLO


def test_an_exception_publishes_nothing(path: str) -> None:
    with pytest.raises(KeyError), File(path, "w") as out:
        out.write(b"x")
        raise KeyError
    assert not Path(path).exists()
