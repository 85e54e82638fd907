"""Programs that were written for a package for RecordIO run over tarkit."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from recordiobuild import HELLO, RECORDS, VECTORS, written

from tarkit.errors import TarkitError, TruncatedError
from tarkit.formats import pyrecordio as recordio
from tarkit.formats.pyrecordio import RecordIOError


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.recordio")


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
    assert not Path(path).exists()


def test_a_forgotten_close_is_not_silent(path: str) -> None:
    output = recordio.Writer(path)
    output.write(b"lost")
    with pytest.warns(ResourceWarning, match="its writer was never closed, so 1 record is not published"):
        del output
        gc.collect()
    assert not Path(path).exists()


def test_a_wrong_argument_is_an_error_and_no_warning(path: str) -> None:
    with pytest.raises(TarkitError, match="nowhere"):
        recordio.Writer("nowhere://a")
    gc.collect()


def test_files_of_pyrecordio_are_read_too(path: str) -> None:
    Path(path).write_bytes(VECTORS["py-hello"])
    assert scanned(recordio.Scanner(path)) == HELLO
