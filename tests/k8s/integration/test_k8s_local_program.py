"""``kubetpl local`` as a program: killed, stopped, run twice; and tarproc in its pods."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from installed import program_path
from kubetplrun import alone, kubetpl
from localjobs import job, living
from tarkit.cli.kube.verbs.local import _environment
from waiting import wait_for

from tarkit import TarWriter
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.status import progress_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, and HOME beside it."""
    return alone(tmp_path, monkeypatch)


def begin(*argv: str) -> subprocess.Popen[str]:
    """Have it run for a while."""
    words = [program_path("kubetpl"), "local", "--retry-delay", "0.05", *argv]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def write_manifest(script: str, **spec: Any) -> None:
    document = job(script, pod={"terminationGracePeriodSeconds": 3}, **spec)
    Path("job.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        ([], 2, "give either a manifest with -f, or a generator"),
        (["-f", "job.json", "indexed"], 2, "give either a manifest with -f, or a generator"),
        (["-f", "nosuch.yaml"], 66, "nosuch.yaml: no such file"),
        (["nosuch"], 2, "service, configmap; got 'nosuch'"),
        (["-f", "job.json", "-j", "0"], 2, "0 is not in the range"),
        (["-f", "job.json", "--volume", "x"], 2, "write NAME=DIR"),
        (["-f", "job.json", "--volume", "scrach=."], 2, "--volume scrach: no pod of this manifest has it"),
        (["-q", "-f", "job.json", "--state", "job.json"], 1, "job.json: File exists"),
    ],
)
def test_what_can_not_be_run(argv: list[str], code: int, says: str) -> None:
    write_manifest("true")
    done = kubetpl("local", *argv)
    assert (done.code, says in done.err, done.out, done.err.count("\n")) == (code, True, "", 1), done.err


def test_what_of_this_machine_pods_see(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").touch()
    environ = {
        "HOME": str(tmp_path), "LANG": "C.UTF-8", "LC_ALL": "C", "AWS_PROFILE": "p", "https_proxy": "x", "PATH": "/bin",
        "EDITOR": "vi", "PYTHONPATH": "/p", "MY_TOKEN": "t",
    }  # fmt: skip
    seen = {name: environ[name] for name in ("HOME", "LANG", "LC_ALL", "AWS_PROFILE", "https_proxy")}
    seen["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path / ".aws" / "credentials")
    for everything, wanted in ((False, seen), (True, {**environ, **seen})):
        found = _environment(environ, everything=everything)
        assert found["PATH"].startswith("/bin:/")
        assert {**found, "PATH": ""} == {**wanted, "PATH": ""}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_pods_in_good_order(tmp_path: Path, number: int, code: int) -> None:
    trap = f"trap 'echo term >> {tmp_path}/term; exit 7' TERM"
    write_manifest(f"{trap}; echo $$$$ >> {tmp_path}/groups; while :; do sleep 0.05; done")
    running = begin("-f", "job.json", "-j", "3")
    wait_for(lambda: (tmp_path / "groups").exists() and len((tmp_path / "groups").read_text().split()) == 3)
    running.send_signal(number)
    told, _ = running.communicate(timeout=120)
    assert running.returncode == code
    assert (tmp_path / "term").read_text() == "term\n" * 3 and "exit code 7" not in told
    groups = (tmp_path / "groups").read_text().split()
    wait_for(lambda: not living(*groups))


def shards(folder: Path, number: int) -> list[str]:
    """Small shards; the fourth sample of the second is one that a command may refuse."""
    names = []
    for shard in range(number):
        names.append(str(folder / f"in-{shard}.tar"))
        with TarWriter(names[-1]) as writer:
            for sample in range(5):
                bad = (shard, sample) == (1, 3)
                writer.write({"__key__": f"s{shard}-{sample}", "txt": b"bad" if bad else b"good"})
    return names


def indexed(tmp_path: Path, command: str, *more: str) -> list[str]:
    words = ["indexed", "-n", "etl", "--retries", "1", "-c", command, "-O", str(tmp_path / "out"), "--max-failed", "9"]
    return [*words, "--shards", str(tmp_path / "in-{0..3}.tar"), *more]


@pytest.mark.skipif(sys.platform != "linux", reason="DAEMONS ARE FOUND IN /proc, WHICH IS LINUX ONLY")
def test_kill_dash_nine_in_the_middle_and_once_more(tmp_path: Path) -> None:
    """No process is left, a daemon neither; the second run waits for that.

    And no shard is done twice.
    """
    inputs = shards(tmp_path, 4)
    command = f"""
    echo $(cat __key__) $(ps -o pgid= $$) >> {tmp_path}/ran
    [ -e {tmp_path}/killed ] || case $(cat __key__) in
      s3-*) setsid sleep 1000 & echo - $! >> {tmp_path}/ran; trap '' TERM; while :; do sleep 1; done ;;
    esac
    """
    running = begin("-j", "4", *indexed(tmp_path, command))

    def ran() -> list[list[str]]:
        return [line.split() for line in (tmp_path / "ran").read_text().splitlines()]

    done = [tmp_path / "out" / f"in-{number}.tar.done.json" for number in range(3)]
    wait_for(lambda: all(map(Path.exists, done)) and any(row[0] == "-" for row in ran()))
    running.kill()
    running.communicate()
    (tmp_path / "killed").touch()
    groups = [row[1] for row in ran()]
    again = kubetpl("local", *indexed(tmp_path, command))
    while "another run, or its last pods, are at work" in again.err:
        again = kubetpl("local", *indexed(tmp_path, command))
    assert again.code == 0, again.err
    assert "etl: Complete (CompletionsReached): done 4 of 4" in again.err
    wait_for(lambda: not living(*groups))
    keys = [row[0] for row in ran()]
    assert all(keys.count(f"s{shard}-{sample}") == 1 for shard in range(3) for sample in range(5))
    assert not progress_of(str(tmp_path / "out"), inputs).unfinished


def test_shards_through_tarproc(tmp_path: Path) -> None:
    inputs = shards(tmp_path, 4)
    os.unlink(inputs[2])
    for code, said in ((1, "2 pods failed"), (3, "1 pod failed")):
        done = kubetpl("local", *indexed(tmp_path, '[ "$(cat sample.txt)" = good ]'))
        assert done.code == code and said in done.err, done.err
        assert "etl-1-1: exit code 3 (FailIndex)" in done.err or "etl-1-2: exit code 3 (FailIndex)" in done.err
        if code == 1:
            with TarWriter(inputs[2]) as writer:
                writer.write({"__key__": "k", "txt": b"good"})
    found = progress_of(str(tmp_path / "out"), inputs)
    assert (len(found.done), found.set_aside, found.counts.out) == (4, {"in-1.tar": 1}, 15)


def test_a_run_of_which_no_sample_came_out(tmp_path: Path) -> None:
    """Each of its slices may be empty, so that their pods succeed.

    What others made in its folder does not count.
    """
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "other.tar").write_bytes(b"1")
    other = DoneRecord("done", {"url": "other.tar"}, "w", "1", {"size": 1}, samples={"in": 9, "out": 9})
    other.publish(str(tmp_path / "out" / "other.tar"))
    shards(tmp_path, 4)
    done = kubetpl("local", *indexed(tmp_path, "rm sample.*"))
    assert done.code == 3 and "done 4 of 4" in done.err, done.err
    assert "20 samples came in, and none came out" in done.err
    assert kubetpl("local", *indexed(tmp_path, "rm sample.*", "--", "--allow-empty")).code == 0


def test_outputs_that_would_go_with_the_pods(tmp_path: Path) -> None:
    """The Job was complete, and its outputs were gone."""
    with TarWriter("a.tar") as writer:
        writer.write({"__key__": "k", "txt": b"x"})
    words = ["indexed", "-n", "j", "-c", "true", "--shards", "a.tar", "-O", "/scratch/out"]
    done = kubetpl("local", *words)
    assert (done.code, done.out) == (2, "")
    assert "'/scratch/out' is in the volume scratch, which is gone with its pod" in done.err
    Path("kept").mkdir()
    assert kubetpl("local", "--volume", "scratch=kept", *words).code == 0
    assert Path("kept/out/a.tar").exists()
    document = job("true", main={"command": ["tarproc", "-c", "true", "-O", "out", "--", "/a.tar"]})
    Path("job.json").write_text(json.dumps(document))
    done = kubetpl("local", "-f", "job.json")
    assert done.code == 2 and "is in the folder in which the command starts" in done.err
