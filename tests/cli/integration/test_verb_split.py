"""tarkit split: a row of shards, named as they are published."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tarkit import TarWriter, read_samples
from tarkit.names.outputnames import shard_name
from tarkit.specs.outputcheck import existing_shards
from tarkit.store import local
from tarkit.store.entries import remove
from tarkit.store.publish import open_publish

Run = Callable[..., Any]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "in.tar"
    with TarWriter(str(path), encoder=False) as writer:
        for number in range(25):
            writer.write({"__key__": f"{number:03d}", "txt": b"%03d" % number, "bin": bytes(97)})
    return path


def keys(*paths: Path) -> list[str]:
    return [sample["__key__"] for sample in read_samples([str(path) for path in paths])]


def test_by_count(run: Run, shard: Path, tmp_path: Path) -> None:
    result = run("tarkit", "split", shard, "-o", tmp_path / "o-%03d.tar", "--maxcount", "10")
    paths = [tmp_path / f"o-{number:03d}.tar" for number in range(3)]
    assert (result.code, result.lines) == (0, [str(path) for path in paths])
    assert result.stderr == "tarkit split: 25 samples in 3 shards, 2500 bytes of content\n"
    assert [len(keys(path)) for path in paths] == [10, 10, 5]
    assert keys(*paths) == keys(shard)
    assert run("tarkit", "cat", *paths).stdout == shard.read_bytes()


def test_by_size_from_a_pipe_with_another_start(run: Run, shard: Path, tmp_path: Path) -> None:
    result = run(
        "tarkit",
        "split",
        "-q",
        "--maxsize",
        "1k",
        "--start",
        "7",
        "-o",
        tmp_path / "o-%d.tar",
        stdin=shard.read_bytes(),
    )
    assert (result.code, result.stderr) == (0, "")
    assert result.lines == [str(tmp_path / f"o-{number}.tar") for number in (7, 8, 9)]
    assert [len(keys(Path(line))) for line in result.lines] == [10, 10, 5]


def test_a_sample_beyond_maxsize_has_a_shard_of_its_own(run: Run, shard: Path, tmp_path: Path) -> None:
    result = run("tarkit", "split", shard, "-o", tmp_path / "o-%d.tar", "--maxsize", "10")
    assert (result.code, len(result.lines)) == (0, 25)


def test_compressed_by_name(run: Run, shard: Path, tmp_path: Path) -> None:
    assert run("tarkit", "split", shard, "-o", tmp_path / "o-%d.tar.zst").code == 0
    assert (tmp_path / "o-0.tar.zst").read_bytes()[:4] == b"\x28\xb5\x2f\xfd"


@pytest.mark.parametrize(
    ("output", "words"),
    [("o.tar", "has 0"), ("o-%d-%d.tar", "has 2"), ("o-%s.tar", "%06d"), ("-", "pipe"), ("pipe:cat", "pipe")],
)
def test_patterns_that_can_not_be(output: str, words: str, run: Run, shard: Path) -> None:
    result = run("tarkit", "split", shard, "-o", output)
    assert (result.code, result.stdout) == (2, b"")
    assert words in result.stderr


def test_no_samples(run: Run, tmp_path: Path) -> None:
    result = run("tarkit", "split", "-o", tmp_path / "o-%d.tar", stdin=bytes(10240))
    assert (result.code, result.stdout, result.stderr) == (
        0,
        b"",
        "tarkit split: 0 samples in 0 shards, 0 bytes of content\n",
    )


def test_shards_of_an_earlier_run_are_an_error_unless_forced(run: Run, shard: Path, tmp_path: Path) -> None:
    """After a longer run, its last shards would be taken for those of this one."""
    others = ["o-7.tar", "o-0000003.tar", "o-000003.tar.gz", "xo-000003.tar", "o-abcdef.tar", "o-000003.tar.bak"]
    for name in ("o-000001.tar", "o-000009.tar", *others):
        (tmp_path / name).write_bytes(b"old")
    command = ["tarkit", "split", shard, "-o", f"{tmp_path}/o-%06d.tar", "--maxcount", "10"]
    before = sorted(tmp_path.iterdir())
    result = run(*command)
    assert (result.code, result.stdout, sorted(tmp_path.iterdir())) == (2, b"", before)
    assert f"{tmp_path}/o-000001.tar and 1 more of this pattern are there from an earlier run; --force" in result.stderr
    result = run(*command, "--force")
    assert (result.code, len(result.lines)) == (0, 3)
    assert f"removed 1 shard of an earlier run, from {tmp_path}/o-000009.tar on" in result.stderr
    assert keys(*(tmp_path / f"o-{number:06d}.tar" for number in range(3))) == keys(shard)
    assert not (tmp_path / "o-000009.tar").exists()
    assert all((tmp_path / name).read_bytes() == b"old" for name in others)
    assert run(*command, "--force", "--maxcount", "100").code == 0
    assert sorted(path.name for path in tmp_path.glob("o-00000?.tar")) == ["o-000000.tar"]
    # What goes on behind a series leaves it alone.
    assert run(*command, "--start", "1").code == 0
    assert run(*command, "--start", "3").code == 2


@pytest.fixture
def series(tmp_path: Path, shard: Path, run: Run) -> list[Path]:
    """The 25 samples in five shards, p-000000.tar to p-000004.tar."""
    assert run("tarkit", "split", shard, "-o", f"{tmp_path}/p-%06d.tar", "--maxcount", "5").code == 0
    return sorted(tmp_path.glob("p-*.tar"))


@pytest.mark.parametrize(
    "named", ["p-*.tar", "./p-{000000..000004}.tar", "link.tar", "@list", "file://HERE/p-000004.tar"]
)
def test_a_series_that_would_replace_its_own_inputs_is_refused(
    named: str, run: Run, shell: Run, series: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "link.tar").symlink_to("p-000004.tar")
    (tmp_path / "list").write_text("in.tar\np-000003.tar\n")
    before = [path.read_bytes() for path in series]
    spec = named.replace("HERE", str(tmp_path))
    result = shell(f"tarkit split in.tar '{spec}' -o 'p-%06d.tar' --maxcount 2 --force")
    assert (result.code, result.stdout) == (2, b"")
    assert "is an input, and one of the shards that --force replaces or removes; write the series " in result.stderr
    assert [path.read_bytes() for path in series] == before and len(list(tmp_path.glob("p-*"))) == 5


def test_no_index_outlives_its_shard_whenever_force_is_killed(
    run: Run, shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two, it left an index that no later run found."""
    command = ["tarkit", "split", shard, "-o", f"{tmp_path}/p-%d.tar", "--index", "--force", "--maxcount"]
    remove = local.remove
    for last in range(1, 5):
        assert run(*command, "9").code == 0
        removed: list[str] = []

        def killed(url: str, name: str, is_folder: bool, last: int = last, removed: list[str] = removed) -> None:
            if len(removed) == last:
                raise KeyboardInterrupt
            remove(url, name, is_folder)
            removed.append(url)

        with monkeypatch.context() as patch:
            patch.setattr(local, "remove", killed)
            run(*command, "25")
        assert len(removed) == last
        assert run(*command, "25").code == 0
        assert sorted(path.name for path in tmp_path.glob("p-*")) == ["p-0.idx", "p-0.tar"]


def test_the_end_of_a_series_may_be_cut_again_behind_its_inputs(shell: Run, series: list[Path], tmp_path: Path) -> None:
    result = shell("tarkit split p-00000{0,1}.tar -o 'p-%06d.tar' --maxcount 2 --force --start 2")
    assert (result.code, len(result.lines)) == (0, 5)
    assert len(keys(*sorted(tmp_path.glob("p-*.tar")))) == 20


def test_a_bucket_that_may_be_written_but_not_listed_is_written_with_force(
    run: Run, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError("AccessDenied")

    memory = fsspec.filesystem("memory")
    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "ls", denied)
        command = ["tarkit", "split", "-o", "memory://only-put/o-%d.tar", "--maxcount", "10"]
        memory.makedirs("/only-put", exist_ok=True)
        result = run(*command, shard)
        assert result.code == 1 and "--force writes the series without a look at what is there" in result.stderr
        result = run(*command, shard, "--force")
        assert (result.code, len(result.lines)) == (0, 3)
        assert "shards of an earlier run are replaced, but none is removed, since they cannot be list" in result.stderr
        assert run(*command, "memory://only-put/o-2.tar", "--force").code == 2
        assert run(*command, "memory://only-put/o-2.tar", "--force", "--start", "3").code == 0
    memory.rm("/only-put", recursive=True)


def test_a_run_that_fails_removes_no_earlier_shard(run: Run, shard: Path, tmp_path: Path) -> None:
    (tmp_path / "o-9.tar").write_bytes(b"old")
    cut = shard.read_bytes()[: 15 * 2048 + 100]
    result = run("tarkit", "split", "-o", f"{tmp_path}/o-%d.tar", "--maxcount", "10", "--force", stdin=cut)
    assert result.code == 65
    assert (tmp_path / "o-9.tar").read_bytes() == b"old"


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize(
    ("pattern", "there"),
    [
        ("memory://row/p-%03d.tar", "memory://row/p-{:03d}.tar"),
        ("FOLDER/100%%/s-%d/x.tar", "FOLDER/100%/s-{}/x.tar"),
        ("file://FOLDER/a-%05d", "FOLDER/a-{:05d}"),
        ("%d.tar", "{}.tar"),
    ],
)
def test_existing_shards_of_any_pattern(
    pattern: str, there: str, start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pattern, there = (text.replace("FOLDER", str(tmp_path)) for text in (pattern, there))
    assert existing_shards(pattern, start) == []
    names = [there.format(number) for number in (10, 2, 1)]
    for name in names:
        open_publish(name, compression=None).commit()
    (tmp_path / "100%" / "s-77").mkdir(parents=True)
    found = existing_shards(pattern, start)
    assert found == [shard_name(pattern, number) for number in (1, 2, 10) if number >= start]
    for name in names:
        remove(name)


def test_no_shards_where_one_is_expected(run: Run, shard: Path, tmp_path: Path) -> None:
    out = f"{tmp_path}/x-%06d.tar"
    for command in (["tarkit", "cat", shard], ["tarkit", "cat", "--raw", shard], ["tarproc", "-c", "true", shard]):
        result = run(*command, "-o", out)
        assert (result.code, result.stdout) == (2, b"")
        assert "the output is one shard; pipe it into tarkit split - -o PATTERN" in result.stderr
    assert run("tarkit", "cat", "-q", shard, "-o", f"{tmp_path}/a%20b%2fc.tar").code == 0
    assert (tmp_path / "a%20b%2fc.tar").exists()


@pytest.mark.parametrize("name", ["x.zip", "x.tar.Z", "x.7z", "X.ZIP"])
def test_other_formats_are_not_what_a_tar_is_called(name: str, run: Run, shard: Path, tmp_path: Path) -> None:
    out = tmp_path / name
    for command in (
        ["tarkit", "cat", shard, "-o", out],
        ["tarproc", "-c", "true", shard, "-o", out],
        ["tarkit", "create", shard, "-o", out],
        ["tarkit", "split", shard, "-o", f"{tmp_path}/%d{name}"],
    ):
        result = run(*command)
        assert (result.code, result.stdout) == (2, b"")
        assert f"{Path(name).suffix.lower()} is not written; name it .tar" in result.stderr
    assert os.listdir(tmp_path) == ["in.tar"]
    # Whose bytes go through as they are may be anything.
    assert run("tarkit", "cat", "--raw", shard, "-o", out).code == 0


def test_damaged_end_keeps_what_was_published(run: Run, shard: Path, tmp_path: Path) -> None:
    cut = shard.read_bytes()[: 15 * 2048 + 100]
    result = run("tarkit", "split", "-o", tmp_path / "o-%d.tar", "--maxcount", "10", stdin=cut)
    assert (result.code, len(result.lines)) == (65, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tar", "o-0.tar"]
    skipped = run("tarkit", "split", "-q", "-o", tmp_path / "s-%d.tar", "--on-damage", "skip", stdin=cut)
    assert skipped.code == 3 and "damage: 1 stretch" in skipped.stderr
    assert len(keys(tmp_path / "s-0.tar")) == 14
