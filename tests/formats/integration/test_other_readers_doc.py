"""docs/other-readers.md: each cell of its tables is what the program does here."""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarkit import TarWriter
from tarkit.formats.tar import headers

PAGE = Path(__file__).resolve().parents[3] / "docs" / "other-readers.md"
Files = dict[str, tuple[int, str | None]]
"""Name -> size, and SHA-256 of the content; None if the content is too large to be read here."""

ROW = "a" * 90 + "/" + "b" * 90
LONG = "a" * 150 + "/" + "b" * 150
RAW = "\udcff\udcfe"
BIG = 2**33 + 5


def digest(content: bytes) -> tuple[int, str]:
    return len(content), hashlib.sha256(content).hexdigest()


def small(path: Path, *keys: str, **options: str) -> Files:
    found: Files = {}
    with TarWriter(path, encoder=False, **options) as writer:  # type: ignore[arg-type]
        for key in ("0", *keys, "z"):
            content = key.encode("utf-8", "surrogateescape") * 20
            writer.write({"__key__": key, "txt": content})
            found[f"{key}.txt"] = digest(content)
    return found


def big(path: Path, *, format: str) -> Files:
    template = headers.HeaderTemplate(mode=0o444, mtime=0, user="bigdata", group="bigdata", format=format)
    with open(path, "wb") as file:
        for name, size in ((b"0.txt", 5), (b"big.bin", BIG), (b"z.txt", 7)):
            file.write(template.encode_any(name, size))
            # Holes, which are read as zeros.
            file.seek(-(-size // 512) * 512, os.SEEK_CUR)
        file.truncate(file.tell() + 1024)
    return {"0.txt": digest(bytes(5)), "big.bin": (BIG, None), "z.txt": digest(bytes(7))}


def two(path: Path) -> Files:
    found = small(path)
    more = small(path.with_name("more.tar"), "more")
    path.write_bytes(path.read_bytes() + path.with_name("more.tar").read_bytes().replace(b"0.txt", b"1.txt"))
    return found | more


Make = Callable[[Path], Files]
SHARDS: dict[str, tuple[str, Make]] = {
    **{f"`.{ending}`": (f"s.{ending}", lambda path: small(path, "k", "d/k"))
       for ending in ("tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst", "tar.lz4")},
    "a name of more than 100 bytes, split at a slash": ("s.tar", lambda path: small(path, ROW)),
    "a longer name, `--format pax`": ("s.tar", lambda path: small(path, LONG)),
    "a longer name, `--format gnu`": ("s.tar", lambda path: small(path, LONG, format="gnu")),
    "a name that is not UTF-8, of at most 100 bytes": ("s.tar", lambda path: small(path, RAW)),
    "a longer name that is not UTF-8, `--format pax`": ("s.tar", lambda path: small(path, RAW * 60)),
    "a longer name that is not UTF-8, `--format gnu`": ("s.tar", lambda path: small(path, RAW * 60, format="gnu")),
    "a size of 8 GiB or more, `--format pax`": ("s.tar", lambda path: big(path, format="pax")),
    "a size of 8 GiB or more, `--format gnu`": ("s.tar", lambda path: big(path, format="gnu")),
    "two archives, concatenated": ("s.tar", two),
}  # fmt: skip
HELPERS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
LETTER = {".gz": "z", ".bz2": "j", ".xz": "J"}


# ---- the programs


def unpacked(command: list[str]) -> Callable[[Path], Files]:
    """What a tar program unpacks; of content that is too large for that, what it lists."""

    def read(path: Path) -> Files:
        flags = LETTER.get(path.suffix, "") if command[0] == "busybox" else ""
        if path.stat().st_size > BIG:
            return listed([*command, f"-t{flags}vf", str(path)])
        out = path.with_name("out")
        out.mkdir()
        subprocess.run([*command, f"-x{flags}f", path, "-C", out], check=True, capture_output=True, timeout=60)
        files = [Path(folder, name) for folder, _, names in os.walk(out) for name in names]
        return {str(each.relative_to(out)): digest(each.read_bytes()) for each in files}

    return read


def listed(command: list[str]) -> Files:
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    rows = [line.split() for line in lines]
    # bsdtar shows a count of links, and owner and group in two columns.
    return {row[-1]: (int(row[4] if row[1].isdigit() else row[2]), None) for row in rows}


def by_tarfile(path: Path) -> Files:
    with tarfile.open(path) as archive:
        return {
            info.name: digest(archive.extractfile(info).read()) if info.size < BIG else (info.size, None)  # type: ignore[union-attr]
            for info in archive
        }


def by_webdataset(path: Path) -> Files:
    webdataset = pytest.importorskip("webdataset")
    samples = list(webdataset.WebDataset(str(path), shardshuffle=False))
    return {f"{sample['__key__']}.txt": digest(sample["txt"]) for sample in samples}


def by_go(path: Path) -> Files:
    done = subprocess.run([_go_program(), path], check=True, capture_output=True, text=True, timeout=60)
    words = [line.split() for line in done.stdout.splitlines()]
    return {
        os.fsdecode(bytes.fromhex(name)): (int(size), None if int(size) >= BIG else sum_) for name, size, sum_ in words
    }


@functools.cache
def _go_program() -> str:
    folder = tempfile.mkdtemp(prefix="tarkit-go-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = Path(__file__).resolve().parents[1] / "data" / "readers" / "list.go"
    subprocess.run(["go", "build", "-o", f"{folder}/list", source], check=True, capture_output=True, timeout=300)
    return f"{folder}/list"


def by_blocks(path: Path) -> Files:
    """Names with the digest of what is where the member's content would be by tar
    --block-number.
    """
    command = ["tar", "--list", "--block-number", "-f", path]
    output = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    blocks = [int(number) for number in re.findall(rb"(?m)^block (\d+): ", output)]
    with tarfile.open(path) as archive:
        infos = archive.getmembers()
    found: Files = {}
    with open(path, "rb") as file:
        for info, block in zip(infos, blocks[:-1], strict=True):
            start = (block + 1) * 512
            file.seek(start)
            found[info.name] = digest(file.read(info.size)) if info.size < BIG else (info.size, None)
            if start != info.offset_data:
                found[info.name] = (-1, None)
    return found


COLUMNS: dict[str, tuple[str, Callable[[Path], Files]]] = {
    "GNU tar": ("tar", unpacked(["tar"])),
    "bsdtar": ("bsdtar", unpacked(["bsdtar"])),
    "busybox": ("busybox", unpacked(["busybox", "tar"])),
    "tarfile of Python": ("", by_tarfile),
    "webdataset": ("", by_webdataset),
    "archive/tar of Go": ("go", by_go),
    "offsets": ("tar", by_blocks),
}
VERSIONS = {
    "tar": ["tar", "--version"],
    "bsdtar": ["bsdtar", "--version"],
    "go": ["go", "version"],
    "busybox": ["busybox"],
}


def cells() -> Iterator[tuple[str, str, str]]:
    """(row, column, cell) of all tables of the page."""
    header: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = []
            continue
        words = [word.strip() for word in line[1:-1].split("|")]
        if not header:
            header = words
        elif not set(words[0]) <= {"-"}:
            for column, cell in zip(header[1:], words[1:], strict=True):
                yield words[0], column, cell


CELLS = list(cells())


def test_the_tables_are_complete() -> None:
    rows = [row for row, _, _ in CELLS]
    assert dict.fromkeys(rows) == dict.fromkeys(SHARDS)
    assert {cell for _, _, cell in CELLS} == {"yes", "no", "-"}
    assert len(CELLS) == 6 * 6 + 8 * 7 + 6


# webdataset leaves files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("row", "column", "cell"), [each for each in CELLS if each[2] != "-"])
def test_cell(row: str, column: str, cell: str, tmp_path: Path) -> None:
    program, read = COLUMNS[re.sub(r" [0-9.]+$", "", column)]
    if program and shutil.which(program) is None:
        pytest.skip(f"{program} is not on the path")
    name, make = SHARDS[row]
    helper = HELPERS.get(Path(name).suffix)
    if program == "tar" and helper is not None and shutil.which(helper) is None:
        pytest.skip(f"{helper}, which GNU tar runs, is not on the path")
    expected = make(tmp_path / name)
    try:
        found = read(tmp_path / name)
    except (subprocess.CalledProcessError, tarfile.TarError):
        found = {}
    if column.startswith("webdataset"):
        # Now, while its warnings are expected; also of what it could not read.
        gc.collect()
    if any(size == BIG for size, _ in expected.values()):
        found = {each: (size, None) for each, (size, _) in found.items()}
        expected = {each: (size, None) for each, (size, _) in expected.items()}
    if cell == "yes":
        assert found == expected
    elif found == expected and not _same_version(program, column):
        pytest.skip(f"this {program or 'Python'} is another release than the page's, and reads it")
    else:
        assert found != expected, "the page says that it is not read"


def _same_version(program: str, column: str) -> bool:
    """Whether the program here is of the release that the column names."""
    release = re.sub(r".* ", "", column)
    if not program:
        # webdataset reads what Python's tarfile reads.
        return f"tarfile of Python {sys.version_info[0]}.{sys.version_info[1]} |" in PAGE.read_text(encoding="utf-8")
    done = subprocess.run(VERSIONS[program], capture_output=True, text=True, check=False, timeout=60)
    return column == "offsets" or release in done.stdout
