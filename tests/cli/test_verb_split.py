"""tarkit split: a row of shards, named as they are published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter, read_samples

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
    assert result.stderr == "tarkit split: 25 samples in 3 shards\n"
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
    assert (result.code, result.stdout, result.stderr) == (0, b"", "tarkit split: 0 samples in 0 shards\n")


def test_post_runs_after_each_shard_was_published(run: Run, shard: Path, tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    log = tmp_path / "log"
    result = run(
        "tarkit", "split", shard, "-o", folder / "o-%d.tar", "--maxcount", "10",
        "--post", f"tar tf {{}} | wc -l >> {log}; echo done {{}}; read line || mv {{}} {tmp_path}/",
    )  # fmt: skip
    assert result.code == 0
    assert log.read_text().split() == ["20", "20", "10"]
    assert result.lines == [str(folder / f"o-{number}.tar") for number in range(3)]
    assert result.stderr.count("done ") == 3
    assert keys(*(tmp_path / f"o-{number}.tar" for number in range(3))) == keys(shard)


def test_post_that_fails_ends_the_run(run: Run, shard: Path, tmp_path: Path) -> None:
    post = "case {} in *1.tar) exit 7;; esac"
    result = run("tarkit", "split", shard, "-o", tmp_path / "o-%d.tar", "--maxcount", "10", "--post", post)
    assert result.code == 1
    assert "o-1.tar is published, but --post failed with exit code 7: case " in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tar", "o-0.tar", "o-1.tar"]
    killed = run("tarkit", "split", shard, "-o", tmp_path / "k-%d.tar", "--post", "kill -9 $$")
    assert killed.code == 1 and "signal 9" in killed.stderr


def test_shards_of_an_earlier_run_are_mentioned(run: Run, shard: Path, tmp_path: Path) -> None:
    (tmp_path / "o-1.tar").write_bytes(b"old")
    result = run("tarkit", "split", shard, "-o", tmp_path / "o-%d.tar")
    assert result.code == 0
    assert "o-1.tar was there before, and is no part of this row" in result.stderr


def test_damaged_end_keeps_what_was_published(run: Run, shard: Path, tmp_path: Path) -> None:
    cut = shard.read_bytes()[: 15 * 2048 + 100]
    result = run("tarkit", "split", "-o", tmp_path / "o-%d.tar", "--maxcount", "10", stdin=cut)
    assert (result.code, len(result.lines)) == (65, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tar", "o-0.tar"]
    skipped = run("tarkit", "split", "-q", "-o", tmp_path / "s-%d.tar", "--on-damage", "skip", stdin=cut)
    assert skipped.code == 3 and "damage: 1 stretch" in skipped.stderr
    assert len(keys(tmp_path / "s-0.tar")) == 14
