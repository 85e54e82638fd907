"""Names and sizes that a plain tar header cannot hold, in each format, as other programs read
them."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from tarbuild import samples_of

from tarkit import TarWriter
from tarkit.errors import EncodeError
from tarkit.formats.tar import headers
from tarkit.samples.sample import Sample

LONG: list[Sample] = [
    {"__key__": "a", "x": b"1"},
    {"__key__": "k" * 99, "x": b"22"},
    {"__key__": "d" * 80 + "/" + "k" * 90, "x": b"333"},
    {"__key__": "d" * 150 + "/" + "k" * 150, "x": b"4" * 600, "y": b""},
    {"__key__": "猫" * 50, "x": b"55555"},
    {"__key__": "\udcff\udcfe" * 60, "x": b"666666"},
    {"__key__": "z", "x": b"7777777"},
]
NAMES = {f"{sample['__key__']}.{field}": sample[field] for sample in LONG for field in sample if field != "__key__"}
SIZES = [0, 8**11 - 1, 8**11, 2**40 + 5, 2**63 - 1]


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not on the path")


@pytest.fixture(params=["pax", "gnu"])
def shard(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"{request.param}.tar"
    with TarWriter(path, format=request.param) as writer:
        for sample in LONG:
            writer.write(sample)
    return path


def test_read_back_by_tarkit_and_python(shard: Path) -> None:
    assert samples_of(shard.read_bytes()) == [{**sample, "__url__": "x.tar"} for sample in LONG]
    with tarfile.open(shard) as archive:
        members = archive.getmembers()
        assert {info.name: archive.extractfile(info).read() for info in members} == NAMES  # type: ignore[union-attr]
        kinds = {info.pax_headers.get("path") is not None for info in members}
    assert (True in kinds) == (shard.name == "pax.tar")


@pytest.mark.parametrize("program", ["tar", "bsdtar", "busybox"])
def test_unpacked_by_other_programs(program: str, shard: Path, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on the path")
    out = tmp_path / "out"
    out.mkdir()
    command = {"tar": ["tar"], "bsdtar": ["bsdtar"], "busybox": ["busybox", "tar"]}[program]
    subprocess.run([*command, "-xf", shard, "-C", out], check=True, capture_output=True)
    files = [Path(folder, name) for folder, _, names in os.walk(out) for name in names]
    assert {str(path.relative_to(out)): path.read_bytes() for path in files} == NAMES


def test_pax_says_that_a_name_is_not_utf8(shard: Path) -> None:
    marked = shard.read_bytes().count(b"21 hdrcharset=BINARY\n")
    assert marked == (1 if shard.name == "pax.tar" else 0)


@needs("bsdtar")
def test_bsdtar_does_not_complain_of_a_name_that_is_not_utf8(shard: Path) -> None:
    listed = subprocess.run(["bsdtar", "-tf", shard], check=True, capture_output=True)
    assert listed.stderr == b""


@needs("tar")
def test_only_pax_gives_true_offsets_to_a_tool_that_counts_blocks_with_gnu_tar(shard: Path) -> None:
    """So does NVIDIA DALI's index tool: content begins behind the block of the header, by tar
    --block-number.
    """
    listed = subprocess.run(["tar", "--list", "--block-number", "-f", shard], capture_output=True, check=True).stdout
    blocks = [int(number) for number in re.findall(rb"(?m)^block (\d+): ", listed)]
    with tarfile.open(shard) as archive:
        members = archive.getmembers()
    assert len(blocks) == len(members) + 1
    computed = [(block + 1) * 512 for block in blocks[:-1]]
    assert (computed == [info.offset_data for info in members]) == (shard.name != "gnu.tar")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("format", ["pax", "gnu"])
def test_sizes_of_any_length(format: str, size: int) -> None:
    template = headers.HeaderTemplate(mode=0o444, mtime=0, user="u", group="g", format=format)
    header = template.encode_any(b"k.x", size)
    assert len(header) == (512 if format == "gnu" or size < 8**11 else 1536)
    assert tarfile.open(fileobj=io.BytesIO(header + bytes(1024))).next().size == size  # type: ignore[union-attr]
    last = header[-512:]
    if format == "gnu":
        assert headers.parse(last) == (b"k.x", size, ord("0"))
        assert tarfile.TarInfo.frombuf(last, "utf-8", "strict").size == size


def test_ustar_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    with TarWriter(tmp_path / "u.tar", format="ustar") as writer:
        writer.write(LONG[2])
        for sample in (LONG[3], LONG[5]):
            with pytest.raises(EncodeError, match="format ustar does not have"):
                writer.write(sample)
    assert len(samples_of((tmp_path / "u.tar").read_bytes())) == 1


def test_formats_differ_only_where_a_name_is_long() -> None:
    def written(format: object) -> bytes:
        out = io.BytesIO()
        with TarWriter(out, format=format) as writer:  # type: ignore[arg-type]
            writer.write(LONG[0])
        return out.getvalue()

    assert written("pax") == written("ustar") == written(None) == written(tarfile.PAX_FORMAT) == written("PAX_FORMAT")
    assert written("gnu") == written(tarfile.GNU_FORMAT) == written("GNU_FORMAT")
    assert written("gnu")[257:265] == tarfile.TarInfo("a").tobuf(tarfile.GNU_FORMAT)[257:265]
    assert written("pax")[257:265] == tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT)[257:265]
