"""tarproc -O that is killed, terminated, short of disk space, or not alone: the final shards are
the same.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import warmprogram
from tarproc_support import Bench, contents, gone, numbered, tar_bytes
from waiting import wait_for

SHARDS = 20
SAMPLES = 5
SLOTS = 2
# They start no program, which would take most of the time.
READ_KEY = "read -r key < __key__ || :"
CHANGE = "read -r value < sample.cls || :; echo $value. > sample.cls"
# Of a window of 8k, in which a sample is 1.3 kB: those that run, or have run and wait for an
# earlier one.
AHEAD = 6
INPUTS = "in/s{00..19}.tar"


def make_inputs(bench: Bench, samples: int = SAMPLES, size: int = 300) -> None:
    (bench.path / "in").mkdir()
    for number in range(SHARDS):
        content = tar_bytes([(f"s{number:02d}{key}", fields) for key, fields in numbered(samples, size)])
        (bench.path / "in" / f"s{number:02d}.tar").write_bytes(content)


def outputs(folder: Path) -> dict[str, bytes]:
    """All files but records, which hold no more than is checked elsewhere."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(".json")}


def hidden(folder: Path) -> list[str]:
    """Names of temporary files: all that are hidden but the records of runs."""
    return [name for name in os.listdir(folder) if name.startswith(".") and "tarkit-run-" not in name]


def recorded(folder: Path) -> dict[str, tuple[int, int]]:
    """Shard -> what changes when it is published again, of those that are recorded."""
    if not folder.exists():
        return {}
    names = [
        name.removesuffix(".done.json") for name in os.listdir(folder) if name[0] != "." and name.endswith(".json")
    ]
    return {name: ((status := os.stat(folder / name)).st_ino, status.st_mtime_ns) for name in names}


def status(bench: Bench, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return warmprogram.run(["tarkit", "status", *arguments], bench.path, os.environ, None)


@pytest.mark.parametrize(
    ("most_kills", "least_rounds"), [(4, 1), pytest.param(100, 4, marks=[pytest.mark.elasticdl, pytest.mark.slow])]
)
def test_killed_at_random_moments(tmp_path: Path, most_kills: int, least_rounds: int) -> None:
    bench = Bench(tmp_path)
    make_inputs(bench)
    # Every third sample fails, so that there are failed samples to publish as well.
    work = READ_KEY + "; echo $key >> {log}; sleep 0.02; case $key in *k2) exit 3;; esac; echo 1 > x"
    log = bench.path / "log"
    command = ["-p", str(SLOTS), "--mem", "8k", "-q", "-c", work.format(log=log), INPUTS]
    assert bench.run("-O", "undisturbed", *command).returncode == 3
    expected = outputs(bench.path / "undisturbed")
    assert len(expected) == 2 * SHARDS

    seed = random.Random(20)
    out = bench.path / "out"
    kills = rounds = most_redone = 0
    # There must be rounds that come to their end for the kills to mean something.
    while kills < most_kills or rounds < least_rounds or not out.exists():
        before = recorded(out)
        log.write_bytes(b"")
        process = bench.start("-O", "out", *command, start_new_session=True)
        try:
            if kills < most_kills:
                # Not all so early that nothing runs yet, however long that takes.
                samples = seed.randrange(30)
                wait_for(lambda: len(log.read_bytes().split()) >= samples or process.poll() is not None)  # noqa: B023
            code = process.wait(seed.random() * 0.2 if kills < most_kills else 120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait(120)
            kills += 1
        assert gone(str(log)), "a child has outlived its process group"
        after = recorded(out)
        ran = log.read_text().split()
        for name, identity in before.items():
            assert after[name] == identity, "published again although it was done"
            assert not [key for key in ran if key.startswith(name[:3])], "run again although it was done"
        lost = [key for key in ran if f"{key[:3]}.tar" not in after]
        most_redone = max(most_redone, len(lost))
        # Those of shards that are not published yet, and those that a command or a disk that is
        # slow holds up.
        assert len(lost) <= SLOTS * SAMPLES + AHEAD, f"more than {SLOTS} shards and a window of work are lost: {lost}"
        for name, content in outputs(out).items() if out.exists() else ():
            assert name.startswith(".") or content == expected[name], "what has a final name is final"
        if code != -signal.SIGKILL:
            assert code == 3
            assert outputs(out) == expected
            rounds += 1
            if rounds % 2:
                shutil.rmtree(out)
            else:
                for name in list(after)[:: seed.randrange(1, 4)]:
                    (out / f"{name}.done.json").unlink()
    assert most_redone > 0, "the moments were badly chosen"

    cleaned = status(bench, "out", "--clean")
    assert cleaned.returncode in (1, 3), cleaned.stderr
    assert hidden(out) == []
    assert bench.run("-O", "out", *command).returncode == 3, "and no scratch folder is left, which run() checks"
    assert outputs(out) == expected
    assert status(bench, "out", INPUTS).returncode == 3


def test_clean_after_a_kill(tmp_path: Path) -> None:
    """Temporary files that are left are removed; one that is still written is not."""
    bench = Bench(tmp_path)
    make_inputs(bench)
    go = bench.path / "go"
    arguments = ["-O", "out", "-c", f"[ $(cat __key__) = s00k0 ] || until [ -e {go} ]; do sleep 0.1; done", INPUTS]
    process = bench.start(*arguments, start_new_session=True)
    out = bench.path / "out"
    wait_for(lambda: out.exists() and hidden(out))
    (temporary,) = hidden(out)
    assert temporary.startswith(".s00.tar.tarkit-")
    assert b"removed" not in status(bench, "out", "--clean").stderr
    assert hidden(out) == [temporary]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(120)
    go.touch()
    assert gone(str(go)), "what a command of the dead still does is over"
    assert b"removed out/" + temporary.encode() in status(bench, "out", "--clean").stderr
    assert hidden(out) == [] and all(name.startswith(".tarkit-run-") for name in os.listdir(out))


def test_ended_by_a_signal_and_resumed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    make_inputs(bench)
    go, held = bench.path / "go", bench.path / "held"
    held.mkdir()
    # From the middle of the eleventh shard on, they wait until the signal has come.
    wait = f"case $key in s1*k[2-4]) touch {held}/$key; until [ -e {go} ]; do sleep 0.02; done;; esac"
    work = f"{READ_KEY}; {wait}; {CHANGE}"
    command = ["-p", str(SLOTS), "-c", work, INPUTS]
    process = bench.start("-O", "out", "--report", "report.json", *command)
    wait_for(lambda: len(recorded(bench.path / "out")) == 10 and len(os.listdir(held)) == SLOTS)
    process.terminate()
    assert process.wait(120) == 143
    done = recorded(bench.path / "out")
    assert 3 <= len(done) < SHARDS
    assert bench.leftovers() == []
    assert hidden(bench.path / "out") == []
    go.touch()
    report = json.loads((bench.path / "report.json").read_bytes())
    assert report["exit_code"] == 143 and report["shards"]["done"] == len(done)
    assert bench.run("-O", "out", *command).returncode == 0
    assert {name: recorded(bench.path / "out")[name] for name in done} == done
    assert bench.run("-O", "undisturbed", *command).returncode == 0
    assert outputs(bench.path / "out") == outputs(bench.path / "undisturbed")


def test_disk_full(tmp_path: Path) -> None:
    """No file may be larger than the limit, which one of the shards is."""
    bench = Bench(tmp_path)
    make_inputs(bench, samples=1)
    (bench.path / "in" / "s07.tar").write_bytes(tar_bytes([(f"s07k{n}", {"dat": bytes(900_000)}) for n in range(3)]))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    done = bench.run("-O", "out", "-p", "2", "-c", "true", INPUTS, preexec_fn=limit)
    assert done.returncode == 1
    assert b"out/s07.tar: failed: out/s07.tar: file too large" in done.stderr
    assert b"done 19, done before 0, failed 1" in done.stderr
    assert "s07.tar" not in os.listdir(bench.path / "out")
    assert hidden(bench.path / "out") == []
    done = bench.run("-O", "out", "-p", "2", "-c", "true", INPUTS)
    assert done.returncode == 0 and b"done 1, done before 19, failed 0" in done.stderr


def test_two_runs_at_the_same_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    make_inputs(bench)
    command = ["-p", str(SLOTS), "-c", f"sleep 0.01; {CHANGE}", INPUTS]
    assert bench.run("-O", "undisturbed", *command).returncode == 0
    runs = [bench.start("-O", "out", "--report", f"{n}.json", *command) for n in range(2)]
    assert [process.wait(120) for process in runs] == [0, 0]
    assert outputs(bench.path / "out") == outputs(bench.path / "undisturbed")
    reports = [bench.report(f"{n}.json")["shards"] for n in range(2)]
    assert all(each["done"] + each["done_before"] == SHARDS and each["failed"] == 0 for each in reports)
    assert sum(each["done"] for each in reports) >= SHARDS
    assert bench.leftovers() == []


def test_a_run_that_is_overtaken_notices(tmp_path: Path) -> None:
    """Of two runs that have begun the same shards, the one that ends later publishes none of them
    again.
    """
    bench = Bench(tmp_path)
    make_inputs(bench)
    # A command is the same for both if its text is.
    wait = 'touch "$WHO.on"; until [ -e "$WHO.go" ]; do sleep 0.02; done'
    command = ["-p", str(SLOTS), "-c", f"{wait}; {CHANGE}", INPUTS]
    runs = {}
    for name in ("first", "second"):
        bench.env["WHO"] = str(bench.path / name)
        runs[name] = bench.start("-O", "out", "--report", f"{name}.json", *command)
    wait_for(lambda: all((bench.path / f"{name}.on").exists() for name in runs))
    before: dict[str, tuple[int, int]] = {}
    for name, shards in (("first", (SHARDS, 0)), ("second", (0, SHARDS))):
        (bench.path / f"{name}.go").touch()
        assert runs[name].wait(120) == 0
        found = bench.report(f"{name}.json")["shards"]
        assert (found["done"], found["done_before"], found["failed"]) == (*shards, 0)
        before = before or recorded(bench.path / "out")
    assert recorded(bench.path / "out") == before
    assert bench.leftovers() == []


@pytest.mark.parametrize("kind", ["braces", "glob", "list"])
def test_the_first_line_for_many_shards_comes_soon(tmp_path: Path, kind: str) -> None:
    bench = Bench(tmp_path)
    spec, count = "in/{000000..029999}.tar", 30_000
    if kind == "list":
        (bench.path / "list.txt").write_text("".join(f"in/{n:06d}.tar\n" for n in range(count)))
        spec = "@list.txt"
    elif kind == "glob":
        # Making and removing them takes longer than the rest.
        spec, count = "in/*.tar", 10_000
        (bench.path / "in").mkdir()
        for number in range(count):
            os.symlink("nowhere", bench.path / "in" / f"{number:06d}.tar")
    line = b"tarproc: in/000000.tar: no such file; missing shards are counted\n"

    def limit() -> None:
        # Of processor time, so that nothing else that the machine does counts: the system kills it
        # then. 2 seconds are promised for 100,000, on a machine that is not so slow.
        seconds = 4 if count == 30_000 else 2
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    process = bench.start("-O", "out", "-c", "true", spec, stderr=subprocess.PIPE, preexec_fn=limit)
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == line
    finally:
        process.kill()
        process.wait(120)
        process.stderr.close()
    assert outputs(bench.path / "out") == {} and recorded(bench.path / "out") == {}
    if kind == "braces":
        # Walking through all of them takes longer, and is the same for all three.
        done = bench.run("-O", "out", "-c", "true", "in/{000000..009999}.tar")
        assert done.returncode == 66
        first, missing, _ = done.stderr.splitlines(keepends=True)
        assert first == line
        assert missing == (
            b"tarproc: 10000 shards are missing, for example in/000000.tar, in/000001.tar, in/000002.tar\n"
        )


def test_missing_inputs_of_a_single_output(tmp_path: Path) -> None:
    """Known before the first sample is read."""
    bench = Bench(tmp_path)
    bench.shard(numbered(3), "s0.tar")
    for output in (["-o", "out.tar"], []):
        done = bench.run("-c", "touch ../../ran; echo ran", *output, "s{0..9}.tar")
        assert done.returncode == 66
        assert done.stderr == b"tarproc: 9 of 10 inputs are missing, for example s1.tar, s2.tar, s3.tar\n"
        assert done.stdout == b"" and not (bench.path / "out.tar").exists()
    # So many samples that the others are not needed; a list that can be read only once.
    assert bench.run("-c", "true", "--count", "3", "s{0..9}.tar").returncode == 0
    read, write = os.pipe()
    os.write(write, b"s0.tar\ns0.tar\n")
    os.close(write)
    done = bench.run("-c", "true", "--on-repeated-key", "allow", f"@/dev/fd/{read}", pass_fds=(read,))
    os.close(read)
    assert done.returncode == 0, done.stderr
    assert bench.run("-c", "true", "-o", "out.tar", "s0.tar").returncode == 0
    assert contents(bench.path / "out.tar")["k2.cls"] == b"2"
