"""Reduce: one sample of each group, by commands and functions, in any number of slices."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import warmprogram
from tarproc_support import contents, gone, tar_bytes

from tarkit.exchange.exchange import Exchange, Result, TooManyFailedError
from tarkit.exchange.reduce import NO_RESULT, REDUCED, Reduce
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.slices import ExchangeSlice
from tarkit.exchange.tasks import StageTaskError
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Failure
from tarkit.mapping.scratch import Scratch
from tarkit.runs.engine import Reporter

Samples = list[tuple[str, Mapping[str, bytes]]]
JOIN = "cat 0*/sample.txt > sample.txt"
TARKIT = str(Path(sys.executable).with_name("tarkit"))


def frames(videos: int = 3, count: int = 7, seed: int = 5) -> Samples:
    """Frames of videos, in a random order."""
    found: Samples = [
        (f"video{video}/frame{number:03d}", {"txt": f"{video}.{number} ".encode(), "cls": b"%d" % video})
        for video in range(videos)
        for number in range(count)
    ]
    random.Random(seed).shuffle(found)
    return found


def shards(folder: Path, samples: Samples, number: int = 7) -> list[str]:
    folder.mkdir(exist_ok=True)
    paths = []
    for shard in range(number):
        part = samples[len(samples) * shard // number : len(samples) * (shard + 1) // number]
        paths.append(folder / f"in-{shard}.tar")
        paths[-1].write_bytes(tar_bytes(part))
    return [*map(str, paths)]


def joined(samples: Samples) -> dict[str, bytes]:
    """What JOIN makes, by Python's dict."""
    found: dict[str, bytes] = {}
    for key, fields in samples:
        name = f"{key.rpartition('/')[0]}.txt"
        found[name] = found.get(name, b"") + fields["txt"]
    return found


def reduced(
    urls: Sequence[str], out: Path, step: Reduce, *, settings: Mapping[str, Any] = {"maxcount": 10}, **options: Any
) -> Result:
    result = Exchange(step, urls, str(out), ExchangeSettings(**settings), **options).run()
    counts = result.counts
    assert counts.read + counts.added == counts.out + counts.filtered + counts.failed
    return result


def members(out: Path, ending: str = ".tar") -> dict[str, bytes]:
    """The members of all shards, none of which comes twice."""
    found: dict[str, bytes] = {}
    for path in sorted(out.glob("shard-??????" + ending)):
        new = contents(path)
        assert not found.keys() & new.keys()
        found |= new
    return found


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.suffix in (".tar", ".idx")}


class Heard(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.failures: dict[str, Failure] = {}
        self.texts: list[bytes] = []
        self.strays: dict[str, list[str]] = {}

    def failed(self, key: str, failure: Failure, printed: Printed) -> None:
        self.failures[key] = failure

    def printed(self, key: str, printed: Printed) -> None:
        self.texts.append(printed.read())

    def stray(self, key: str, names: list[str]) -> None:
        self.strays[key] = names


@pytest.fixture
def urls(tmp_path: Path) -> list[str]:
    return shards(tmp_path / "in", frames())


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which is empty at the end."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert [*folder.iterdir()] == []


def test_the_folder_of_a_group(urls: list[str], tmp_path: Path) -> None:
    command = (
        'list=$(find . -type f | LC_ALL=C sort); echo "$list" > sample.list; '
        "cat __key__ */__key__ > sample.keys; cat */__source__ > sample.urls"
    )
    result = reduced(urls, tmp_path / "out", Reduce("folder", command))
    assert (result.counts.read, result.counts.out, result.dropped) == (21, 3, {REDUCED: 18})
    assert result.noted == {"groups": 3}
    found = members(tmp_path / "out")
    group = [(key, number // 3) for number, (key, _) in enumerate(frames()) if key.startswith("video1/")]
    assert found["video1.keys"].decode() == "video1" + "".join(key for key, _ in group)
    assert found["video1.urls"].decode() == "".join(urls[shard] for _, shard in group)
    inside = [
        f"./{number:06d}/{name}"
        for number in range(7)
        for name in ("__key__", "__source__", "sample.cls", "sample.txt")
    ]
    assert found["video1.list"].decode().split() == [*inside, "./__key__"]


def test_the_same_bytes_for_any_processes_and_slices(urls: list[str], tmp_path: Path) -> None:
    # The slowest first, so that with several at once, later ones end before.
    command = f"[[ $(<__key__) != video0 ]] || sleep 0.2; {JOIN}; [[ $(<__key__) != video2 ]]"
    samples = [*frames(), ("without", {"txt": b"1"}), ("folder", {"txt": b"2"})]
    urls = shards(tmp_path / "in", samples)
    settings = {"maxcount": 30}
    reduced(urls, tmp_path / "p1", Reduce("folder", command), settings=settings)
    expected = files(tmp_path / "p1")
    assert members(tmp_path / "p1") == {name: text for name, text in joined(frames()).items() if name != "video2.txt"}
    failed = contents(tmp_path / "p1" / "shard-000000.tar.failed.tar")
    order = [name.partition(".")[0] for name in failed if name.endswith(".txt") and "__error__" not in name]
    assert order == [key for key, _ in samples if key.startswith("video2/")] + ["without", "folder"]
    for parallel in (2, 5):
        reduced(urls, tmp_path / f"p{parallel}", Reduce("folder", command), settings=settings, parallel=parallel)
        assert files(tmp_path / f"p{parallel}") == expected
    for slices in (3, 7):
        out = tmp_path / f"w{slices}"
        run = ExchangeSlice(Reduce("folder", command), urls, str(out), ExchangeSettings(**settings))
        for number in range(slices):
            run.scatter(number, slices)
        run.gather(0, 1)
        assert files(out) == expected


@pytest.mark.parametrize("settings", [{"maxcount": 4}, {"shards": 6}, {"maxsize": 5000}], ids=str)
@pytest.mark.parametrize("command", [JOIN, None])
def test_a_group_is_never_cut(urls: list[str], tmp_path: Path, settings: Any, command: str | None) -> None:
    for parallel in (1, 3):
        step = Reduce("folder", command) if command else Reduce("folder", None, join, work_id="join")
        result = reduced(urls, tmp_path / f"p{parallel}", step, settings=settings, parallel=parallel)
        assert result.outputs > 3
        assert members(tmp_path / f"p{parallel}") == joined(frames())
    assert files(tmp_path / "p1") == files(tmp_path / "p3")


def test_all_samples_in_one_group(urls: list[str], tmp_path: Path) -> None:
    for parallel in (1, 4):
        out = tmp_path / f"out{parallel}"
        reduced(urls, out, Reduce("key:^(video)", JOIN), settings={"shards": 5}, parallel=parallel)
        assert members(out) == {"video.txt": b"".join(fields["txt"] for _, fields in frames())}


def join(name: str, samples: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return {"txt": b"".join(sample["txt"] for sample in samples)}


def test_functions_give_one_sample_none_or_several(urls: list[str], tmp_path: Path) -> None:
    def split(name: str, samples: Iterator[dict[str, Any]]) -> Any:
        assert iter(samples) is samples
        if name == "0":
            return None
        if name == "1":  # takes the first one only
            return {**next(samples), "__key__": "first", "cls": 3}
        places = [sample["__url__"] for sample in samples]
        return ({"__key__": f"{name}/{number}", "json": {"n": number, "urls": places}} for number in range(9))

    result = reduced(urls, tmp_path / "out", Reduce("cls", None, split))
    assert (result.counts.out, result.counts.added, result.counts.filtered) == (10, 2, 13)
    assert result.dropped == {NO_RESULT: 7, REDUCED: 6}
    found = members(tmp_path / "out")
    first = next(fields for key, fields in frames() if key.startswith("video1"))
    assert (found["first.cls"], found["first.txt"]) == (b"3", first["txt"])
    assert sorted(name for name in found if name[0] == "2") == [f"2/{number}.json" for number in range(9)]
    of_frames = [urls[number // 3] for number, (key, _) in enumerate(frames()) if key.startswith("video2")]
    assert json.loads(found["2/4.json"]) == {"n": 4, "urls": of_frames}


def test_functions_that_fail(urls: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(name: str, samples: Iterator[dict[str, Any]]) -> Any:
        if name == "video0":
            raise ValueError(f"no frame like {next(samples)['txt'].decode()[:1]}")
        if name == "video1":
            sys.exit(9)
        sys.stdout.write("printed\n")
        return "a text" if name == "video2" else {"bad/field": b""} if name == "video3" else {"txt": name.encode()}

    urls = shards(tmp_path / "in", frames(5, 2))
    for parallel in (1, 2):
        out = tmp_path / f"out{parallel}"
        result = reduced(urls, out, Reduce("folder", None, fails), parallel=parallel, settings={"maxcount": 4})
        assert (result.counts.read, result.counts.out, result.counts.failed) == (10, 1, 8)
        assert result.counts.exit_code == 3
        assert members(out) == {"video4.txt": b"video4"}
        printed = capfd.readouterr()
        assert (printed.out, printed.err) == ("", "printed\n" * 3)
        failed = members(out, ".tar.failed.tar")
        assert {name: text for name, text in failed.items() if "__error__" not in name} == {
            f"{key}.{field}": text for key, fields in frames(5, 2) for field, text in fields.items() if key < "video4"
        }
        reasons = [failed[f"video{each}/frame000.__error__.txt"].decode() for each in range(4)]
        for reason, words in zip(
            reasons,
            ("group video0: ValueError: no frame like 0 (test_reduce.py:", "sys.exit(9)", "not str", "bad/field"),
            strict=True,
        ):
            assert words in reason
        assert "Traceback" in reasons[0]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_function_that_ends_its_process(urls: list[str], tmp_path: Path, parallel: int) -> None:
    def ends(name: str, samples: Iterator[dict[str, Any]]) -> None:
        os._exit(0)

    step = Reduce("folder", None, ends)
    with pytest.raises(StageTaskError, match="the mapper's process ended with status 0; run the same command again"):
        reduced(urls, tmp_path / "out", step, parallel=parallel)
    done = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.done.json")]
    assert not any(record["samples"]["in"] for record in done), "an output without a group may be done"
    with Scratch():
        """The next run removes what the process left."""


def test_commands_that_fail_or_give_nothing(urls: list[str], tmp_path: Path) -> None:
    heard = Heard()
    command = """
      case $(<__key__) in
        video0) rm -r 0*; echo one >&2; false | cat; touch sample.txt;;
        video1) rm -r 0*;;
        video2) mkdir more; touch other; read -r line || true; echo "$line" > sample.txt; rm -r 000003; echo said;;
      esac"""
    result = reduced(urls, tmp_path / "out", Reduce("folder", command, reporter=heard), parallel=2)
    assert (result.counts.out, result.counts.failed, result.dropped) == (1, 7, {NO_RESULT: 7, REDUCED: 6})
    assert members(tmp_path / "out") == {"video2.txt": b"\n"}
    failed = members(tmp_path / "out", ".tar.failed.tar")
    kept = {f"{key}.{name}": text for key, fields in frames() for name, text in fields.items() if "video0" in key}
    assert {name: text for name, text in failed.items() if "__error__" not in name} == kept
    reason = failed["video0/frame000.__error__.txt"].decode()
    assert reason.startswith("group video0: exit code 1: line 3: false | cat")
    assert reason.endswith("--- stderr ---\none\n")
    assert heard.failures.keys() == {"video0"}
    assert heard.texts == [b"one\n", b"", b"said\n"]
    assert heard.strays == {"video2": ["other", "more/ (a folder)"]}
    with tarfile.open(tmp_path / "out" / "shard-000000.tar.failed.tar") as archive:
        names = [name for name in archive.getnames() if name.endswith(".cls")]
    assert names == [f"{key}.cls" for key, _ in frames() if "video0" in key]


def test_commands_that_hang_or_leave_programs(urls: list[str], tmp_path: Path) -> None:
    heard = Heard()
    marker = f"29.{os.getpid()}"
    command = f"case $(<__key__) in video0) sleep {marker};; video1) sleep {marker} & {JOIN};; *) {JOIN};; esac"
    begin = time.monotonic()
    step = Reduce("folder", command, timeout=1.5, reporter=heard)
    result = reduced(urls, tmp_path / "out", step, parallel=3)
    assert time.monotonic() - begin < 20
    assert (result.counts.out, result.counts.failed) == (1, 14)
    assert {key: failure.kind for key, failure in heard.failures.items()} == {
        "video0": "timeout", "video1": "left-running",
    }  # fmt: skip
    assert gone(f"sleep {marker}")


def test_keys_that_commands_choose(urls: list[str], tmp_path: Path) -> None:
    heard = Heard()
    command = f"{JOIN}; case $(<__key__) in video0) echo new/name > __key__;; video1) echo a.b > __key__;; esac"
    result = reduced(urls, tmp_path / "out", Reduce("folder", command, reporter=heard))
    wanted = joined(frames())
    assert members(tmp_path / "out") == {"new/name.txt": wanted["video0.txt"], "video2.txt": wanted["video2.txt"]}
    assert result.counts.failed == 7
    assert "would be read back as" in heard.failures["video1"].message


def test_a_key_that_is_there_already(urls: list[str], tmp_path: Path) -> None:
    heard = Heard()
    result = reduced(
        urls, tmp_path / "out", Reduce("folder", f"{JOIN}; echo same > __key__", reporter=heard),
        settings={"maxcount": 30},
    )  # fmt: skip
    assert (result.counts.out, result.counts.failed) == (1, 14)
    assert "the key was written before" in heard.failures["video1"].message
    settings = {"maxcount": 30, "on_repeated_key": "allow"}
    result = reduced(urls, tmp_path / "all", Reduce("folder", f"{JOIN}; echo same > __key__"), settings=settings)
    assert (result.counts.out, result.counts.failed) == (3, 0)


HOSTILE = ["../x", "/etc/x", "a\nb", "..", ".", "", "$(touch bad)", "-rf", "ü\udcff", "a/../../b", "x" * 300, "__x__"]


def test_hostile_names_never_leave_the_folder(tmp_path: Path, scratch: Path) -> None:
    samples: Samples = [
        (f"k{number}", {"name": name.encode("utf-8", "surrogateescape"), "txt": b"%d" % number})
        for number, name in enumerate(HOSTILE)
    ]
    urls = shards(tmp_path / "in", samples, 2)
    before = {*tmp_path.rglob("*")}
    command = f"{JOIN}; pwd > sample.pwd; cat __key__ > sample.key; test ! -e bad"
    result = reduced(urls, tmp_path / "out", Reduce("name", command), settings={"maxcount": 100})
    assert result.counts.read == len(HOSTILE)
    out = tmp_path / "out"
    with tarfile.open(out / "shard-000000.tar") as archive:
        names = {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]
    places = [text.decode() for name, text in names.items() if name.endswith(".pwd")]
    assert len(places) == result.counts.out
    assert all(place.startswith(f"{scratch}/") and ".." not in place for place in places)
    for number, name in enumerate(HOSTILE):
        if f"{name}.txt" in names:
            assert names[f"{name}.txt"] == b"%d" % number
            assert names[f"{name}.key"] == name.encode("utf-8", "surrogateescape")
    failed = contents(out / "shard-000000.tar.failed.tar")
    lost = [HOSTILE[int(key[1:])] for key in (name.partition(".")[0] for name in failed if name.endswith(".name"))]
    assert {*lost} | {name.removesuffix(".txt") for name in names if name.endswith(".txt")} == {*HOSTILE}
    assert {"", "..", "."} <= {*lost}
    assert {*tmp_path.rglob("*")} - before == {out, *out.iterdir()}


def test_a_hostile_field_fails_its_group(tmp_path: Path) -> None:
    samples: Samples = [("a/1", {"x" * 260: b"1"}), ("a/2", {"txt": b"2"}), ("b/1", {"txt": b"3"})]
    heard = Heard()
    result = reduced(shards(tmp_path / "in", samples, 1), tmp_path / "out", Reduce("folder", JOIN, reporter=heard))
    assert (result.counts.out, result.counts.failed) == (1, 2)
    assert "cannot be a file's name" in heard.failures["a"].message


def test_too_many_failed_groups(urls: list[str], tmp_path: Path) -> None:
    settings = {"maxcount": 30, "max_errors": "1"}
    with pytest.raises(TooManyFailedError, match="2 of 2 groups failed, the last: video1: exit code 1") as caught:
        reduced(urls, tmp_path / "out", Reduce("folder", "false"), settings=settings)
    assert "shard-000000.tar is not published" in str(caught.value)
    assert [*(tmp_path / "out").glob("shard*")] == []
    # One failed group of 7 samples is within the limit.
    step = Reduce("folder", f"{JOIN}; [[ $(<__key__) != video1 ]]")
    assert reduced(urls, tmp_path / "new", step, settings=settings).counts.failed == 7


def test_equal_keys_of_inputs_are_an_error_by_default(tmp_path: Path) -> None:
    samples: Samples = [("a/1", {"txt": b"1"}), ("a/1", {"txt": b"2"})]
    urls = shards(tmp_path / "in", samples, 2)
    with pytest.raises(Exception, match="a/1"):
        reduced(urls, tmp_path / "out", Reduce("folder", JOIN))
    settings = {"maxcount": 9, "on_repeated_key": "allow"}
    reduced(urls, tmp_path / "both", Reduce("folder", JOIN), settings=settings)
    assert members(tmp_path / "both") == {"a.txt": b"12"}


def test_a_command_runs_once_and_not_again(urls: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = f"printf '%s\\n' \"$(< __key__)\" >> {log}; {JOIN}"
    for parallel in (1, 4):
        reduced(urls, tmp_path / f"out{parallel}", Reduce("folder", command), parallel=parallel)
        assert sorted(log.read_text().split()) == ["video0", "video1", "video2"]
        again = reduced(urls, tmp_path / f"out{parallel}", Reduce("folder", command), parallel=parallel)
        assert (again.done, again.done_before) == (0, 3)
        log.unlink()


def test_large_groups_wait_in_files(tmp_path: Path) -> None:
    rng = random.Random(3)
    samples: Samples = [(f"g/{number:04d}", {"bin": rng.randbytes(9000 + number)}) for number in range(100)]
    urls = shards(tmp_path / "in", samples, 3)
    wanted = b"".join(fields["bin"] for _, fields in samples)

    def glue(name: str, found: Iterator[dict[str, Any]]) -> dict[str, Any]:
        return {"bin": b"".join(sample["bin"] for sample in found)}

    def fails(name: str, found: Iterator[dict[str, Any]]) -> None:
        next(found)
        raise ValueError("enough")

    for number, step in enumerate((Reduce("folder", "cat 0*/sample.bin > sample.bin"), Reduce("folder", None, glue))):
        reduced(urls, tmp_path / f"out{number}", step, mem=1 << 19)
        assert members(tmp_path / f"out{number}") == {"g.bin": wanted}
    for number, step in enumerate((Reduce("folder", "rm -r 0*; false"), Reduce("folder", None, fails))):
        result = reduced(urls, tmp_path / f"failed{number}", step, mem=1 << 19, settings={"maxcount": 50})
        assert result.counts.failed == 100
        with tarfile.open(tmp_path / f"failed{number}" / "shard-000000.tar.failed.tar") as archive:
            kept = [archive.extractfile(info).read() for info in archive if info.name.endswith(".bin")]  # type: ignore[union-attr]
        assert b"".join(kept) == wanted


def test_the_mean_of_frames_by_imagemagick(tmp_path: Path) -> None:
    convert = shutil.which("magick") or shutil.which("convert")
    if convert is None:
        pytest.skip("NO IMAGEMAGICK, THE MEAN OF FRAMES IS NOT TESTED")
    samples: Samples = [
        (f"v{video}/{number}", {"pgm": b"P5 2 1 255\n" + bytes([40 * number + video, 10])})
        for video in range(2)
        for number in range(5)
    ]
    urls = shards(tmp_path / "in", samples, 2)
    command = f"{convert} 0*/sample.pgm -evaluate-sequence mean -depth 8 sample.gray"
    reduced(urls, tmp_path / "out", Reduce("folder", command), parallel=2)
    assert members(tmp_path / "out") == {"v0.gray": bytes([80, 10]), "v1.gray": bytes([81, 10])}


def test_gnu_tar_reads_the_result(urls: list[str], tmp_path: Path) -> None:
    reduced(urls, tmp_path / "out", Reduce("folder", JOIN), settings={"maxcount": 30})
    shard = tmp_path / "out" / "shard-000000.tar"
    done = subprocess.run(["tar", "-xOf", shard, "video1.txt"], capture_output=True, check=True)
    assert done.stdout == joined(frames())["video1.txt"]


def test_few_groups_wait_for_a_slow_one(tmp_path: Path, scratch: Path) -> None:
    samples: Samples = [(f"g{number:02d}/1", {"txt": bytes(300_000)}) for number in range(30)]
    urls = shards(tmp_path / "in", samples, 1)
    # The first one sees how many have run, and wait in a file, after all that may.
    command = (
        "echo >> ../../began; [[ $(<__key__) != g00 ]] || { sleep 1.5; cat ../../began | wc -l > sample.txt; "
        "ls -d ../group-* | wc -l >> sample.txt; }; touch sample.txt"
    )
    reduced(urls, tmp_path / "out", Reduce("folder", command), parallel=2, settings={"maxcount": 40})
    assert members(tmp_path / "out")["g00.txt"].split() == [b"8", b"8"]
    assert len(members(tmp_path / "out")) == 30
    (scratch / "began").unlink()


def test_a_run_that_is_killed_is_resumed(urls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    # Not in the command, whose files are part of the plan.
    monkeypatch.setenv("PID_FILE", str(pid))
    command = (
        f'[[ $(<__key__) != video1 || -e $PID_FILE ]] || {{ echo $BASHPID > "$PID_FILE"; exec sleep 60; }}; {JOIN}'
    )
    words = [*urls, "-O", "out", "--by", "folder", "--maxcount", "7", "-q", "-c", command]
    process = subprocess.Popen([TARKIT, "reduce", *words], cwd=tmp_path, stdin=subprocess.DEVNULL)
    end = time.monotonic() + 60
    # The first output is published while the command of the second one begins.
    record = tmp_path / "out" / "shard-000000.tar.done.json"
    while not (pid.exists() and pid.read_text() and record.exists()) and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    process.wait()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    made = [*(tmp_path / "out").glob("shard-*")]
    assert {path.name for path in made} == {f"shard-000000{suffix}" for suffix in (".tar", ".idx", ".tar.done.json")}
    before = {path: path.stat().st_mtime_ns for path in made}
    assert run(tmp_path, *words).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in made} == before
    assert members(tmp_path / "out") == joined(frames())
    assert not (tmp_path / "out" / "_exchange").exists()


def test_an_interrupt_ends_the_commands(urls: list[str], tmp_path: Path) -> None:
    marker = f"33.{os.getpid()}"
    words = [*urls, "-O", "out", "--by", "folder", "-p", "2", "-q", "-c", f"touch {tmp_path}/began; sleep {marker}"]
    process = subprocess.Popen([TARKIT, "reduce", *words], cwd=tmp_path, stdin=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (tmp_path / "began").exists() and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert gone(f"sleep {marker}", 10)
    assert [*(tmp_path / "out").glob("shard-*")] == []


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = warmprogram.run(["tarkit", "reduce", *words], folder, os.environ, None, 120)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_verb(urls: list[str], tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "def merge(name, samples):\n    print('at', name)\n    return {'txt': b''.join(s['txt'] for s in samples)}\n"
    )
    command = f"echo said; [[ $(<__key__) != video1 ]]; touch extra; {JOIN}"
    done = run(tmp_path, *urls, "-O", "out", "--by", "folder", "--maxcount", "30", "-p", "2", "-c", command, "--json")
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout)["samples"] == {
        "in": 21, "added": 0, "out": 2, "filtered": 12, "failed": 7, "ignored": 0,
    }  # fmt: skip
    lines = done.stderr.splitlines()
    assert lines[:5] == [
        "tarkit reduce: group video0: left in its folder, but not part of the output: extra", "said",
        "tarkit reduce: group video1: exit code 1: line 1: [[ $(< __key__) != video1 ]]; add `|| true` if that is "
        "meant",
        "said", "tarkit reduce: group video2: left in its folder, but not part of the output: extra",
    ]  # fmt: skip
    assert f"; failed groups: 1; groups: 3; {REDUCED}: 12" in lines[-1]
    for parallel in ("1", "2"):
        words = ["--by", r"key:(video\d)/", "--map", "m.py:merge", "-p", parallel, "--maxcount", "9"]
        done = run(tmp_path, *urls, "-O", f"map{parallel}", *words, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["shards"] == 3
        assert done.stderr.startswith("at video0\nat video1\nat video2\n")
        assert members(tmp_path / f"map{parallel}") == joined(frames())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "folder"], "give one of -c COMMAND and --map FUNCTION"),
        (["--by", "folder", "--map", "m.py:x"], "the file 'm.py' does not exist"),
        (["--by", "key:x", "-c", "true"], "--by 'key:x' must have one group in parentheses"),
        (["--by", "folder", "-c", "nowhere_at_all"], "all 3 groups failed with exit code 127"),
        (["--by", "folder", "-c", "true", "--shell", "./none"], "all 3 groups failed with exit code 127"),
    ],
)
def test_mistakes_are_one_line(urls: list[str], tmp_path: Path, words: list[str], message: str) -> None:
    done = run(tmp_path, *urls, "-O", "out", *words, "-q")
    assert done.returncode in (2, 127)
    line = [line for line in done.stderr.splitlines() if line.startswith("tarkit: ")][-1]
    assert message in line
    assert not [*tmp_path.glob("out/shard-*")]
    if done.returncode == 2:
        assert len(done.stderr.splitlines()) == 1


def tree_memory(pid: int) -> int:
    """Bytes of memory of a process and its children, shared ones once."""
    total, waiting = 0, [pid]
    while waiting:
        each = waiting.pop()
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
            waiting += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
    return total


def peak(folder: Path, *words: str) -> int:
    """Most memory of tarkit reduce with all of its processes."""
    process = subprocess.Popen([TARKIT, "reduce", *words, "-q"], cwd=folder, stdin=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, tree_memory(process.pid))
        time.sleep(0.01)
    assert process.returncode == 0
    return most


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux' /proc")
@pytest.mark.parametrize("way", ["command", "function"])
def test_a_group_of_eight_times_the_memory(tmp_path: Path, way: str) -> None:
    mem, most = 8 << 20, 72 << 20
    (tmp_path / "m.py").write_text(
        "def total(name, samples):\n    return {'txt': b'%d' % sum(len(s['bin']) for s in samples)}\n"
    )
    words = {
        "command": ["-c", "cat 0*/sample.bin | wc -c | tr -d '\\n' > sample.txt"],
        "function": ["--map", "m.py:total"],
    }[way]
    peaks = []
    for size in (5 * mem, 8 * mem):  # both have two slices
        folder = tmp_path / f"{size}"
        folder.mkdir()
        block = random.Random(1).randbytes(1 << 18)
        for shard in range(2):
            content = tar_bytes((f"g/{shard}-{each}", {"bin": block}) for each in range(size // 2 >> 18))
            (folder / f"in-{shard}.tar").write_bytes(content)
        inputs = [f"{size}/in-{shard}.tar" for shard in range(2)]
        options = ["--mem", "8M", "-p", "2", "--by", "folder"]
        peaks.append(peak(tmp_path, *inputs, "-O", f"{size}/out", *options, *words))
        assert members(folder / "out") == {"g.txt": b"%d" % size}
    assert peaks[0] < most, peaks
    assert peaks[1] - peaks[0] < mem, peaks
