"""What a run is to make is written when it begins, so that what is missing is
known after a kill.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import TarkitError
from tarkit.formats.datafolder import data_files
from tarkit.formats.tally import Tally
from tarkit.runs.engine import Reporter
from tarkit.runs.runrecord import RunRecord, is_run_record, read_run_record
from tarkit.runs.status import Progress, progress_of
from tarkit.specs.inputset import InputSet
from tarkit.store.entries import entries
from tarkit.store.temporary import is_temporary_name

Make = Callable[..., None]


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Runs a work over some of ten shards, and is killed when it has made ``stop`` of them."""
    monkeypatch.chdir(tmp_path)
    for folder in ("in", "other"):
        os.mkdir(folder)
        for number in range(10):
            with tarkit.TarWriter(f"{folder}/s{number}.tar", encoder=False) as writer:
                writer.write({"__key__": "k", "txt": b"%d" % number})

    class StopAt(Reporter):
        def __init__(self, stop: int | None) -> None:
            self.left = stop

        def shard_done(self, *_: Any) -> None:
            self.left = None if self.left is None else self.left - 1
            if self.left == 0:
                raise Killed

    def call(
        inputs: str = "in/s{0..9}.tar", command: str | None = "true", stop: int | None = None, **options: Any
    ) -> None:
        try:
            tarkit.process(inputs, outdir="out", command=command, reporter=StopAt(stop), **options)
        except Killed:
            assert stop is not None
        # One that is begun in the same moment as another one is not the last.
        for path in Path("out").glob(".tarkit-run-*"):
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))

    return call


def found(**options: Any) -> Progress:
    return progress_of("out", of_runs=True, compare_files=True, **options)


def names(numbers: range) -> list[str]:
    return [f"s{number}.tar" for number in numbers]


def records() -> list[str]:
    return sorted(path.name for path in Path("out").iterdir() if is_run_record(path.name))


def test_what_a_killed_run_has_not_made_is_missing(make: Make) -> None:
    make(stop=3)
    progress = found()
    assert set(progress.done) | set(progress.missing) == set(names(range(10)))
    assert len(progress.done) in (3, 4) and progress.unfinished
    (run,) = progress.runs
    assert (run.asked, run.missing) == (10, len(progress.missing))
    make()
    assert found().done == names(range(10)) and not found().unfinished
    assert len(records()) == 1, "the same run has the same record"


def test_killed_before_the_first_shard(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr("tarkit.runs.shards.ShardRun.run", kill)
    make(stop=0)
    assert found().missing == names(range(10)) and found().unfinished


def test_a_wrong_option_leaves_no_record(make: Make) -> None:
    with pytest.raises(TarkitError):
        make(setup="f")
    assert not os.path.exists("out")


def test_all_slices_write_the_same_record(make: Make) -> None:
    make(slice="0/3")
    (first,) = records()
    assert found().missing == names(range(3, 10))
    for index in (1, 2):
        make(slice=f"{index}/3")
    assert records() == [first] and not found().unfinished
    assert read_run_record(next(each for each in entries("out") if each.name == first)).slices == 3


def test_slices_that_begin_at_once_do_not_all_write(tmp_path: Path) -> None:
    record = RunRecord(InputSet(1, ("a",)), "w", "1", slices=3)
    path = tmp_path / record.name
    record.publish(str(tmp_path), now=0)
    before = path.stat()
    record.publish(str(tmp_path), now=before.st_mtime + 59)
    assert path.stat().st_ino == before.st_ino
    record.publish(str(tmp_path), now=before.st_mtime + 61)
    assert path.stat().st_ino != before.st_ino, "a later run over the same is the last one then"
    whole = dataclasses.replace(record, slices=None)
    whole.publish(str(tmp_path), now=0)
    before = (tmp_path / whole.name).stat()
    whole.publish(str(tmp_path), now=before.st_mtime)
    assert (tmp_path / whole.name).stat().st_ino != before.st_ino


def test_slices_whose_files_differ_write_one_record_with_those_of_the_last_one(make: Make) -> None:
    """A command that writes to a path in it had a record, with all inputs, for each slice."""
    Path("log").write_text("")
    command = f"cp sample.txt {Path('log').absolute()}"
    for index in range(3):
        Path("log").write_text(f"{index}")
        make(command=command, slice=f"{index}/3")
    (name,) = records()
    (entry,) = (each for each in entries("out") if each.name == name)
    assert read_run_record(entry).files[0]["sha256"] == hashlib.sha256(b"2").hexdigest()
    assert found().runs[0].missing == 0


def test_several_runs_share_a_folder(make: Make) -> None:
    make("in/s{0..3}.tar")
    make("in/s{4..7}.tar", stop=1)
    progress = found()
    assert [(run.asked, run.missing > 0) for run in progress.runs] == [(4, False), (4, True)]
    assert set(progress.missing) < set(names(range(5, 8))) | {"s4.tar"} and progress.missing
    make("in/s{4..7}.tar")
    assert not found().unfinished and len(records()) == 2


def test_a_run_that_is_not_wanted_any_more_is_forgotten_with_its_record(make: Make) -> None:
    make(stop=2)
    make("in/s{0..4}.tar")
    progress = found()
    assert progress.missing and [run.missing for run in progress.runs][1] == 0
    os.unlink(f"out/{progress.runs[0].record}")
    assert not found().unfinished


def test_shards_of_an_earlier_work_are_not_those_that_the_last_run_is_to_make(make: Make) -> None:
    make()
    make(command="cat sample.txt", stop=2)
    stale = found().stale
    assert len(stale) in (7, 8) and set(stale.values()) == {"it was made by another command"}
    make(command="cat sample.txt")
    assert not found().unfinished
    make(stop=1)
    assert len(found().stale) in (8, 9), "of two runs over the same shards, the last one counts"


def test_shards_of_another_folder_of_the_same_names(make: Make) -> None:
    make()
    make("other/s{0..9}.tar", stop=2)
    assert set(found().stale.values()) <= {f"it was made of in/{name}" for name in names(range(10))}
    assert len(found().stale) in (7, 8)


def test_another_version_or_other_files_than_the_last_run_asks_for(make: Make) -> None:
    make()
    path = Path("out", *records())
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "tarkit": "9"}))
    assert set(found().stale.values()) == {f"it was made by tarkit {document['tarkit']}"}
    path.unlink()
    Path("s.sh").write_text("true")
    command = f"bash {Path('s.sh').absolute()}"
    make(command=command)
    Path("s.sh").write_text("cat sample.txt")
    assert set(found().stale.values()) == {f"{Path('s.sh').absolute()} changed"}, "since the run"
    make(command=command, stop=2)
    Path("s.sh").unlink()
    assert len(found().stale) in (7, 8), "since the last run began; the file is not needed to know that"
    reason = f"{Path('s.sh').absolute()} is not on this machine"
    assert found().not_compared == {reason: len(found().done)}


def test_files_of_records_of_earlier_versions_and_of_other_machines(make: Make) -> None:
    Path("s.sh").write_text("true")
    make("in/s{0..1}.tar", command=f"bash {Path('s.sh').absolute()}")
    assert not found().not_compared
    elsewhere = progress_of("out").not_compared
    assert elsewhere == {f"{Path('s.sh').absolute()} is not on this machine": 2}
    path = Path("out/s0.tar.done.json")
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_bytes()).items() if k != "files"}))
    assert found().not_compared == {"its record is of a version that noted none": 1}
    assert not found().stale


def test_a_callable_without_a_name_has_one_record_and_a_killed_call_is_seen(make: Make) -> None:
    for _ in range(2):
        make(command=None, function=lambda sample: sample)
    assert len(records()) == 1 and not found().unfinished
    make(command=None, function=lambda sample: sample, stop=2)
    assert len(records()) == 1 and len(found().stale) in (7, 8)
    for index in range(2):
        make(command=None, function=lambda sample: sample, slice=f"{index}/2")
    assert len(records()) == 2 and not found().unfinished, "each slice has a fingerprint of its own"


def test_inputs_that_are_named_count_instead(make: Make) -> None:
    make(stop=2)
    made = found().done
    assert not found(inputs=[f"in/{name}" for name in made]).unfinished
    assert found(inputs=["in/s0.tar", "in/new.tar"]).missing == ["new.tar"]


def test_more_names_than_are_written_down(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.specs.inputset._MOST_TEXT", 5)
    make("in/*.tar", stop=2)
    progress = found()
    assert not progress.missing and progress.unfinished
    (run,) = progress.runs
    assert run.missing == 10 - len(progress.done)
    make("in/*.tar")
    assert not found().unfinished


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": "tarkit-run-0"}'])
def test_a_record_that_is_damaged_or_of_another_version(content: bytes, make: Make) -> None:
    make()
    Path("out", *records()).write_bytes(content)
    (problem,) = found().failed.values()
    assert "not the record of a run" in problem and "remove it" in problem
    assert not found().runs and found().done == names(range(10))


def test_a_list_that_cannot_be_read_any_more(tmp_path: Path) -> None:
    RunRecord(InputSet(5, None, f"{tmp_path}/gone", "00"), "w", "1").publish(str(tmp_path), 0)
    progress = progress_of(str(tmp_path), of_runs=True)
    (problem,) = progress.failed.values()
    assert "what this run is to make is not known" in problem and progress.runs[0].missing == 5


def test_the_name_is_no_shard_for_anyone(make: Make) -> None:
    make()
    (name,) = records()
    assert name.startswith(".tarkit-run-") and not is_temporary_name(name)
    assert not list(Path("out").glob("[!.]*run*")) and not is_run_record(f"x{name}")
    tally = Tally()
    assert [url.rpartition("/")[2] for url in data_files("out", tally)] == names(range(10))
    assert tally.skipped == {"hidden": 1, "done-record": 10}
