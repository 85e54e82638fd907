"""The commands of docs/exchange.md run as the page says, on small shards."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import click
import pytest
import warmprogram
from tarkit.cli.verbs.shuffle import command

from tarkit import TarWriter, read_samples

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "exchange.md").read_text("utf-8")
LOCAL, CLUSTER = (
    block.replace("000147", "000011").replace("148", "12") for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Twelve shards of 25 samples, and their list."""
    for shard in range(12):
        with TarWriter(f"{tmp_path}/train-{shard:06d}.tar", encoder=False) as writer:
            for number in range(25):
                writer.write({"__key__": f"{shard:06d}-{number:02d}", "cls": b"%d" % number})
    (tmp_path / "shards.txt").write_text("".join(f"{tmp_path}/train-{shard:06d}.tar\n" for shard in range(12)))
    return tmp_path


def run(line: str, folder: Path) -> str:
    done = warmprogram.run(shlex.split(line), folder, {**os.environ, "TMPDIR": str(folder)}, None)
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def keys(folder: Path) -> list[str]:
    return [sample["__key__"] for path in sorted(folder.glob("shard-*.tar")) for sample in read_samples(str(path))]


def test_the_commands_for_one_machine(shards: Path) -> None:
    forecast, summary = (run(line, shards) for line in LOCAL.splitlines())
    assert "300 samples" in forecast and "12 shards" in forecast
    assert "12 shards" in summary and "in 300 = out 300" in summary
    found = keys(shards / "shuffled")
    assert len(set(found)) == len(found) == 300 and found != sorted(found)
    assert not (shards / "shuffled" / "_exchange").exists()
    assert "12 done before" in run(LOCAL.splitlines()[1], shards)


def test_the_commands_for_many_machines(shards: Path) -> None:
    scatter, gather = (line.replace("s3://bucket/out", "out").replace("1000", "4") for line in CLUSTER.splitlines())
    for number in range(2):
        run(scatter.replace("3/20", f"{number}/2"), shards)
    assert sorted(path.name for path in (shards / "out" / "_exchange").glob("run-*.tar")) == [
        "run-000000.tar", "run-000001.tar",
    ]  # fmt: skip
    for number in range(3):
        run(gather.replace("3/50", f"{number}/3"), shards)
    run("tarkit shuffle @shards.txt -O alone --shards 4", shards)
    assert keys(shards / "out") == keys(shards / "alone") and len(keys(shards / "out")) == 300


def test_the_options_of_the_page_exist() -> None:
    known = {option for each in command.params if isinstance(each, click.Option) for option in each.opts}
    named = set(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", re.sub(r"(?s)```.*?```", "", PAGE)))
    assert named >= {"--mem", "--work", "--rekey", "--force", "-p"}
    assert named <= known, named - known
