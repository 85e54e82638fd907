"""Many real shards: one is poison, one is killed each time, one is flaky. From the run to its retry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tarkit import TarWriter
from tarkit.samples.read import read_samples

PROGRAMS = Path(sys.executable).parent
SHARDS = 20
POISON, KILLED = 7, 12
# $PPID is the pod's own process: tarproc. The flaky one mends itself; the causes of the others are files outside.
COMMAND = """
case $(cat __key__) in
  s012*) test -e MENDED || kill -9 $PPID ;;
  s017*) test -e SEEN || { touch SEEN; exit 1; } ;;
esac
tr a-z A-Z < sample.txt > sample.up
"""


def kubetpl(folder: Path, *words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAMS / "kubetpl"), *words],
        cwd=folder,
        env={"HOME": str(folder), "PATH": f"{PROGRAMS}:{os.environ['PATH']}", **env},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def write_shard(folder: Path, number: int) -> None:
    with TarWriter(str(folder / f"raw-{number:03d}.tar"), encoder=False) as sink:
        for sample in range(3):
            sink.write({"__key__": f"s{number:03d}-{sample}", "txt": b"text of %d" % sample})


@pytest.mark.slow
def test_shards_that_fail_in_three_ways(tmp_path: Path) -> None:
    for number in range(SHARDS):
        write_shard(tmp_path, number)
    whole = (tmp_path / f"raw-{POISON:03d}.tar").read_bytes()
    (tmp_path / f"raw-{POISON:03d}.tar").write_bytes(whole[:1030] + b"garbage" * 20 + whole[1170:])
    command = COMMAND.replace("MENDED", str(tmp_path / "mended")).replace("SEEN", str(tmp_path / "seen"))
    shards = f"{tmp_path}/raw-{{000..019}}.tar"
    words = ["indexed", "-n", "hundred", "-c", command, "--shards", shards, "-O", f"{tmp_path}/out", "--retries", "2"]
    # Two slices may fail before the rest is given up. A failed sample is to fail its shard.
    rendered = kubetpl(tmp_path, *words, "--max-failed", "2", "-I", "image", "--", "--errors", "abort", "-q")
    assert rendered.returncode == 0
    # In a cluster it would be a folder of the pod.
    assert rendered.stderr.count("\n") == 1 and f"'{tmp_path}/out' is in no volume" in rendered.stderr
    (tmp_path / "hundred.yaml").write_text(rendered.stdout)

    ran = kubetpl(tmp_path, "local", "-f", "hundred.yaml", "-j", "4", "--retry-delay", "0.1", "--json")
    assert ran.returncode == 1, ran.stderr
    assert "in no volume" not in ran.stderr, "here the path is this machine's"
    status = json.loads(ran.stdout)["status"]
    assert status["completedIndexes"] == "0-6,8-11,13-19"
    assert status["failedIndexes"] == "7,12"
    assert status["succeeded"] == 18
    # Poison ends its index at once; what is killed counts, and is tried again twice; the flaky one failed once.
    assert status["failed"] == 1 + 3 + 1
    assert [each["reason"] for each in status["conditions"] if each["type"] == "Failed"] == ["FailedIndexes"]

    found = kubetpl(tmp_path, "status", "hundred", "-f", "hundred.yaml", "--json")
    assert found.returncode == 1, found.stderr
    assert "raw-007.tar" in found.stdout
    assert "raw-012.tar" in found.stdout
    assert len(list((tmp_path / "out").glob("raw-*.tar"))) == 18

    (tmp_path / f"raw-{POISON:03d}.tar").write_bytes(whole)
    (tmp_path / "mended").touch()
    again = kubetpl(tmp_path, "retry", "hundred", "-f", "hundred.yaml")
    assert again.returncode == 0, again.stderr
    assert "name: hundred-r2" in again.stdout
    finished = kubetpl(tmp_path, "local", "-f", "-", stdin=again.stdout)
    assert finished.returncode == 0, finished.stderr
    assert "completedIndexes 0,1" in finished.stderr
    assert kubetpl(tmp_path, "status", "hundred", "-f", "hundred.yaml").returncode == 0
    for number in range(SHARDS):
        samples = list(read_samples(str(tmp_path / "out" / f"raw-{number:03d}.tar")))
        assert [sample["up"] for sample in samples] == [b"TEXT OF %d" % each for each in range(3)]


def test_another_command_over_the_same_shards_is_not_done(tmp_path: Path) -> None:
    """Done records of another command say nothing of this one."""
    for number in range(2):
        write_shard(tmp_path, number)
    words = ["--shards", f"{tmp_path}/raw-{{000..001}}.tar", "-O", f"{tmp_path}/out"]
    ran = kubetpl(tmp_path, "local", "indexed", "-n", "one", "-c", "true # $$", *words)
    assert (ran.returncode, "is mounted" in ran.stderr) == (0, False), ran.stderr
    for name, command, code in (("one", "true # $$", 0), ("two", "rm sample.txt; echo > sample.x", 1)):
        rendered = kubetpl(tmp_path, "indexed", "-n", name, "-c", command, "-I", "image", *words)
        (tmp_path / f"{name}.yaml").write_text(rendered.stdout)
        found = kubetpl(tmp_path, "status", name, "-f", f"{name}.yaml")
        assert found.returncode == code, found.stdout
        assert ("made by another command" in found.stdout) == bool(code)
    again = kubetpl(tmp_path, "retry", "two", "-f", "two.yaml")
    assert (again.returncode, "name: two-r2" in again.stdout) == (0, True), again.stderr
    assert kubetpl(tmp_path, "local", "-f", "-", stdin=again.stdout).returncode == 0
    assert kubetpl(tmp_path, "status", "two", "-f", "two.yaml").returncode == 0


def test_the_same_names_in_another_folder_are_not_done(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        with TarWriter(str(tmp_path / folder / "s-0.tar")) as writer:
            writer.write({"__key__": "k", "txt": folder.encode()})
        # As unpacked from an archive: size and time tell nothing.
        os.utime(tmp_path / folder / "s-0.tar", (0, 0))
    for folder in ("a", "b"):
        shards = str(tmp_path / folder / "s-{0..0}.tar")
        words = ["indexed", "-n", folder, "-O", str(tmp_path / "out"), "-c", "true", "--shards", shards]
        (tmp_path / "job.yaml").write_text(kubetpl(tmp_path, *words, "-I", "i:1").stdout)
        status = kubetpl(tmp_path, "status", folder, "-f", "job.yaml")
        assert status.returncode == 1, "nothing is done yet"
        if folder == "b":
            assert f"stale shard s-0.tar: it was made of {tmp_path}/a/s-0.tar" in status.stdout
        assert kubetpl(tmp_path, "local", *words).returncode == 0
        assert kubetpl(tmp_path, "status", folder, "-f", "job.yaml").returncode == 0
        (sample,) = read_samples([str(tmp_path / "out/s-0.tar")])
        assert sample["txt"] == folder.encode()


def test_what_of_a_command_can_not_be_known_is_said(tmp_path: Path) -> None:
    write_shard(tmp_path, 0)
    (tmp_path / "m.py").write_text("def same(sample):\n    return sample\n")
    words = ["--shards", f"{tmp_path}/raw-{{000..000}}.tar", "-O", f"{tmp_path}/out"]
    mapped = ["indexed", "-n", "j", "-c", "true", *words]
    assert kubetpl(tmp_path, "local", *mapped).returncode == 0
    for number, (more, code, said) in enumerate((
        (["-c", "true"], 0, None),
        (["-c", "false"], 1, "made by another command"),
        (["--", "--map", f"{tmp_path}/m.py:same"], 0, "note: shards made by any command are counted"),
    )):  # fmt: skip
        rendered = kubetpl(tmp_path, "indexed", "-n", "j", "-I", "image", *words, *more)
        (tmp_path / f"{number}.yaml").write_text(rendered.stdout)
        # A variable of this machine says nothing of the pods'.
        found = kubetpl(tmp_path, "status", "j", "-f", f"{number}.yaml", SOURCE_DATE_EPOCH="7")
        assert found.returncode == code, found.stdout + found.stderr
        assert (said or "shards: 1 of 1 done") in found.stdout
