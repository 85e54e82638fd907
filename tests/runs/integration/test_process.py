"""tarkit.process: all that tarproc does, from Python."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import MissingInputError, TemporaryStreamError, TooLargeError, UsageError
from tarkit.formats.tally import Tally
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Failure
from tarkit.runs.counts import Counts, TooManyErrorsError
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.engine import Reporter
from tarkit.runs.process import ShardsFailedError
from tarkit.runs.status import progress_of
from tarkit.store.compression import zstd_library

TWICE = "cat sample.cls sample.cls > x; mv x sample.cls"


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Two shards of three samples; the folder for scratch is empty at the end."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.chdir(tmp_path)
    paths = [tmp_path / f"s{number}.tar" for number in range(2)]
    for first, path in zip((0, 3), paths, strict=True):
        with tarkit.TarWriter(str(path), encoder=False) as writer:
            for number in range(3):
                writer.write({"__key__": f"k{first + number}", "cls": b"%d" % number, "dat": b"x"})
    yield paths
    assert os.listdir(scratch) == []


def contents(path: Path) -> dict[str, bytes]:
    """Field of each sample -> its content."""
    samples = tarkit.read_samples(str(path))
    return {f"{each['__key__']}.{name}": each[name] for each in samples for name in each if name[0] != "_"}


def tarproc(*words: object) -> str:
    """What the program prints on stderr; it ends with 0."""
    program = [sys.executable, "-m", "tarkit.cli.tarproc", *map(str, words)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


class Events(Reporter):
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def started(self, counts: Counts, shards: int | None, *, failed_are_kept: bool) -> None:
        self.seen.append(("started", shards, failed_are_kept))

    def reading(self, tally: Tally) -> None:
        self.seen.append("reading")

    def printed(self, key: str, printed: Printed) -> None:
        self.seen.append((key, printed.read()))

    def failed(self, key: str, failure: Failure, printed: Printed) -> None:
        self.seen.append((key, failure.message))

    def shard_skipped(self, output_url: str) -> None:
        self.seen.append(f"skipped {os.path.basename(output_url)}")

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        self.seen.append(f"{record.state} {os.path.basename(output_url)}")

    def noted(self, message: str) -> None:
        self.seen.append(message)


def test_a_command_makes_the_bytes_that_tarproc_makes(
    shards: list[Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    counts = tarkit.process([*shards], output=tmp_path / "a.tar", command=f"echo hi; {TWICE}", parallel=2)
    assert (counts.read, counts.out, counts.failed, counts.exit_code) == (6, 6, 0, 0)
    assert str(counts) == "in 6 = out 6 + filtered 0 + failed 0"
    assert counts.met.members == 12 and counts.failed_output is None
    assert capfd.readouterr() == ("", ""), "a library prints nothing"
    tarproc(*shards, "-o", tmp_path / "b.tar", "-c", f"echo hi; {TWICE}")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert tarkit.process("s{0..1}.tar", command="true", count=4).out == 4


def test_lambdas_with_all_that_they_hold(shards: list[Path], tmp_path: Path) -> None:
    suffix = b"!"
    counts = tarkit.process(
        shards[0],
        output="out.tar",
        function=lambda samples, more: [
            {**sample, "cls": sample["cls"] + suffix + more} if sample["__key__"] != "k1" else None
            for sample in samples
        ],
        setup=lambda: b"?",
        batch=2,
        fields="cls",
    )
    assert (counts.out, counts.filtered) == (2, 1)
    assert contents(tmp_path / "out.tar") == {"k0.cls": b"0!?", "k2.cls": b"2!?"}


def test_mem_is_the_limit_of_the_window_of_a_compressed_shard(shards: list[Path], tmp_path: Path) -> None:
    zstd = zstd_library()
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    path = tmp_path / "long.tar.zst"
    path.write_bytes(compressor.compress(shards[0].read_bytes()) + compressor.flush())
    with pytest.raises(TooLargeError, match=r"needs 268435456 bytes of memory .* --mem 268435456"):
        tarkit.process(path, output="out.tar", command="true", on_damage="skip")
    assert tarkit.process(path, output="out.tar", command="true", mem=268435456).out == 3


def test_samples_of_two_contents_of_an_input_are_not_published(shards: list[Path], tmp_path: Path) -> None:
    """Written over in place while it is read: it had the samples of both, and success."""
    long, other = tmp_path / "long.tar", tmp_path / "other.tar"
    for path, content in ((long, b"old"), (other, b"new")):
        with tarkit.TarWriter(str(path), encoder=False) as writer:
            for number in range(400):
                writer.write({"__key__": f"k{number:03d}", "cls": content, "dat": bytes(8000)})

    class Overwrite(Reporter):
        def advanced(self, read: int, failed: int) -> None:
            if read == 1:
                long.write_bytes(other.read_bytes())

    with pytest.raises(TemporaryStreamError, match="changed while it was read"):
        tarkit.process(long, output="out.tar", function=lambda sample: sample, mem=1 << 20, reporter=Overwrite())
    assert not (tmp_path / "out.tar").exists()


def test_no_shard_of_another_function_is_taken_as_done(shards: list[Path], tmp_path: Path) -> None:
    """Neither source nor name tell two functions apart: these differ in what they close over."""

    def add(suffix: bytes) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda sample: {**sample, "cls": sample["cls"] + suffix}

    def made(suffix: bytes, **options: Any) -> tuple[int, int, bytes]:
        counts = tarkit.process("s{0..1}.tar", outdir="out", function=add(suffix), **options)
        return counts.shards_done, counts.shards_before, contents(tmp_path / "out" / "s1.tar")["k5.cls"]

    assert made(b"a") == (2, 0, b"2a")
    assert made(b"b") == (2, 0, b"2b")
    assert made(b"b") == (2, 0, b"2b"), "not even the same function"
    assert made(b"c", work_id="c") == (2, 0, b"2c")
    assert made(b"c", work_id="c") == (0, 2, b"2c")
    assert made(b"d", work_id="d") == (2, 0, b"2d")
    assert made(b"d", work_id="d", fields="cls") == (2, 0, b"2d"), "options count as ever"


def test_tarproc_resumes_what_a_process_began_and_the_other_way_round(shards: list[Path]) -> None:
    assert tarkit.process(shards[0], outdir="out", command=TWICE).shards_done == 1
    assert "done 1, done before 1" in tarproc("-O", "out", "-c", TWICE, *shards)
    counts = tarkit.process([*shards], outdir="out", command=TWICE)
    assert (counts.shards_done, counts.shards_before, counts.read) == (0, 2, 0)


def test_shards_that_fail_are_an_error_that_has_the_counts(shards: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.tar").write_bytes(shards[0].read_bytes()[:700])
    events = Events()
    message = r"1 shards failed .*, 1 inputs are missing, for example gone\.tar; 2 are done"
    with pytest.raises(ShardsFailedError, match=message) as caught:
        tarkit.process([*shards, "bad.tar", "gone.tar"], outdir="out", command="true", reporter=events)
    counts = caught.value.counts
    assert (counts.shards_done, counts.shards_failed, counts.shards_missing, counts.out) == (2, 1, 1, 6)
    assert caught.value.exit_code == counts.exit_code == 65
    ends = [each for each in events.seen if each[:4] in ("done", "fail")]
    assert sorted(ends) == ["done s0.tar", "done s1.tar", "failed bad.tar"]
    assert json.loads((tmp_path / "out" / "bad.tar.done.json").read_text())["state"] == "failed"


def test_names_that_differ_by_a_percent_sign_are_two_outputs(shards: list[Path], tmp_path: Path) -> None:
    """In an outdir that is a file:// URL both had one output, the exit code was 0, and the first
    one was gone.
    """
    for path, name in zip(shards, ("a b.tar", "a%20b.tar"), strict=True):
        path.rename(tmp_path / name)
    outdir = f"file://{tmp_path}/out"
    assert tarkit.process(["a b.tar", "a%20b.tar"], outdir=outdir, command="true").shards_done == 2
    assert progress_of(outdir, ["a b.tar", "a%20b.tar"]).done == ["a b.tar", "a%20b.tar"]
    assert next(iter(contents(tmp_path / "out" / "a b.tar"))) == "k0.cls"
    assert next(iter(contents(tmp_path / "out" / "a%20b.tar"))) == "k3.cls"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"command": "true", "inputs": ()}, "name the input shards"),
        ({}, "give one of -c COMMAND"),
        ({"command": "true", "function": len}, "give one of -c COMMAND"),
        ({"command": "true", "setup": dict}, "--setup goes with --map"),
        ({"function": lambda sample: sample, "setup": "prepare"}, "setup 'prepare' must be module:function"),
        ({"command": "true", "output": "a.tar", "outdir": "out"}, "give -o OUT for one output, or -O"),
        ({"command": "true", "output": "a-%06d.tar"}, "the output is one shard"),
        ({"command": "true", "slice": "0/2"}, "--slice goes with -O"),
        ({"command": "true", "errors": "hope"}, "--errors 'hope' must be one of"),
        ({"command": "true", "parallel": -1}, "-p -1"),
        ({"command": "true", "output": "a.tar", "report": "r.json"}, "report= is an option of tarproc"),
        ({"function": "tarkit:no_such"}, "has no function 'no_such'"),
    ],
)
def test_wrong_arguments(shards: list[Path], tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        tarkit.process(**{"inputs": shards[0], **options})
    assert expected in str(caught.value)
    assert not list(tmp_path.glob("a*.tar"))


def test_arguments_that_there_are_not(shards: list[Path]) -> None:
    with pytest.raises(TypeError, match="colour"):
        tarkit.process(shards[0], command="true", colour="grey")
    with pytest.raises(MissingInputError):
        tarkit.process("gone.tar", command="true")


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of docs/process.md, one after the other."""
    monkeypatch.chdir(tmp_path)
    for shard in range(2):
        with tarkit.TarWriter(f"train-{shard}.tar", encoder=False) as writer:
            for number in range(3):
                writer.write({"__key__": f"k{3 * shard + number}", "cls": b"%d" % number})
    page = (Path(__file__).resolve().parents[3] / "docs" / "process.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    assert len(blocks) == 4
    exec("\n".join(blocks), {"__name__": "page"})
    assert capsys.readouterr().out.startswith("k1 exit code 1: line 1: test ")


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ("s0.tar", {"output": "out.tar"}),
        ("s0.tar", {"output": "out.tar", "fields": "cls big"}),
        ("s0.tar", {"outdir": "out"}),
        ((), {"outdir": "out", "retry_failed": "out"}),
    ],
    ids=["one output", "with fields", "an output each", "a retry"],
)
def test_a_run_that_ends_with_an_error_leaves_no_input_open(
    shards: list[Path], tmp_path: Path, given: str, options: dict[str, Any]
) -> None:
    with tarkit.TarWriter("s0.tar", encoder=False) as writer:
        for number in range(40):
            writer.write({"__key__": f"k{number}", "cls": b"%d" % number, "big": bytes(100_000)})
    if "retry_failed" in options:
        # Both are read, the old output and the failed samples.
        tarkit.process("s0.tar", outdir="out", command='! grep -q "[13579]$" sample.cls', work_id="odd")
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(TooManyErrorsError) as held:
            tarkit.process(given, command="exit 9", errors="abort", mem=300_000, **options)
        found = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    finally:
        gc.enable()
    # The traceback is kept, as a notebook or debugger would.
    assert held.tb is not None
    assert [name for name in found if name.startswith(str(tmp_path))] == []


def test_memory_is_a_number_of_bytes(tmp_path: Path) -> None:
    from tarkit.formats.recordio.read import read_records

    path = str(tmp_path / "a.tar")
    with tarkit.TarWriter(path) as writer:
        writer.write({"__key__": "a", "txt": "b"})
    for read in (tarkit.read_samples, read_records):
        with pytest.raises(UsageError, match=r"^mem is '2G'; it must be a number of bytes, such as 2 \* 2\*\*30$"):
            list(read(path, mem="2G"))
    with pytest.raises(
        UsageError, match=r"^--mem: '2G' is of a wrong type \(str\); it must be a number of bytes, such"
    ):
        tarkit.process(path, command="true", mem="2G")
    assert len(list(tarkit.read_samples(path, mem=2e9))) == 1  # type: ignore[arg-type]
