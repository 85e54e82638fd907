"""What tarkit writes is read by Hadoop 3.3.6 itself, on its own HDFS: SequenceFiles by ``hadoop fs
-text``, archives by its file system for ``har://``.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tarkit.errors import AlreadyPublishedError
from tarkit.formats.har import HarArchive, HarWriter
from tarkit.formats.sequencefile import PairWriter, read_pairs
from tarkit.formats.tally import Tally
from tarkit.store.publish import open_publish

if TYPE_CHECKING:
    from hdfs import Hdfs

ROWS = [(f"key-{i}-\u00e9\U0001f431", f"value {i} " * (i % 20)) for i in range(1000)]
FILES = {
    "a/1.jpg": b"one",
    "a/1.cls": b"",
    "a/b c/d~*\u00e9 \U0001f431.txt": b"two\n",
    "top": b"x",
    "a/b c/n/z": b"z" * 999,
}


@pytest.fixture
def folder(hdfs: Hdfs) -> str:
    """A path that no other test uses."""
    pytest.importorskip("hdfs_native", reason="NO hdfs-native, HDFS IS NOT TESTED")
    return f"/f-{uuid.uuid4().hex[:8]}"


def test_hadoop_reads_our_sequencefiles(hdfs: Hdfs, folder: str) -> None:
    kinds = [("none", "zlib"), ("record", "zlib"), ("block", "zlib"), ("block", "gzip"), ("record", "bzip2")]
    paths = []
    for compression, codec in kinds:
        paths.append(f"{folder}/{compression}-{codec}.seq")
        with PairWriter(
            f"{hdfs.hdfs}{paths[-1]}",
            "Text",
            "Text",
            compression=compression,
            codec=codec,
            sync_interval=2000,
            block_bytes=20_000,
        ) as writer:
            for pair in ROWS:
                writer.write(*pair)
    # And one that ends in a sync mark.
    paths.append(f"{folder}/a.seq")
    with open_publish(f"{hdfs.hdfs}{paths[-1]}") as out:
        out.write((Path(__file__).resolve().parents[1] / "data" / "sequencefile" / "ends-in-sync.seq").read_bytes())
    assert list(read_pairs(f"{hdfs.hdfs}{paths[-1]}")) == [("a", 1), ("b", 2)]
    printed = hdfs.shell("-text", *paths)
    assert printed == "".join(f"{key}\t{value}\n" for key, value in ROWS) * len(kinds) + "a\t1\nb\t2\n"


def test_parts_and_folders_on_hdfs(hdfs: Hdfs, folder: str) -> None:
    for number in range(2):
        with PairWriter(
            f"{hdfs.hdfs}{folder}/out/part-0000{number}", "IntWritable", compression="none", sync_interval=50_000
        ) as writer:
            for index in range(2000):
                writer.write(number * 2000 + index, bytes(1000))
    open_publish(f"{hdfs.hdfs}{folder}/out/_SUCCESS").commit()
    tally = Tally()
    assert [key for key, _ in read_pairs(f"{hdfs.webhdfs}{folder}/out", tally=tally)] == list(range(4000))
    assert tally.skipped == {"metadata": 1}
    for base in (hdfs.hdfs, hdfs.webhdfs):
        url = f"{base}{folder}/out/part-00001"
        cut = 1_234_567
        found = [key for start, stop in ((0, cut), (cut, None)) for key, _ in read_pairs(url, start=start, stop=stop)]
        assert found == list(range(2000, 4000))


def test_hadoop_reads_our_archives(hdfs: Hdfs, folder: str) -> None:
    url = f"{hdfs.hdfs}{folder}/x.har"
    with HarWriter(url, part_size=4, mtime=1_700_000_000) as writer:
        for name, content in FILES.items():
            writer.write(name, content)
    har = f"har://{hdfs.hdfs.replace('://', '-')}{folder}/x.har"
    listed = hdfs.shell("-ls", "-R", har).splitlines()
    found = {}
    for line in listed:
        mode, _, _, _, size, date, _, path = line.split(None, 7)
        if not mode.startswith("d"):
            assert date == "2023-11-14"
            found[path.partition("x.har/")[2]] = int(size)
    assert found == {name: len(content) for name, content in FILES.items()}
    assert hdfs.shell("-cat", *(f"{har}/{name}" for name in FILES)).encode() == b"".join(FILES.values())
    for base in (har, url, f"{hdfs.webhdfs}{folder}/x.har"):
        archive = HarArchive(base)
        assert archive.read("a/b c/n/z") == FILES["a/b c/n/z"]
        assert dict(archive.items()) == FILES
    with pytest.raises(AlreadyPublishedError, match="a different archive exists already"), HarWriter(url):
        pass
