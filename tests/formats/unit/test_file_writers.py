"""What the writers of all formats have in common: a file that has ended takes nothing more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import StreamError
from tarkit.formats.parquet import RowWriter
from tarkit.formats.pyrecordio import Writer
from tarkit.formats.recordio import RecordWriter as RecordIOWriter
from tarkit.formats.sequencefile.write import PairWriter
from tarkit.formats.tfrecord import RecordWriter as TFRecordWriter
from tarkit.samples.tarwriter import TarWriter

# Name of the file -> its writer, and a thing to write.
WRITERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "x.recordio": (RecordIOWriter, (b"one",)),
    "x.recordio.py": (Writer, (b"one",)),
    "x.tfrecord": (TFRecordWriter, (b"one",)),
    "x.tfrecord.gz": (TFRecordWriter, (b"one",)),
    "x.seq": (PairWriter, ("key", b"one")),
    "y.seq": (lambda path: PairWriter(path, compression="record"), ("key", b"one")),
    "x.parquet": (RowWriter, ({"__key__": "key", "a": b"one"},)),
    "x.tar": (TarWriter, ({"__key__": "key", "a": b"one"},)),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("end", ["close", "discard"])
def test_a_file_that_has_ended_takes_nothing_more(name: str, end: str, tmp_path: Path) -> None:
    """What is written then would be in no file, and nothing would say so."""
    if name == "x.parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    make, thing = WRITERS[name]
    writer = make(str(tmp_path / name))
    writer.write(*thing)
    getattr(writer, end)()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for _ in range(2):
        with pytest.raises(StreamError):
            writer.write(*thing)
    assert writer.records == 1
    getattr(writer, end)()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
