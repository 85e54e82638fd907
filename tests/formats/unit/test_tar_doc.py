"""docs/formats/tar.md is what the code does, and what it says of webdataset is what webdataset
does.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import hashlib
import importlib
import importlib.util
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import DataError, NotATarError
from tarkit.formats.tally import Tally
from tarkit.formats.tar import headers
from tarkit.samples.read import read_members, read_samples
from tarkit.samples.sample import first_dot, group_by_keys, skip_reason
from tarkit.writer import TarWriter

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "tar.md").read_text(encoding="utf-8")
OTHER = "~other.ok"
EXAMPLE = {"__key__": "images/cat", "cls": b"3\n", "jpg": b"\xff\xd8\xff\xd9"}


def rows(first_title: str) -> list[list[str]]:
    """The cells of the table whose first column has this title."""
    table = PAGE.partition(f"\n| {first_title} |")[2].partition("\n\n")[0]
    assert table, f"no table begins with {first_title}"
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def text_of(cell: str) -> str:
    """The name that stands in a code span, its escapes undone."""
    match = re.fullmatch("`(.+)`", cell)
    assert match, f"{cell} is not a code span"
    escape = r"\\(?:(n)|(t)|(\\)|x([0-9a-f]{2})|u([0-9a-f]{4})|\{(\d+)\})"
    found = ""
    position = 0
    for part in re.finditer(escape, match[1]):
        found += match[1][position : part.start()]
        position = part.end()
        newline, tab, _backslash, byte, code, times = part.groups()
        if byte:
            found += bytes([int(byte, 16)]).decode("utf-8", "surrogateescape")
        elif code:
            found += chr(int(code, 16))
        elif times:
            found += found[-1] * (int(times) - 1)
        else:
            found += "\n" if newline else "\t" if tab else "\\"
    return found + match[1][position:]


def expectation(cell: str) -> tuple[str, ...]:
    """A cell of the table as data: (key, field), ("skipped", …), ("error", class), (key,
    "(lost)")."""
    if cell == "skipped":
        return ("skipped",)
    if cell.startswith(("skipped: ", "error: ")):
        return tuple(cell.split(": "))
    key, _, field = cell.partition(" + ")
    return text_of(key), {"(empty)": "", "(lost)": "(lost)"}[field] if field.startswith("(") else text_of(field)


NAMES = [(text_of(row[0]), expectation(row[1]), expectation(row[2]), row[3]) for row in rows("member name")]
IDS = [row[0].strip("`") for row in rows("member name")]


def archive_of(name: str) -> bytes:
    """A tar with one file of this name, and one of another key."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for member in (name, OTHER):
            header = tarfile.TarInfo(member)
            header.size = 1
            archive.addfile(header, io.BytesIO(b"x"))
    return out.getvalue()


def test_the_table_is_large_and_has_no_name_twice() -> None:
    assert len(NAMES) >= 45
    assert len({name for name, *_ in NAMES}) == len(NAMES)
    assert sum(theirs[0] != "skipped" and ours[0] == "skipped" for _, ours, theirs, _ in NAMES) >= 5


@pytest.mark.parametrize(("name", "ours", "theirs", "why"), NAMES, ids=IDS)
def test_a_note_stands_where_the_two_differ_and_only_there(
    name: str, ours: tuple[str, ...], theirs: tuple[str, ...], why: str
) -> None:
    same = ours == theirs or ours[0] == theirs[0] == "skipped"
    assert same != bool(why)


@pytest.mark.parametrize(("name", "ours"), [row[:2] for row in NAMES], ids=IDS)
def test_tarkit_splits_or_skips_as_the_table_says(name: str, ours: tuple[str, ...]) -> None:
    if ours[0] == "skipped":
        assert skip_reason(name) == ours[1]
    else:
        assert skip_reason(name) is None
        assert first_dot(name) == ours


@pytest.mark.parametrize(("name", "ours"), [row[:2] for row in NAMES], ids=IDS)
def test_tarkit_groups_as_the_table_says(name: str, ours: tuple[str, ...]) -> None:
    for members in (
        [(name, b"x", 0), (OTHER, b"x", 1024)],
        list(read_members(io.BytesIO(archive_of(name)).read)),
    ):
        tally = Tally()
        samples = list(group_by_keys(members, tally=tally))
        assert samples.pop() == {"__key__": "~other", "__url__": "", "ok": b"x"}
        if ours[0] == "skipped":
            assert samples == []
            assert tally.skipped == {ours[1]: 1}
        else:
            assert samples == [{"__key__": ours[0], "__url__": "", ours[1]: b"x"}]
            assert tally.skipped == {}


def through_webdataset(path: Path) -> tuple[str, ...]:
    """What webdataset makes of the first file of a shard, in the words of the table."""
    webdataset = importlib.import_module("webdataset")
    assert webdataset.__version__ == "1.0.2", "the column of the table is headed 1.0.2"
    try:
        samples: list[dict[str, Any]] = list(webdataset.WebDataset(str(path), shardshuffle=False))
    except Exception as error:
        return "error", type(error).__name__
    found = [sample for sample in samples if sample["__key__"] != "~other"]
    assert len(samples) - len(found) == 1
    if not found:
        return ("skipped",)
    (sample,) = found
    fields = [field for field, value in sample.items() if value == b"x"] or ["(lost)"]
    return sample["__key__"], *fields


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """What webdataset makes of each name of the table."""
    if importlib.util.find_spec("webdataset") is None:
        pytest.skip("webdataset is not installed (it is in the extra: test)")
    path = tmp_path_factory.mktemp("webdataset") / "one.tar"
    found = {}
    for name, *_ in NAMES:
        path.write_bytes(archive_of(name))
        found[name] = through_webdataset(path)
    gc.collect()
    return found


# webdataset leaves shards open; they are collected above, so that no other test is blamed.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("name", "stated"), [(row[0], row[2]) for row in NAMES], ids=IDS)
def test_webdataset_does_what_the_table_says(
    name: str, stated: tuple[str, ...], theirs: dict[str, tuple[str, ...]]
) -> None:
    assert theirs[name] == stated


def test_the_table_shows_every_reason_for_skipping() -> None:
    reasons = {row[0].strip("`") for row in rows("reason")}
    assert {ours[1] for _, ours, _, _ in NAMES if ours[0] == "skipped"} == reasons


# ---- the example in hex


def example_header() -> bytes:
    block = bytearray(512)
    dump = PAGE.partition("```hex\n")[2].partition("```")[0]
    for line in dump.splitlines():
        offset, _, digits = line.partition("  ")
        row = bytes.fromhex(digits)
        assert len(row) == 16
        block[int(offset, 16) : int(offset, 16) + 16] = row
    return bytes(block)


def test_the_example_header_holds_what_its_table_says() -> None:
    header = example_header()
    covered = 0
    for offset, length, _, text in rows("offset"):
        assert int(offset) == covered, "the fields follow each other"
        covered += int(length)
        raw = header[int(offset) : covered]
        assert raw.partition(b"\0")[0] == text.strip("`").encode()
    assert header[covered:] == bytes(12)


def test_the_fields_of_the_grammar_are_those_of_the_example() -> None:
    fields = [(int(row[0]), int(row[1]), row[2]) for row in rows("from")]
    assert fields[:-1] == [(int(offset), int(length), field) for offset, length, field, _ in rows("offset")]
    assert fields[-1] == (500, 12, "")


def test_the_example_header_is_read_by_tarfile_and_by_tarkit() -> None:
    header = example_header()
    theirs = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    assert (theirs.name, theirs.size, theirs.mode, theirs.mtime) == ("images/cat.cls", 2, 0o444, 0)
    assert (theirs.uid, theirs.gid, theirs.uname, theirs.gname) == (0, 0, "bigdata", "bigdata")
    ours = headers.parse(header)
    assert (ours.name, ours.size, ours.kind) == (b"images/cat.cls", 2, ord("0"))


def test_the_writer_makes_the_example(tmp_path: Path) -> None:
    path = tmp_path / "example.tar"
    with TarWriter(str(path), mtime=0) as writer:
        writer.write(EXAMPLE)
    shard = path.read_bytes()
    assert shard[:512] == example_header()
    assert len(shard) == 10_240
    (digest,) = re.findall(r"SHA-256 is `([0-9a-f]{64})`", PAGE)
    assert hashlib.sha256(shard).hexdigest() == digest
    assert list(read_samples(str(path))) == [{**EXAMPLE, "__url__": str(path)}]


def test_the_program_at_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(PAGE.partition("```python\n")[2].partition("```")[0], {})
    assert (tmp_path / "train-000000.tar").stat().st_size == 10_240


# ---- damage


def five_samples() -> bytes:
    """k0 to k4, each with three members of 1,024 bytes; before k2.jpg, 1,024 of a PAX header.

    The mark is at 16,384.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(5):
            for field in ("cls", "jpg", "txt"):
                info = tarfile.TarInfo(f"k{number}.{field}")
                info.size = 100
                info.pax_headers = {"comment": "x"} if info.name == "k2.jpg" else {}
                archive.addfile(info, io.BytesIO(b"x" * 100))
    return out.getvalue()


SHARD = five_samples()
JPG, MARK = 8192, 16_384


def flipped(*places: int) -> list[bytes]:
    return [SHARD[:place] + bytes([SHARD[place] ^ 1]) + SHARD[place + 1 :] for place in places]


DAMAGE = {
    "a byte of a header": flipped(*range(JPG, JPG + 512, 11), 6144, 9216),
    "a byte of the records of a PAX header": flipped(7168 + 512),
    "a byte of content": flipped(JPG + 512),
    "a byte of padding": flipped(JPG + 612, JPG + 1023),
    "a byte is missing, or one too many": [
        SHARD[:JPG] + SHARD[JPG + 1 :],
        SHARD[: JPG + 700] + b"?" + SHARD[JPG + 700 :],
    ],
    "a byte of the first block of the end mark": flipped(MARK, MARK + 511),
    "a byte of the zeros after that": flipped(MARK + 512, len(SHARD) - 1),
    "a cut, before the end mark or in its first block": [SHARD[:cut] for cut in range(MARK - 2460, MARK + 512, 73)],
    "a cut after the first block of the end mark": [SHARD[:cut] for cut in range(MARK + 512, len(SHARD), 73)],
    "a byte of a compressed shard, or a cut of it": [gzip.compress(SHARD)[:-1]],
}


@pytest.mark.parametrize(("damage", "by_default", "lost"), rows("damaged part"), ids=list(DAMAGE))
def test_what_damage_costs(damage: str, by_default: str, lost: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    for content in DAMAGE[damage]:
        path.write_bytes(content)
        noticed = by_default.startswith("error")
        with pytest.raises(DataError) if noticed else contextlib.nullcontext():
            assert len(list(read_samples(str(path)))) == 5
        tally = Tally()
        keys = {sample["__key__"] for sample in read_samples(str(path), on_damage="skip", tally=tally)}
        assert len(tally.damage) == noticed
        if lost.startswith("nothing"):
            assert len(keys) == 5
        elif lost.startswith("the last sample"):
            assert keys == {"k0", "k1", "k2", "k3"}
        else:
            assert {"k0", "k4"} <= keys and "k2" not in keys
            assert "the samples on both sides" in lost


def test_a_shard_that_does_not_look_like_a_tar(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(bytes([SHARD[0]]) + bytes(511) + SHARD[512:])
    with pytest.raises(NotATarError):
        list(read_samples(str(tmp_path / "x.tar"), on_damage="skip"))
