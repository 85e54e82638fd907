"""Runs over many shards, from the library: what is published, in what order, and what a crash
leaves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tarkit import TarWriter
from tarkit.errors import DataError, MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.formats.tally import Tally
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Batch, Failure, Outcome
from tarkit.names.outputnames import DONE_SUFFIX, plan_outputs
from tarkit.names.url import display_name
from tarkit.runs.account import Sinks
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.runs.engine import Engine, Reporter
from tarkit.runs.retryfailed import RetryRun, outputs_of
from tarkit.runs.runrecord import RunRecord
from tarkit.runs.shards import ShardRun, _together
from tarkit.runs.status import progress_of
from tarkit.runs.work import Work
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.specs.inputset import InputSet
from tarkit.specs.shardspec import counted_shards
from tarkit.store.entries import Identity, remove


class Told(Reporter):
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.skipped: list[str] = []
        self.done: list[tuple[str, str, str | None]] = []
        self.missing: list[str] = []

    def shard_skipped(self, output_url: str) -> None:
        self.skipped.append(output_url.rpartition("/")[2])

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        self.done.append((output_url.rpartition("/")[2], record.state, record.error))

    def shard_missing(self, url: str) -> None:
        self.missing.append(url.rpartition("/")[2])


class Here:
    """A pool that runs a function in this thread; None from it is a failure."""

    def __init__(self, function: Callable[[Sample], Sample | None], slots: int = 3) -> None:
        self._function = function
        self._slots = slots
        self._waiting: list[tuple[int, Batch]] = []

    def has_room(self) -> bool:
        return len(self._waiting) < self._slots

    def submit(self, ticket: int, batch: Batch) -> None:
        self._waiting.append((ticket, batch))

    def collect(self) -> list[tuple[int, Outcome]]:
        # The last one first, as it happens with several slots.
        ticket, batch = self._waiting.pop()
        made = [self._function(dict(sample)) for sample in batch]
        failure = Failure("exit", "exit code 1", 1) if None in made else None
        return [(ticket, Outcome([[] if each is None else [each] for each in made], Printed(), failure))]


def same(sample: Sample) -> Sample:
    return sample


class World:
    """Three shards of two samples, and runs over them."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.out.mkdir()
        self.inputs = [str(folder / f"s{number}.tar") for number in range(3)]
        for path in self.inputs:
            with TarWriter(path, encoder=False) as writer:
                for number in range(2):
                    writer.write({"__key__": f"k{number}", "txt": path[-5:].encode()})
        self.told = Told()

    def run(
        self,
        function: Callable[[Sample], Sample | None] = same,
        *,
        out: str | None = None,
        read: Callable[[str, Tally], Iterator[Sample]] | None = None,
        inputs: list[str] | None = None,
        slots: int = 3,
        **options: Any,
    ) -> Counts:
        self.told = Told()
        engine = Engine(Work(command="true", parallel=slots, **options), Here(function, slots), self.told)
        if read is not None:
            engine.read = lambda shards, tally: read(*shards, tally)  # type: ignore[method-assign]
        counts = Counts()
        ShardRun(engine, counts, "work", "1").run(plan_outputs(inputs or self.inputs, out or str(self.out)))
        return counts

    def retry(self, function: Callable[[Sample], Sample | None] = same) -> Counts:
        self.told = Told()
        counts = Counts()
        RetryRun(Engine(Work(command="again"), Here(function), self.told), counts).run(str(self.out))
        return counts

    def names(self) -> list[str]:
        return sorted(path.name for path in self.out.iterdir())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def fail_k1_of_s1(sample: Sample) -> Sample | None:
    return None if (sample["__key__"], sample["txt"]) == ("k1", b"1.tar"[-5:]) else sample


class Crash(BaseException):
    """The process ends here."""


def test_into_a_store(world: World) -> None:
    """Outputs and records in fsspec's memory."""
    out = "memory://tests-of-shardrun"
    memory = fsspec.filesystem("memory")
    try:
        assert world.run(out=out).exit_code == 0
        assert world.told.done == [(f"s{number}.tar", "done", None) for number in range(3)]
        assert [sample["txt"] for sample in read_samples(f"{out}/s1.tar")] == [b"1.tar", b"1.tar"]
        assert world.run(out=out).shards_before == 3
        memory.pipe_file("/tests-of-shardrun/s1.tar", b"cut")
        totals = world.run(out=out)
        assert (totals.shards_done, totals.shards_before) == (1, 2)
    finally:
        memory.rm("/tests-of-shardrun", recursive=True)


def test_another_run_was_faster(world: World, tmp_path: Path) -> None:
    """Whoever comes second finds a fresh record, and leaves all as it is."""
    rival = World(tmp_path / "rival") if (tmp_path / "rival").mkdir() is None else world
    rival.out, rival.inputs = world.out, world.inputs
    marks: dict[str, tuple[int, int]] = {}

    def slow(sample: Sample) -> Sample:
        if not marks:
            assert rival.run().shards_done == 3
            marks.update({path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in world.out.glob("s*")})
        return sample

    totals = world.run(slow)
    assert (totals.shards_done, totals.shards_before, totals.shards_failed, totals.exit_code) == (0, 3, 0, 0)
    assert totals.read == 0
    assert {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in world.out.iterdir()} == marks


def test_an_input_that_changes_while_it_is_read(world: World) -> None:
    """Its first samples may be of the old file, and its last of the new one."""
    source = Path(world.inputs[0])

    def change(sample: Sample) -> Sample:
        if sample["txt"] == b"0.tar"[-5:]:
            os.utime(source, ns=(1, source.stat().st_mtime_ns + 1))
        return sample

    totals = world.run(change, slots=1)
    assert (totals.shards_done, totals.shards_failed, totals.exit_code) == (2, 1, 75)
    assert world.told.done[0][:2] == ("s0.tar", "failed")
    assert "changed while it was read" in str(world.told.done[0][2])
    assert not (world.out / "s0.tar").exists()
    assert world.run().shards_done == 1


def test_with_one_slot_a_shard_is_published_before_the_next_begins(world: World) -> None:
    """So that a kill costs one shard of work."""
    there: list[int] = []

    def look(sample: Sample) -> Sample:
        there.append(len(list(world.out.glob(f"*{DONE_SUFFIX}"))))
        return sample

    assert world.run(look, slots=1).shards_done == 3
    assert there == [0, 0, 1, 1, 2, 2]


def test_an_old_record_is_gone_before_a_new_output_is_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are multiples of 10 KiB, so an old record may fit a new output of another content."""
    assert world.run(fail_k1_of_s1).exit_code == 3
    size = (world.out / "s1.tar").stat().st_size
    (world.out / "s1.tar").unlink()

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(DoneRecord, "publish", crash)
        with pytest.raises(Crash):
            world.run()
    assert (world.out / "s1.tar").stat().st_size == size
    assert not (world.out / ("s1.tar" + DONE_SUFFIX)).exists()
    assert world.run().shards_done == 1
    assert world.names() == sorted(f"s{n}.tar{end}" for n in range(3) for end in ("", DONE_SUFFIX))


def fail_some_again(sample: Sample) -> Sample | None:
    return None if sample["txt"] == b"2" else {**sample, "txt": b"again"}


def crash_after(step: int, patch: pytest.MonkeyPatch) -> None:
    """Crash once so many files were published or removed."""
    left = [step]

    def count(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            left[0] -= 1
            if not left[0]:
                raise Crash
            return result

        return counted

    patch.setattr(DoneRecord, "publish", count(DoneRecord.publish))
    patch.setattr(TarWriter, "close", count(TarWriter.close))
    patch.setattr("tarkit.runs.retryfailed.remove", count(remove))


@pytest.mark.parametrize(
    ("function", "step"), [(function, step) for function in (same, fail_some_again) for step in range(1, 7)]
)
def test_a_retry_that_was_killed_is_gone_on_with_by_the_same_command(
    function: Callable[[Sample], Sample | None], step: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed samples are neither put in a second time nor lost; whichever file was
    published last.
    """
    with TarWriter(world.inputs[1], encoder=False) as writer:
        for key in "01234":
            writer.write({"__key__": key, "txt": key.encode()})
    fails = lambda sample: None if sample["txt"] in (b"1", b"2", b"4") else sample  # noqa: E731
    assert world.run(fails).exit_code == 3
    # What it is without a kill.
    expected = World(world.out.parent / "twin") if (world.out.parent / "twin").mkdir() is None else world
    expected.inputs = world.inputs
    assert expected.run(fails).exit_code == 3
    code = expected.retry(function).exit_code
    with monkeypatch.context() as patch:
        crash_after(step, patch)
        try:
            world.retry(function)
        except Crash:
            assert step < 6
    assert world.retry(function).exit_code == code
    for name in {*expected.names(), *world.names()}:
        mine, theirs = ((each.out / name).read_bytes() for each in (world, expected))
        if name.endswith(DONE_SUFFIX):
            # Killed after its record, a retry is one that counts.
            mine, theirs = (json.dumps({**json.loads(each), "retried": None}).encode() for each in (mine, theirs))
        assert mine == theirs, name
    assert world.run(fails).shards_before == 3


@pytest.mark.parametrize("change", ["output gone", "failed of others"])
def test_a_retry_that_was_killed_and_whose_files_are_others_now(
    change: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.run(fail_k1_of_s1).exit_code == 3
    with monkeypatch.context() as patch:
        crash_after(2, patch)
        with pytest.raises(Crash):
            world.retry(lambda sample: None)
    if change == "output gone":
        (world.out / "s1.tar").unlink()
    else:
        with TarWriter(str(world.out / "s1.tar.failed.tar"), encoder=False) as writer:
            writer.write({"__key__": "k5", "txt": b"5"})
    totals = world.retry()
    assert totals.shards_failed == 1
    assert ("no such file" if change == "output gone" else "not those of the done record") in str(world.told.done[0][2])
    assert world.run().shards_done == 1, "without --retry-failed"


def test_an_interrupted_retry_of_an_earlier_version_names_the_input(world: World) -> None:
    assert world.run(fail_k1_of_s1).exit_code == 3
    path = world.out / f"s1.tar{DONE_SUFFIX}"
    document = {
        **json.loads(path.read_bytes()),
        "state": "failed",
        "error": "putting back was interrupted",
        "exit_code": 1,
    }
    path.write_text(json.dumps({key: value for key, value in document.items() if key != "pending"}))
    assert world.retry().exit_code == 1
    line = f"putting back was interrupted; run it anew, without --retry-failed: name {world.inputs[1]} in its place"
    assert world.told.done[0][2] == line


def test_failed_samples_without_a_done_record_are_not_passed_over(world: World) -> None:
    """The run was killed between output and record: a retry did not see the shard, and ended with
    0.
    """
    assert world.run(fail_k1_of_s1).exit_code == 3
    (world.out / f"s1.tar{DONE_SUFFIX}").unlink()
    totals = world.retry()
    assert (totals.shards_failed, totals.shards_before, totals.exit_code) == (1, 2, 1)
    assert "no done record" in str(world.told.done[0][2]) and "name its input in its place" in str(
        world.told.done[0][2]
    )
    RunRecord(InputSet.of_names(world.inputs), "work", "1").publish(str(world.out), 0)
    assert world.retry().exit_code == 1
    assert f"name {world.inputs[1]} in its place" in str(world.told.done[0][2])
    assert world.run().shards_done == 1


def test_an_output_that_can_not_be_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails, with its code; the others go on."""
    publish = Sinks.close

    def break_one(self: Sinks) -> None:
        if self.output is not None and self.output.name.endswith("s1.tar"):
            raise TemporaryStreamError("the store is tired")
        publish(self)

    with monkeypatch.context() as patch:
        patch.setattr(Sinks, "close", break_one)
        totals = world.run()
    assert (totals.shards_done, totals.shards_failed, totals.exit_code) == (2, 1, 75)
    assert totals.out == 4, "what is not published does not count"
    assert world.told.done[1] == ("s1.tar", "failed", "the store is tired")
    assert not [name for name in world.names() if name.startswith((".", "s1"))]
    assert world.run().shards_done == 1


def test_an_output_that_can_not_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write = TarWriter.write_all

    def break_one(self: TarWriter, samples: Any) -> int:
        if self.name.endswith("s1.tar"):
            raise StreamError("no space left on device", url=self.name)
        return write(self, samples)

    monkeypatch.setattr(TarWriter, "write_all", break_one)
    totals = world.run()
    assert (totals.shards_done, totals.shards_failed, totals.exit_code) == (2, 1, 1)
    record = read_record(f"{world.out}/s1.tar{DONE_SUFFIX}")
    assert record is not None and record.state == "failed" and "no space left" in str(record.error)


def test_a_folder_that_takes_nothing(world: World) -> None:
    """Neither the shards nor the records can be written, which is said."""
    world.out.rmdir()
    world.out.touch()
    totals = world.run()
    assert (totals.shards_failed, totals.exit_code) == (3, 1)
    assert all("; and the record cannot be written" in str(error) for _, _, error in world.told.done)


def test_a_store_that_can_not_be_asked_spoils_no_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.run().shards_done == 3
    before = (world.out / ("s1.tar" + DONE_SUFFIX)).read_bytes()

    def tired(url: str) -> Any:
        raise TemporaryStreamError("the store is tired")

    with monkeypatch.context() as patch:
        patch.setattr("tarkit.runs.shards.identify", tired)
        totals = world.run()
    assert (totals.shards_failed, totals.exit_code) == (3, 75)
    assert (world.out / ("s1.tar" + DONE_SUFFIX)).read_bytes() == before
    assert world.run().shards_before == 3


def test_an_empty_shard(world: World) -> None:
    with TarWriter(world.inputs[1], encoder=False):
        pass
    totals = world.run()
    assert (totals.shards_done, totals.exit_code) == (3, 0)
    assert list(read_samples(str(world.out / "s1.tar"))) == []


@pytest.mark.parametrize(
    ("codes", "expected"), [((1, 65), 65), ((66, 65), 65), ((65, 75), 75), ((1,), 1), ((66,), 66), ((), 0)]
)
def test_exit_codes_of_several_failures(codes: tuple[int, ...], expected: int) -> None:
    assert Counts(codes=set(codes)).exit_code == expected


def test_exit_code_of_samples_set_aside() -> None:
    assert Counts(shards_set_aside=1).exit_code == 3
    assert Counts(shards_set_aside=1, codes={1}).exit_code == 1


# Names


def test_plan_of_outputs(tmp_path: Path) -> None:
    urls = ["s3://b/x/a.tar", "https://h/b.tgz?token=1", str(tmp_path / "c.tar")]
    with pytest.raises(UsageError, match="replaced by its own output"):
        list(plan_outputs(["webhdfs://h/d/a.tar"], "webhdfs://h/d?user.name=me"))
    with pytest.raises(UsageError, match="replaced by its own output"):
        list(plan_outputs(["webhdfs://h/d/a.tar?user.name=me"], "webhdfs://h/d"))
    assert list(plan_outputs(urls, "gs://c/out/")) == [
        (urls[0], "gs://c/out/a.tar"),
        (urls[1], "gs://c/out/b.tgz"),
        (urls[2], "gs://c/out/c.tar"),
    ]


@pytest.mark.parametrize(
    ("urls", "message"),
    [
        (["a/x.tar", "b/x.tar"], "would both become x.tar"),
        (["s3://b/x.tar"], "replaced by its own output"),
        (["a/x.tar", "a/x.tar.failed.tar"], "x.tar.failed.tar is where failed samples of x.tar go"),
        (["a/x.tar.failed.tar", "a/x.tar"], "x.tar.failed.tar is where failed samples of x.tar go"),
        (["-"], "no file name"),
    ],
)
def test_plans_that_can_not_be(urls: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(plan_outputs(urls, "s3://b/"))


def test_local_inputs_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "0.tar").touch()
    (tmp_path / "list").write_text(f"{tmp_path}/0.tar\n# not this\nhttp://host/1.tar\n{tmp_path}/2.tar\n")
    found = partial(counted_shards, allow_pipe_in_lists=True, must_exist=True)
    found(["-", "http://host/{0..9}.tar", "s3://bucket/a.tar", "pipe:cat x"])
    found([str(tmp_path / "*.tar"), f"file://{tmp_path}/0.tar"])
    found([str(tmp_path / "1.tar")])  # alone, the reader says it better
    with pytest.raises(MissingInputError, match=r"^1 of 2 inputs are missing, for example .*/2\.tar$"):
        found([f"@{tmp_path}/list"])
    with pytest.raises(MissingInputError, match=r"^6 of 7 inputs are missing, for example (.*/[125]\.tar(, )?){3}$"):
        found([f"{tmp_path}/{{0..2}}.tar", f"file://{tmp_path}/5.tar", f"{tmp_path}/{{6..8}}.tar"])
    (tmp_path / "list").write_text("pipe:cat x\n")
    with pytest.raises(UsageError):
        found([f"@{tmp_path}/list"], allow_pipe_in_lists=False)
    found([f"@{tmp_path}/list"])


# Records


def test_record_there_and_back(tmp_path: Path) -> None:
    output = str(tmp_path / "a.tar")
    record = DoneRecord("done", {"url": "x", "size": 1, "tag": "t"}, "w", "1", failed=[("k", 3)], dropped_fields=2)
    record.publish(output)
    assert read_record(output + DONE_SUFFIX) == record
    assert read_record(output) is None


def test_fields_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / ("a.tar" + DONE_SUFFIX)
    DoneRecord("done", {}, "w", "1").publish(str(tmp_path / "a.tar"))
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "new": 1}))
    assert read_record(str(path)) == DoneRecord("done", {}, "w", "1")


def test_outputs_of_a_folder(world: World) -> None:
    with pytest.raises(MissingInputError, match="no done record"):
        outputs_of(str(world.out))
    with pytest.raises(MissingInputError):
        outputs_of(str(world.out / "gone"))
    world.run()
    assert outputs_of(f"{world.out}/") == [f"{world.out}/s{number}.tar" for number in range(3)]


def test_a_record_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b'{"format": "tarkit-done-1", "state": "done", "input": {}}')
    with pytest.raises(DataError, match="not a done record"):
        read_record(str(tmp_path / "x"))


def test_records_are_read_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    whole = progress_of(str(world.out), world.inputs)
    monkeypatch.setattr("tarkit.runs.status._AHEAD", 2)
    assert progress_of(str(world.out), world.inputs) == whole
    assert whole.done == ["s0.tar", "s1.tar", "s2.tar"]


def test_an_input_of_which_only_the_size_is_known_may_have_changed(world: World) -> None:
    """As of an http server that sends neither ETag nor Last-Modified."""
    world.run()
    output = f"{world.out}/s0.tar"
    record = read_record(f"{output}{DONE_SUFFIX}")
    assert record is not None
    record.input["tag"] = None
    why = record.why_stale(lambda: None, source=Identity(record.input["size"], None), url=world.inputs[0])
    assert why == "its store reports neither version nor time of the input, so a change could not be seen"


@pytest.mark.parametrize(
    ("recorded", "url", "same"),
    [
        ("in/a.tar", "in/a.tar", True), ("./in/a.tar", "in//a.tar", True), ("in/a.tar", "/data/in/a.tar", True),
        ("../in/a.tar", "/data/in/a.tar", True), ("/data/in/a.tar", "a.tar", True), ("in/a.tar", "../in/a.tar", True),
        ("file:///data/a.tar", "/data/a.tar", True), ("/data/x/../a.tar", "/data/a.tar", True),
        ("s3://b/a.tar", "s3://b/a.tar", True), ("https://h/a.tar?sig=1", "https://h/a.tar?sig=2", True),
        ("in/a.tar", "out/a.tar", False), ("n/a.tar", "/data/in/a.tar", False), ("/in/a.tar", "/data/in/a.tar", False),
        ("s3://b/a.tar", "s3://c/a.tar", False), ("s3://b/a.tar", "/b/a.tar", False), ("a.tar", "s3://b/a.tar", False),
        ("file://host/a.tar", "/data/a.tar", False), ("a\0.tar", "/data/a.tar", False),
    ],
)  # fmt: skip
def test_which_input_a_record_is_of(recorded: str, url: str, same: bool) -> None:
    found = DoneRecord("done", {"url": display_name(recorded)}, "w", "0").other_input(url)
    assert (found is None) == same


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "DONE"}, {"input": None}, {"output": {"name": "s0.tar"}}, {"output": {"size": "10240"}},
        {"samples": [1]}, {"samples": {"in": "x"}}, {"exit_code": "3"}, {"error": ["x"]}, {"damage": None},
        {"files": "x"}, {"files": [{"path": 5}]}, {"pending": []}, {"pending": {}}, {"pending": {"again": [5]}},
    ],
)  # fmt: skip
def test_one_record_of_wrong_values_hides_no_other(world: World, wrong: dict[str, Any]) -> None:
    world.run()
    path = world.out / f"s0.tar{DONE_SUFFIX}"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **wrong}))
    found = progress_of(str(world.out))
    assert (found.done, list(found.failed)) == (["s1.tar", "s2.tar"], ["s0.tar"])
    assert (totals := world.run()).exit_code == 65
    assert (totals.shards_before, totals.shards_failed) == (2, 1)


def test_only_local_shards_are_looked_at_together() -> None:
    local = [(f"in/{number}.tar", f"out/{number}.tar") for number in range(6)]
    remote = [("s3://b/6.tar", "out/6.tar"), ("in/7.tar", "s3://b/7.tar")]
    groups = list(_together([*local, *remote, ("file:///in/8.tar", "out/8.tar")]))
    assert list(map(len, groups)) == [4, 2, 1, 1, 1]
    assert [pair for group in groups for pair in group] == [*local, *remote, ("file:///in/8.tar", "out/8.tar")]
