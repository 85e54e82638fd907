"""Run files and outputs of earlier runs are used for the same exchange only, or refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exchangeruns import exchange, files_of, keys_of, left_in, numbered_inputs, shards_of, write_shard

from tarkit.errors import TarkitError, UsageError
from tarkit.exchange import plan as workplan
from tarkit.exchange import workfolder
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.gather import Gather
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.plan import agreed_plan, make_plan
from tarkit.exchange.scatter import Scatter
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.stagefiles import RUN_FILES


class StoppedError(TarkitError):
    """The run is stopped here."""


def stop(*_: object, **__: object) -> Any:
    raise StoppedError("stopped")


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Inputs of an exchange that was scattered, and stopped before its second output."""
    urls = numbered_inputs(tmp_path / "in", [6, 5, 4])
    published: list[int] = []

    def publish(self: GatheredOutput, real: Callable[..., Any] = GatheredOutput._publish) -> Any:
        published.append(1)
        return real(self) if len(published) == 1 else stop()

    with monkeypatch.context() as patch:
        patch.setattr(GatheredOutput, "_publish", publish)
        with pytest.raises(StoppedError):
            exchange(urls, tmp_path / "out", slices=2).run()
    assert [path.name for path in shards_of(tmp_path / "out")] == ["shard-000000.tar"]
    return urls


def test_it_is_resumed_where_it_was_stopped(begun: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange(begun, tmp_path / "right").run()
    monkeypatch.setattr(Scatter, "run", stop)
    before = os.stat(tmp_path / "out" / "shard-000000.tar")
    result = exchange(begun, tmp_path / "out").run()
    assert (result.outputs, result.done, result.done_before, result.counts.read) == (3, 2, 1, 15)
    assert os.stat(tmp_path / "out" / "shard-000000.tar").st_ino == before.st_ino
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("step", "settings", "shown"),
    [
        (Shuffle(1), {}, r"\(seed: 0, now 1\)"),
        (Shuffle(0), {"shards": 4}, r"\(shards: 3, now 4\)"),
        (Shuffle(0), {"maxcount": 5}, r"\(shards: 3, now None\)"),
        (Shuffle(0), {"rekey": True}, r"\(rekey: False, now True\)"),
        (Shuffle(0), {"index": False}, r"\(index: True, now False\)"),
    ],
)
def test_another_request_is_refused(
    begun: list[str], tmp_path: Path, step: Shuffle, settings: dict[str, Any], shown: str
) -> None:
    before = files_of(tmp_path / "out")
    with pytest.raises(
        UsageError, match=rf"_exchange has the run files of another exchange {shown}.*--force"
    ) as raised:
        exchange(begun, tmp_path / "out", step, **settings).run()
    assert raised.value.exit_code == 2 and "\n" not in str(raised.value)
    assert files_of(tmp_path / "out") == before
    exchange(begun, tmp_path / "right", step, **settings).run()
    exchange(begun, tmp_path / "out", step, force=True, **settings).run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")


def test_other_inputs_are_refused(begun: list[str], tmp_path: Path) -> None:
    for urls in (begun[:2], begun[::-1], [*begun, *numbered_inputs(tmp_path / "more", [1])]):
        with pytest.raises(UsageError, match="has the run files of 3 other inputs"):
            exchange(urls, tmp_path / "out").run()


@pytest.mark.parametrize("touch", ["mtime", "content"])
def test_a_changed_input_is_refused(begun: list[str], tmp_path: Path, touch: str) -> None:
    path = Path(begun[1])
    if touch == "mtime":
        os.utime(path, ns=(1, os.stat(path).st_mtime_ns + 1_000_000_000))
    else:
        write_shard(path, [(f"other{number}", {"cls": b""}) for number in range(5)])
    with pytest.raises(UsageError, match=r"in-001\.tar was changed since .* and shards were made of it.*--force"):
        exchange(begun, tmp_path / "out").run()
    exchange(begun, tmp_path / "out", force=True).run()
    assert len(keys_of(tmp_path / "out")) == 15
    assert left_in(tmp_path) == []


def scattered_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the run files that are made from now on."""
    names: list[str] = []

    def run(self: Scatter, real: Callable[..., Any] = Scatter.run) -> Any:
        names.append(self._name)
        return real(self)

    monkeypatch.setattr(Scatter, "run", run)
    return names


def test_only_the_slice_of_a_replaced_input_is_scattered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4, 4])
    good = Path(urls[2]).read_bytes()
    Path(urls[2]).write_bytes(good[:3000])
    with pytest.raises(TarkitError, match=r"in-002\.tar.*After it is fixed, run the same command again"):
        exchange(urls, tmp_path / "out", slices=4).run()
    Path(urls[2]).write_bytes(good)
    again = scattered_again(monkeypatch)
    exchange(urls, tmp_path / "out").run()
    assert again == ["run-000002.tar"]
    assert [each.getMessage() for each in caplog.records] == [
        f"1 changed input since this exchange was begun, such as {urls[2]}: read again"
    ]
    exchange(urls, tmp_path / "right").run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")
    assert left_in(tmp_path) == []


def test_a_run_file_of_a_replaced_input_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are those of a part of the new inputs, if the earlier input comes back."""
    urls = numbered_inputs(tmp_path / "in", [4, 4, 4])
    good = Path(urls[1]).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Exchange, "_gather_all", stop)
        with pytest.raises(StoppedError):
            exchange(urls, tmp_path / "out", slices=3).run()
        write_shard(Path(urls[1]), [("other", {"cls": b"1"})])
        with pytest.raises(StoppedError):
            exchange(urls, tmp_path / "out").run()
    Path(urls[1]).write_bytes(good)
    again = scattered_again(monkeypatch)
    exchange(urls, tmp_path / "out").run()
    assert again == ["run-000001.tar"]
    exchange(urls, tmp_path / "right").run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")


def test_force_after_a_changed_input_makes_its_slice_and_all_outputs_again(
    begun: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shard(Path(begun[2]), [("other", {"cls": b""})])
    again = scattered_again(monkeypatch)
    result = exchange(begun, tmp_path / "out", force=True).run()
    assert (again, result.done, result.done_before) == (["run-000001.tar"], 3, 0)
    exchange(begun, tmp_path / "right").run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")
    assert len([*(tmp_path / "out").glob(".tarkit-run-*")]) == 1


def test_a_finished_run_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    exchange(urls, tmp_path / "out").run()
    before = {name: os.stat(tmp_path / "out" / name).st_mtime_ns for name in os.listdir(tmp_path / "out")}
    monkeypatch.setattr(Scatter, "run", stop)
    monkeypatch.setattr(Gather, "run", stop)
    result = exchange(urls, tmp_path / "out").run()
    assert (result.done, result.done_before, result.counts.read) == (0, 3, 7)
    assert {name: os.stat(tmp_path / "out" / name).st_mtime_ns for name in os.listdir(tmp_path / "out")} == before


def test_a_finished_run_of_another_seed_is_not_replaced(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [9, 9])
    exchange(urls, tmp_path / "out", shards=5).run()
    before = files_of(tmp_path / "out")
    with pytest.raises(UsageError, match=r"has 5 shards of another run, such as shard-000000\.tar.*--force"):
        exchange(urls, tmp_path / "out", Shuffle(1), shards=2).run()
    assert files_of(tmp_path / "out") == before


def test_force_removes_the_outputs_that_are_not_replaced(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [9, 9])
    exchange(urls, tmp_path / "out", shards=5).run()
    exchange(urls, tmp_path / "out", Shuffle(1), shards=2, force=True).run()
    exchange(urls, tmp_path / "right", Shuffle(1), shards=2).run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")
    assert len([*(tmp_path / "out").glob(".tarkit-run-*")]) == 1


def test_force_keeps_what_is_not_of_an_exchange(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [4])
    exchange(urls, tmp_path / "out", shards=3).run()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    (tmp_path / "out" / "shard-x.tar").write_text("mine, too")
    exchange(urls, tmp_path / "out", Shuffle(1), shards=1, force=True).run()
    assert (tmp_path / "out" / "notes.txt").exists() and (tmp_path / "out" / "shard-x.tar").exists()


def test_a_forced_run_that_was_stopped_is_not_resumed_beside_old_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = numbered_inputs(tmp_path / "in", [9, 9])
    exchange(urls, tmp_path / "out", shards=5).run()
    for method in (Scatter, Gather):
        with monkeypatch.context() as patch:
            patch.setattr(method, "run", stop)
            with pytest.raises(StoppedError):
                exchange(urls, tmp_path / "out", Shuffle(1), shards=2, force=True).run()
        with pytest.raises(UsageError, match="of another run"):
            exchange(urls, tmp_path / "out", Shuffle(1), shards=2).run()
    exchange(urls, tmp_path / "out", Shuffle(1), shards=2, force=True).run()
    assert len(shards_of(tmp_path / "out")) == 2 and left_in(tmp_path) == []


def test_records_of_a_run_whose_shards_were_removed_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = numbered_inputs(tmp_path / "in", [9, 9])
    exchange(urls, tmp_path / "out").run()
    for path in (tmp_path / "out").glob("[!.]*"):
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Gather, "run", stop)
        with pytest.raises(StoppedError):
            exchange(urls, tmp_path / "out", Shuffle(1)).run()
    assert exchange(urls, tmp_path / "out", Shuffle(1)).run().done == 3


def test_one_output_that_was_removed_is_made_again(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [9, 9])
    exchange(urls, tmp_path / "out").run()
    before = files_of(tmp_path / "out")
    (tmp_path / "out" / "shard-000001.tar").unlink()
    result = exchange(urls, tmp_path / "out").run()
    assert (result.done, result.done_before) == (1, 2)
    assert files_of(tmp_path / "out") == before


def test_stopped_in_the_cleanup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stops, the next run is done at once, and removes the rest."""
    urls = numbered_inputs(tmp_path / "in", [3, 4, 5])
    exchange(urls, tmp_path / "right", slices=3).run()
    removed = 0
    for limit in range(9):
        out = tmp_path / str(limit)
        calls: list[str] = []

        def remove(url: str, calls: list[str] = calls, limit: int = limit, real: Any = workfolder.remove) -> Any:
            if len(calls) == limit:
                stop()
            calls.append(url)
            return real(url)

        with monkeypatch.context() as patch:
            patch.setattr(workfolder, "remove", remove)
            try:
                exchange(urls, out, slices=3).run()
            except StoppedError:
                removed = limit + 1
        with monkeypatch.context() as patch:
            patch.setattr(Scatter, "run", stop)
            result = exchange(urls, out).run()
        assert (result.done, result.done_before) == (0, 3)
        assert files_of(out) == files_of(tmp_path / "right")
        assert left_in(out) == []
    assert removed == 8, "run record, three run files with records, the plan"


def test_of_two_plans_at_once_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    folder = str(tmp_path / "work")
    request = {"step": "x"}

    first, second = (make_plan(request, urls, slices=slices, mem=1 << 20) for slices in (1, 2))
    real = workplan.read_plan

    def read(folder: str, calls: list[str] = []) -> Any:  # noqa: B006 - the calls of this test
        calls.append(folder)
        if len(calls) > 1:
            return real(folder)
        # Another process is faster.
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "plan.json").write_bytes(first.encode())
        return None

    monkeypatch.setattr(workplan, "read_plan", read)
    assert agreed_plan(folder, request, urls, second).slices == 1
    assert first.id == second.id and RUN_FILES.id(first, 0) != RUN_FILES.id(second, 0)


def test_a_run_beside_another_one_that_finishes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the run files gone: an error of one line, or the same result; never other bytes."""
    urls = numbered_inputs(tmp_path / "in", [3, 4, 5])
    exchange(urls, tmp_path / "right").run()
    for method in ("_scatter_all", "_gather_all", "_check_keys", "_gather"):
        out = tmp_path / method

        real = getattr(Exchange, method)

        def beside(self: Exchange, *given: Any, out: Path = out, real: Any = real) -> Any:
            monkeypatch.undo()
            assert exchange(urls, out).run().outputs == 3
            return real(self, *given)

        monkeypatch.setattr(Exchange, method, beside)
        try:
            exchange(urls, out, slices=2).run()
        except TarkitError as error:
            assert "\n" not in str(error)
        found = files_of(out)
        assert {name: data for name, data in found.items() if not name.startswith("_exchange")} == files_of(
            tmp_path / "right"
        )
        assert exchange(urls, out).run().done_before == 3
        assert left_in(out) == []


def test_run_files_without_a_plan_are_removed_by_the_next_run(tmp_path: Path) -> None:
    """As the slower one of two runs leaves them, if it is killed."""
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    exchange(urls, tmp_path / "out").run()
    before = files_of(tmp_path / "out")
    work = tmp_path / "out" / "_exchange"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exchange, "_gather_all", stop)
        with pytest.raises(StoppedError):
            exchange(urls, tmp_path / "other", work=work, slices=2).run()
    for path in work.iterdir():
        if path.name not in ("run-000001.tar", "run-000001.tar.done.json"):
            path.unlink()
    assert len(os.listdir(work)) == 2
    assert exchange(urls, tmp_path / "out").run().done_before == 3
    assert files_of(tmp_path / "out") == before and not work.exists()


def test_counts_that_do_not_add_up_publish_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Losing(Shuffle):
        def write(self, rows: Any, output: Any) -> None:
            for number, row in enumerate(rows):
                if number != 1:
                    output.copy([row])

    urls = numbered_inputs(tmp_path / "in", [3, 4])
    with pytest.raises(TarkitError, match="the counts do not add up"):
        exchange(urls, tmp_path / "out", Losing()).run()
    assert shards_of(tmp_path / "out") == []


def test_a_step_that_stops_early_publishes_nothing(tmp_path: Path) -> None:
    class Stopping(Shuffle):
        def write(self, rows: Any, output: Any) -> None:
            output.copy([next(rows)])

    urls = numbered_inputs(tmp_path / "in", [3, 4])
    with pytest.raises(TarkitError, match="the counts do not add up"):
        exchange(urls, tmp_path / "out", Stopping()).run()
    assert shards_of(tmp_path / "out") == []


def test_records_name_what_they_are_of(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    exchange(urls, tmp_path / "out", shards=2).run()
    record = json.loads((tmp_path / "out" / "shard-000001.tar.done.json").read_text())
    path = tmp_path / "out" / "shard-000001.tar"
    assert record["output"]["size"] == path.stat().st_size
    assert record["samples"]["in"] == record["samples"]["out"] == 3


def test_the_work_folder_of_the_user_stays_with_what_is_not_of_the_run(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    work = tmp_path / "work"
    work.mkdir()
    (work / "mine.tar").write_bytes(b"x")
    exchange(urls, tmp_path / "out", work=work).run()
    assert os.listdir(work) == ["mine.tar"]
    assert workplan.WORK not in os.listdir(tmp_path / "out")


@pytest.mark.parametrize("name", ["run-000000.tar", "run-000007.tar", "match-000000.tar", "run-000000.tar.done.json"])
def test_files_of_others_in_the_work_folder_are_not_replaced(tmp_path: Path, name: str) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    work = tmp_path / "work"
    work.mkdir()
    mine = Path(urls[0]).read_bytes() if name.endswith(".tar") else b'{"input": {"url": "run-000000.tar", "size": 1}}'
    (work / name).write_bytes(mine)
    with pytest.raises(UsageError, match=f"has a file {name} that is not of an exchange"):
        exchange(urls, tmp_path / "out", work=work).run()
    # Nor are they removed by a run that has nothing to do.
    exchange(urls, tmp_path / "out").run()
    assert exchange(urls, tmp_path / "out", work=work).run().done_before == 3
    assert files_of(work) == {name: mine}


def test_the_record_of_another_run_in_the_work_folder_stays(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    exchange(urls, tmp_path / "first").run()
    before = sorted(os.listdir(tmp_path / "first"))
    exchange(urls, tmp_path / "out", Shuffle(1), work=tmp_path / "first").run()
    assert sorted(os.listdir(tmp_path / "first")) == before
    assert exchange(urls, tmp_path / "first").run().done_before == 3


def test_the_work_folder_is_not_that_of_the_outputs(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(UsageError, match=r"--work is .*, the folder of the outputs"):
        exchange(urls, tmp_path / "out", work=tmp_path / "link").run()


def test_very_little_memory(tmp_path: Path) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    exchange(urls, tmp_path / "right").run()
    exchange(urls, tmp_path / "out", mem=1).run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")


@pytest.mark.parametrize("method", ["_scatter_all", "_gather_all", "_gathered"])
def test_another_run_in_the_same_folder_at_once_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """With a work folder of its own; else shards of both would be there, and both runs succeed."""
    urls = numbered_inputs(tmp_path / "in", [3, 4, 5])
    out, real = tmp_path / "out", getattr(Exchange, method)

    def beside(self: Exchange, *given: Any) -> Any:
        monkeypatch.undo()
        assert exchange(urls, out, Shuffle(1), work=tmp_path / "second", shards=2).run().outputs == 2
        return real(self, *given)

    monkeypatch.setattr(Exchange, method, beside)
    with pytest.raises(TarkitError, match=r"shards of another run|another run has written into this folder"):
        exchange(urls, out, work=tmp_path / "first").run()


def test_another_run_that_begins_between_two_outputs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4, 5])
    out, real = tmp_path / "out", GatheredOutput._publish

    def beside(self: GatheredOutput) -> Any:
        found = real(self)
        monkeypatch.undo()
        exchange(urls, out, Shuffle(1), work=tmp_path / "second", force=True).run()
        return found

    monkeypatch.setattr(GatheredOutput, "_publish", beside)
    with pytest.raises(TarkitError, match="another run has written into this folder at the same time"):
        exchange(urls, out, work=tmp_path / "first").run()
    # Run again with --force, all outputs are of one run.
    exchange(urls, tmp_path / "right").run()
    exchange(urls, out, force=True).run()
    assert files_of(out) == files_of(tmp_path / "right")


def test_outputs_of_another_source_date_epoch_are_not_taken_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = numbered_inputs(tmp_path / "in", [3, 4])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000")
    exchange(urls, tmp_path / "out", rekey=True).run()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "2000")
    with pytest.raises(UsageError, match="has 3 shards of another run"):
        exchange(urls, tmp_path / "out", rekey=True).run()
    assert exchange(urls, tmp_path / "out", rekey=True, mtime=1000.0).run().done_before == 3


def test_files_that_were_copied_over_others_with_their_records_are_made_again(begun: list[str], tmp_path: Path) -> None:
    """Else samples would come twice, others would be lost, and the counts would add up."""
    exchange(begun, tmp_path / "right").run()
    out = tmp_path / "out"
    for first, second in (
        ("_exchange/run-000001.tar", "_exchange/run-000000.tar"),
        ("shard-000000.tar", "shard-000001.tar"),
    ):
        for end in ("", ".done.json"):
            (out / (second + end)).write_bytes((out / (first + end)).read_bytes())
    exchange(begun, out, force=True).run()
    assert files_of(out) == files_of(tmp_path / "right")
