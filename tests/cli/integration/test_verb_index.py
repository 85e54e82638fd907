"""tarkit index: an index beside each shard, made, renewed, left or compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.specs.manifest import read_manifest

Run = Callable[..., Any]


def write_shard(path: Path, count: int = 3) -> Path:
    with tarkit.TarWriter(str(path)) as sink:
        for number in range(count):
            sink.write({"__key__": f"k{number}", "txt": "x" * number})
    return path


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.chdir(tmp_path)
    return [write_shard(tmp_path / f"s-{number}.tar", number) for number in range(4)]


def summary(counts: str, samples: str) -> str:
    return f"tarkit index: {counts}; {samples}\n"


def test_made_then_left_then_renewed(run: Run, shards: list[Path]) -> None:
    first = run("tarkit", "index", "s-{0..3}.tar")
    assert (first.code, first.stdout) == (0, b"")
    assert first.stderr == summary("4 shards: made 4, renewed 0, fresh 0", "6 samples")
    text = Path("s-2.idx").read_bytes()
    assert text == b"v1.2 2\ntxt 512 0 k0.txt\ntxt 1024 1 k1.txt\n"
    os.utime("s-2.idx", ns=(1, Path("s-2.tar").stat().st_mtime_ns))
    again = run("tarkit", "index", "s-{0..3}.tar", "-p", "1")
    assert (again.code, again.stderr) == (0, summary("4 shards: made 0, renewed 0, fresh 4", "6 samples"))
    write_shard(shards[2], 5)
    renewed = run("tarkit", "index", "s-{0..3}.tar")
    assert (renewed.code, renewed.stderr) == (0, summary("4 shards: made 0, renewed 1, fresh 3", "9 samples"))
    forced = run("tarkit", "index", "s-{0..3}.tar", "--force", "-q")
    assert (forced.code, forced.stderr) == (0, "")


def test_an_index_that_is_older_than_its_shard_is_renewed(run: Run, shards: list[Path]) -> None:
    run("tarkit", "index", "s-3.tar")
    # Its end is as it was, so that nothing else shows that it was written again.
    os.utime("s-3.idx", ns=(1, Path("s-3.tar").stat().st_mtime_ns - 1_000_000))
    assert run("tarkit", "index", "s-3.tar").stderr == summary("1 shard: made 0, renewed 1, fresh 0", "3 samples")
    assert run("tarkit", "index", "s-3.tar").stderr == summary("1 shard: made 0, renewed 0, fresh 1", "3 samples")


def test_what_is_advised_for_a_damaged_shard_makes_one_that_has_an_index(run: Run, shards: list[Path]) -> None:
    """It advised an option that this verb does not have."""
    shards[3].write_bytes(shards[3].read_bytes()[:2700])
    result = run("tarkit", "index", "s-3.tar")
    assert result.code == 65 and "or read it with tarkit cat --on-damage skip\n" in result.stderr
    assert run("tarkit", "cat", "--on-damage", "skip", "s-3.tar", "-o", "whole.tar").code == 3
    assert run("tarkit", "index", "whole.tar").code == 0


def test_a_pipe_is_refused_and_not_waited_for(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tar")
    result = run("tarkit", "index", str(tmp_path / "pipe.tar"))
    assert result.code == 2 and "pipe.tar is a pipe or a device; only a file has an index" in result.stderr


@pytest.mark.parametrize("text", [b"", b"v1.2 1\n", b"v1.1 0\n", b"\0\xff"])
def test_what_is_there_and_is_no_index_is_replaced(run: Run, shards: list[Path], text: bytes) -> None:
    Path("s-3.idx").write_bytes(text)
    assert run("tarkit", "index", "s-3.tar").stderr == summary("1 shard: made 0, renewed 1, fresh 0", "3 samples")
    assert run("tarkit", "index", "s-3.tar", "--check").code == 0


def test_check_reads_the_shard_and_writes_nothing(run: Run, shards: list[Path]) -> None:
    run("tarkit", "index", "s-0.tar", "s-1.tar", "s-2.tar")
    good = run("tarkit", "index", "s-0.tar", "s-1.tar", "s-2.tar", "--check")
    assert (good.code, good.stderr) == (0, summary("3 shards: fresh 3", "3 samples"))
    data = Path("s-2.tar").read_bytes()
    Path("s-2.tar").write_bytes(b"".join([_renamed(data[:512]), data[512:]]))
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    wrong = run("tarkit", "index", "s-2.tar", "--check")
    assert wrong.code == 65
    line = "s-2.tar: s-2.idx is not the index of this shard; make it anew: tarkit index --force s-2.tar"
    assert wrong.stderr.splitlines() == [f"tarkit index: {line}", "tarkit index: 1 shard: failed 1; 0 samples"]
    missing = run("tarkit", "index", "s-3.tar", "--check", "-q")
    line = "tarkit index: s-3.idx: is not there; make it: tarkit index s-3.tar\n"
    assert (missing.code, missing.stderr) == (66, line)
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def _renamed(header: bytes) -> bytes:
    """A header with another key, and its checksum."""
    total = int(header[148:154], 8) + ord("9") - ord("0")
    return header[:148].replace(b"k0", b"k9") + b"%06o" % total + header[154:]


def test_a_shard_that_fails_stops_no_other(run: Run, shards: list[Path]) -> None:
    shards[0].write_bytes(shards[0].read_bytes()[:100])
    write_shard(shards[2]).write_bytes(shards[2].read_bytes()[:-9000])
    with tarkit.TarWriter("blank.tar") as sink:
        sink.write({"__key__": "a b", "txt": "x"})
    found = run("tarkit", "index", "s-{0..4}.tar", "blank.tar", "-p", "3")
    assert found.code == 65
    lines = [line.removeprefix("tarkit index: ") for line in found.stderr.splitlines()]
    assert [line.partition(":")[0] for line in lines[:3]] == [
        "s-0.tar, offset 0",
        "s-2.tar, offset 1240",
        "s-4.tar",
    ]
    assert "no such file" in lines[2]
    assert lines[3] == "6 shards: made 3, renewed 0, fresh 0, failed 3; 5 samples"
    assert sorted(path.name for path in Path().glob("*.idx")) == ["blank.idx", "s-1.idx", "s-3.idx"]


def test_members_that_are_not_in_it_are_counted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tarkit.TarWriter("a.tar", keep_meta=True) as sink:
        sink.write({"__key__": "a", "txt": "x", "__meta__": b"y"})
    found = run("tarkit", "index", "a.tar")
    assert found.stderr.endswith("; 1 sample; skipped members: reserved-field 1\n")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (
            ["a.tar.xz"],
            2,
            "a.tar.xz: only a shard whose name ends in .tar, .tar.zst, .tzst, .tar.gz or .tgz has an index",
        ),
        (["-"], 2, "only a shard whose name ends in .tar"),
        (["http://localhost/a.tar"], 2, "http"),
        (["nosuch.tar"], 66, "nosuch.tar"),
        (["--check", "--force", "s-0.tar"], 2, "--force makes indexes anew, and --check writes none"),
        ([], 2, "name the shards; with --check and --manifest, they are those of the manifest"),
        (["--manifest", "d.json"], 2, "name the shards"),
        (["a.tar", "--manifest", "d.txt"], 2, "d.txt: the name of a manifest ends in .json"),
        (["a.tar", "./a.tar", "--manifest", "d.json"], 2, "./a.tar is listed twice"),
        (["--check", "--manifest", "d.json"], 66, "d.json: no such file"),
        (["a.tar", "-p", "0"], 2, "0 is not in the range"),
        (["a.tar", "--key-rule", "("], 2, "is not first-dot, last-dot or a regular expression"),
    ],
)
def test_what_is_refused(run: Run, shards: list[Path], argv: list[str], code: int, message: str) -> None:
    write_shard(Path("a.tar"))
    found = run("tarkit", "index", *argv)
    assert (found.code, found.stdout) == (code, b"")
    assert message in found.stderr


def test_a_shard_that_is_compressed_under_a_plain_name(run: Run, shards: list[Path]) -> None:
    with tarkit.TarWriter("z.tar", compress="gz") as sink:
        sink.write({"__key__": "a", "txt": "x"})
    found = run("tarkit", "index", "z.tar")
    assert (found.code, found.stderr.splitlines()[0]) == (
        2,
        "tarkit index: z.tar is compressed (gz), and its name does not say so: rename it",
    )


def test_another_key_rule(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tarkit.TarWriter("a.tar", rule="last-dot") as sink:
        sink.write({"__key__": "a.0", "txt": "x"})
        sink.write({"__key__": "a.1", "txt": "y"})
    assert run("tarkit", "index", "a.tar", "--key-rule", "last-dot").code == 0
    assert Path("a.idx").read_bytes() == b"v1.2 2\ntxt 512 1 a.0.txt\ntxt 1536 1 a.1.txt\n"


def test_a_manifest_is_written_and_compared(run: Run, shards: list[Path]) -> None:
    found = run("tarkit", "index", "s-{0..3}.tar", "--manifest", "d.json", "-p", "2")
    assert (found.code, found.stderr) == (0, summary("4 shards: made 4, renewed 0, fresh 0", "6 samples"))
    text = Path("d.json").read_bytes()
    assert [shard.nsamples for shard in read_manifest("d.json")] == [0, 1, 2, 3]
    assert run("tarkit", "index", "s-{0..3}.tar", "--manifest", "d.json", "-p", "1").code == 0
    assert Path("d.json").read_bytes() == text
    for names in ([], ["s-*.tar"], [str(path) for path in shards]):
        found = run("tarkit", "index", "--check", "--manifest", "d.json", *names)
        assert (found.code, found.stderr) == (0, summary("4 shards: fresh 4", "6 samples"))
    missing = run("tarkit", "index", "--check", "-q", "--manifest", "d.json", "s-{1..3}.tar")
    line = "tarkit: d.json: it also lists 1 shard: s-0.tar; tarkit index --manifest writes it from the shards\n"
    assert (missing.code, missing.stderr) == (65, line)
    data = shards[3].read_bytes()
    shards[3].write_bytes(data.replace(b"xx", b"xy"))
    changed = run("tarkit", "index", "--check", "-q", "--manifest", "d.json")
    assert changed.code == 65
    assert changed.stderr.startswith("tarkit: d.json: md5sum of s-3.tar is ")


def test_no_manifest_is_written_if_a_shard_fails(run: Run, shards: list[Path]) -> None:
    data = shards[2].read_bytes()
    shards[2].write_bytes(data[:700])
    found = run("tarkit", "index", "s-{0..3}.tar", "--manifest", "d.json", "-q")
    assert (found.code, Path("d.json").exists()) == (65, False)
    assert found.stderr.endswith("tarkit index: d.json is not written: a shard failed\n")
    shards[2].write_bytes(data)
    assert run("tarkit", "index", "s-{0..3}.tar", "--manifest", "d.json", "-q").code == 0
    text = Path("d.json").read_bytes()
    shards[1].unlink()
    found = run("tarkit", "index", "--check", "--manifest", "d.json", "-q")
    assert found.code == 66
    assert found.stderr.endswith("tarkit index: d.json is not compared: a shard failed\n")
    assert run("tarkit", "index", "s-{0..3}.tar", "--manifest", "d.json", "-q").code == 66
    assert Path("d.json").read_bytes() == text


# Written with the shards


def all_indexed(folder: Path, run: Run, count: int) -> bool:
    """Whether all shards of a folder have the index that reading them gives."""
    return bool(run("tarkit", "index", "--check", "-q", *sorted(folder.glob("*.tar"))).code == 0) and (
        len(list(folder.glob("*.idx"))) == len(list(folder.glob("*.tar"))) == count
    )


def test_split(run: Run, tmp_path: Path) -> None:
    source = write_shard(tmp_path / "in.tgz", 10)
    folder = tmp_path / "out"
    folder.mkdir()
    assert run("tarkit", "split", source, "-o", f"{folder}/s-%d.tar", "--maxcount", "2", "--index").code == 0
    assert all_indexed(folder, run, 5)
    again = run("tarkit", "split", source, "-o", f"{folder}/s-%d.tar", "--maxcount", "4", "--index", "--force")
    assert again.code == 0
    assert all_indexed(folder, run, 3)
    refused = run("tarkit", "split", source, "-o", f"{folder}/z-%d.tar.gz", "--index")
    assert (refused.code, "z-0.tar.gz: a shard compressed by gzip is not written with an index" in refused.stderr) == (
        2,
        True,
    )


@pytest.mark.parametrize("verb", ["split", "create"])
def test_a_manifest_with_the_shards(run: Run, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(10):
        Path(f"k{number}.txt").write_text("x" * number)
    names = [f"k{number}.txt" for number in range(10)]
    if verb == "split":
        assert run("tarkit", "create", "-o", "in.tgz", *names).code == 0
        names = ["in.tgz"]
    Path("out").mkdir()
    argv = [verb, *names, "-o", "out/s-%d.tar", "--manifest", "out/d.json"]
    assert run("tarkit", *argv, "--maxcount", "4").code == 0
    assert [shard.nsamples for shard in read_manifest("out/d.json")] == [4, 4, 2]
    assert run("tarkit", "index", "--check", "-q", "--manifest", "out/d.json", "out/*.tar").code == 0
    on = run("tarkit", *argv, "--start", "3")
    assert (on.code, "out/d.json is there from an earlier run; --force replaces it" in on.stderr) == (2, True)
    assert run("tarkit", *argv, "--maxcount", "6", "--force").code == 0
    assert run("tarkit", "index", "--check", "-q", "--manifest", "out/d.json", "out/*.tar").code == 0
    wrong = run("tarkit", *argv[:-1], "d.txt", "--force")
    assert (wrong.code, "d.txt: the name of a manifest ends in .json" in wrong.stderr) == (2, True)
    one = run("tarkit", "create", "k1.txt", "-o", "one.tar", "--manifest", "d.json")
    assert (one.code, "--manifest goes with a series of shards" in one.stderr) == (2, True)


def test_split_without_indexes_over_shards_that_have_some(run: Run, tmp_path: Path) -> None:
    """Those of shards that are removed go with them.

    Those of shards that are replaced are stale, which readers see.
    """
    source = write_shard(tmp_path / "in.tgz", 10)
    folder = tmp_path / "out"
    folder.mkdir()
    run("tarkit", "split", source, "-o", f"{folder}/s-%d.tar", "--maxcount", "2", "--index")
    run("tarkit", "split", source, "-o", f"{folder}/s-%d.tar", "--maxcount", "9", "--force")
    assert sorted(path.name for path in folder.iterdir()) == ["s-0.idx", "s-0.tar", "s-1.idx", "s-1.tar"]
    assert run("tarkit", "index", "--check", "-q", f"{folder}/s-0.tar").code == 65
    assert run("tarkit", "index", "-q", f"{folder}/s-0.tar", f"{folder}/s-1.tar").code == 0
    assert all_indexed(folder, run, 2)


def test_create(run: Run, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"k{number}.txt").write_text("x" * number)
    names = [f"k{number}.txt" for number in range(5)]
    (tmp_path / "out").mkdir()
    for output in ("one.tar", "s-%d.tar"):
        argv = ["-C", tmp_path, "-o", f"{tmp_path}/out/{output}", "--index", *names]
        assert run("tarkit", "create", *argv, *(["--maxcount", "2"] if "%" in output else [])).code == 0
    assert all_indexed(tmp_path / "out", run, 4)


def test_tarproc(run: Run, shards: list[Path], tmp_path: Path) -> None:
    assert run("tarproc", "-c", "true", "s-{1..3}.tar", "-O", "out", "--index").code == 0
    assert all_indexed(tmp_path / "out", run, 3)
    (tmp_path / "one").mkdir()
    assert run("tarproc", "-c", "test $(cat __key__) != k1", "s-3.tar", "-o", "one/x.tar", "--index").code == 3
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["x.idx", "x.tar", "x.tar.failed.tar"]
    refused = run("tarproc", "-c", "true", "s-3.tar", "--index")
    assert (refused.code, "--index goes with -o or -O" in refused.stderr) == (2, True)


def test_errors_of_very_many_shards_are_counted(run: Run, tmp_path: Path) -> None:
    spec = f"{tmp_path}/gone-{{000..104}}.tar"
    result = run("tarkit", "index", spec)
    lines = result.stderr.splitlines()
    assert result.code == 66 and len([line for line in lines if "gone-" in line]) == 100
    assert [line for line in lines if "gone-" not in line] == [
        "tarkit index: more than 100 shards failed; the others are counted, and -v shows their errors",
        "tarkit index: 105 shards: made 0, renewed 0, fresh 0, failed 105; 0 samples",
    ]
    assert run("tarkit", "index", spec, "-v").stderr.count("gone-") == 105
