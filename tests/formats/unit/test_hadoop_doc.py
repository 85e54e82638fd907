"""The examples in docs/formats/sequencefile.md and docs/formats/har.md are what the code reads and
writes.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import shlex
from pathlib import Path

import harbuild
import pytest
from formatpages import hex_blocks
from tarkit.cli.tarkit import main

from tarkit import read_samples
from tarkit.formats.har import HarArchive, HarWriter
from tarkit.formats.sequencefile import PairWriter, header_of, read_pairs
from tarkit.formats.sequencefile.codecs import CODECS, SHORT_NAMES
from tarkit.formats.sequencefile.writables import WRITABLES

DOCS = Path(__file__).resolve().parents[3] / "docs" / "formats"
SEQUENCEFILE = (DOCS / "sequencefile.md").read_text(encoding="utf-8")
HAR = (DOCS / "har.md").read_text(encoding="utf-8")
PAIRS = [("cat", 3), ("dog", -1)]


def rows(page: str, titles: str, which: int = 0) -> list[list[str]]:
    """The cells of a table with this head."""
    table = page.split(f"\n| {titles} |\n")[which + 1].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[1:]]


def test_a_file_without_blocks() -> None:
    data = hex_blocks(SEQUENCEFILE)[0]
    out = io.BytesIO()
    with PairWriter(out, "Text", "IntWritable", compression="none", sync_interval=100) as writer:
        for pair in PAIRS:
            writer.write(*pair)
    assert out.getvalue() == data
    assert list(read_pairs(io.BytesIO(data))) == PAIRS
    end = 0
    for offset, length, field, value in rows(SEQUENCEFILE, "offset | length | field | value"):
        start, end = int(offset), int(offset) + int(length)
        content = data[start:end]
        if value.startswith("`"):
            assert content == ast.literal_eval(f"b'{value.strip('`')}'")
        elif value.startswith("the MD5"):
            assert content == hashlib.md5(data[:69]).digest()
        elif value.startswith("bytes"):
            assert content == data[69:85]
        else:
            assert int.from_bytes(content, "big", signed=True) == int(value), field
    assert end == len(data)


def test_a_block() -> None:
    block = hex_blocks(SEQUENCEFILE)[1]
    out = io.BytesIO()
    with PairWriter(out, "Text", "IntWritable", codec="snappy") as writer:
        writer.write("other", 0)
    header = out.getvalue()[: header_of(io.BytesIO(out.getvalue())).size]
    assert len(header) == 127
    assert list(read_pairs(io.BytesIO(header + block))) == PAIRS
    end = 0
    for offset, length, part, value in rows(SEQUENCEFILE, "offset | length | part | value"):
        assert int(offset) == end
        start, end = int(offset), int(offset) + int(length)
        if value.startswith("`"):
            assert CODECS["SnappyCodec"].decompress(block[start:end], 100) == bytes.fromhex(value.strip("`")), part
        elif value:
            assert block[start] == int(value)
        else:
            assert block[start:end] == b"\xff\xff\xff\xff" + header[-16:]
    assert end == len(block)


def test_the_tables_have_all_classes_and_codecs() -> None:
    cells = " ".join(row[0] for row in rows(SEQUENCEFILE, "class of `org.apache.hadoop.io` | bytes | in Python"))
    assert set(re.findall(r"`(\w+)`", cells)) == set(WRITABLES)
    found = rows(SEQUENCEFILE, "codec of `org.apache.hadoop.io.compress` | `codec=` | bytes of a buffer")
    assert {name for row in found for name in re.findall(r"`(\w+)`", row[0])} == set(CODECS)
    assert {row[1].strip("`"): re.findall(r"`(\w+)`", row[0])[0] for row in found} == SHORT_NAMES


def test_an_archive(tmp_path: Path) -> None:
    with HarWriter(tmp_path / "x.har", mtime=1.5) as writer:
        writer.write("a b/~", b"two")
        writer.write("a b/1.jpg", b"one")
    start, master = hex_blocks(HAR)
    index = (tmp_path / "x.har" / "_index").read_bytes()
    lines = rows(HAR, "hash | line of `_index`")
    assert index == b"".join(f"{line.strip('`')} \n".encode() for _, line in lines)
    assert len(index) == 205
    assert index.startswith(start)
    assert [int(number) for number, _ in lines] == [harbuild.hash_of(p) for p in ("/", "/a b", "/a b/1.jpg", "/a b/~")]
    assert (tmp_path / "x.har" / "_masterindex").read_bytes() == master
    assert (tmp_path / "x.har" / "part-0").read_bytes() == b"twoone"


@pytest.mark.parametrize("page", [SEQUENCEFILE, HAR], ids=["sequencefile", "har"])
def test_the_first_program_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    exec(compile(program, "page", "exec"), {})
    assert list(tmp_path.iterdir())


def test_the_program_for_shards_and_the_commands_make_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = re.findall(r"```python\n(.*?)```", HAR, re.DOTALL)[1]
    exec(compile(program, "page", "exec"), {})
    assert len(HarArchive("train.har")) == 200
    shards = [list(read_samples(name)) for name in ("train-0000.tar", "train-0001.tar", "train.tar")]
    assert [sample["__key__"] for sample in shards[2]] == [sample["__key__"] for sample in shards[0] + shards[1]]
    made = {path: path.read_bytes() for path in (Path("train.har/part-0"), Path("train.har/_index"), Path("train.tar"))}
    for path in made:
        path.unlink()
    Path("train.har/_masterindex").unlink()
    for command in re.findall("`tarkit (convert .*?)`", HAR):
        assert main(shlex.split(command)) == 0
    assert {path: path.read_bytes() for path in made} == made
