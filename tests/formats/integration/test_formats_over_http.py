"""Record files over HTTP, whose connections are cut: archives in place, and parts of
SequenceFiles."""

from __future__ import annotations

from pathlib import Path

import harbuild
import pytest
from httpserver import Fault, FaultServer

from tarkit.errors import DataError
from tarkit.formats.har import HarArchive
from tarkit.formats.registry import FORMATS, format_of, holds_files, holds_rows, named_writer
from tarkit.formats.sequencefile import PairWriter, read_pairs

FILES = {"/a/1.jpg": b"one", "/a/b c~.txt": bytes(range(256)) * 1000, "/z": b"last"}
SECRET = "c4n4ry"


def test_an_archive_is_read_in_place(tmp_path: Path) -> None:
    harbuild.build(tmp_path / "x.har", FILES)
    with FaultServer() as server:
        for path in (tmp_path / "x.har").iterdir():
            server.put(f"data/x.har/{path.name}", path.read_bytes(), Fault("cut", 10))
        archive = HarArchive(f"http://{server.host}/data/x.har?key={SECRET}")
        assert archive.read("z") == b"last"
        asked = [headers.get("Range", "") for headers in server.asked("data/x.har/part-0")]
        assert any(each.startswith("bytes=256003-") for each in asked)
        assert {f"/{name}": content for name, content in archive.items()} == FILES
        server.put("data/x.har/part-0", b"short")
        with pytest.raises(DataError) as caught:
            archive.read("z")
        assert SECRET not in str(caught.value)


def test_a_part_of_a_sequencefile(tmp_path: Path) -> None:
    path = tmp_path / "x.seq"
    with PairWriter(path, "IntWritable", compression="none", sync_interval=5000) as writer:
        for index in range(1000):
            writer.write(index, bytes(1000))
    with FaultServer() as server:
        url = server.put("x.seq", path.read_bytes(), Fault("cut", 50), Fault("cut", 700_000))
        found = [
            key
            for start, stop in ((0, 300_000), (300_000, 900_000), (900_000, None))
            for key, _ in read_pairs(url, start=start, stop=stop)
        ]
        assert found == list(range(1000))
        assert any(headers.get("Range", "").startswith("bytes=900000-") for headers in server.asked("x.seq"))


@pytest.mark.parametrize("name", [name for name in FORMATS if not (holds_files(name) or holds_rows(name))])
def test_a_format_is_known_from_bytes_that_come_in_pieces(tmp_path: Path, name: str) -> None:
    with named_writer(name, str(tmp_path / "x")) as write:
        write("key", bytes(1000))
    with FaultServer() as server:
        url = server.put("x", (tmp_path / "x").read_bytes(), Fault("cut", 2), Fault("cut", 9), Fault("cut", 11))
        assert format_of(f"{url}?key={SECRET}") == name
