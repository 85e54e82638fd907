"""Shards of rows whose files are fetched: failed rows, the same call again, and kills."""

from __future__ import annotations

import csv
import random
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpserver import Fault, FaultServer, random_fault
from waiting import wait_for

from tarkit.errors import StreamError, UsageError
from tarkit.runs.donerecord import DoneRecord
from tarkit.samples.read import read_samples
from tarkit.specs.manifest import read_manifest
from tarkit.steps.download import DownloadOptions
from tarkit.steps.rowshards import RowsResult, create_from_rows, failed_table_name
from tarkit.steps.tablerows import Wanted
from tarkit.store.retry import Retry

JPEG = b"\xff\xd8\xff" + bytes(500)
GONE = Fault("status", status=404)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        yield running


def put(server: FaultServer, count: int) -> list[Wanted]:
    return [
        Wanted(
            {"__key__": f"{number:04}", "cls": b"%d" % (number % 7)},
            [("jpg", server.put(f"{number}.jpg", JPEG + b"%d" % number))],
        )
        for number in range(count)
    ]


def create(rows: list[Wanted], output: Path | str, *, tries: int = 6, **more: Any) -> RowsResult:
    options = DownloadOptions(
        tries=tries, timeout=5, allow_private=True, ignore_robots=True, retry=Retry(base=0.001, cap=0.002, deadline=20)
    )
    return create_from_rows(rows, str(output), options, **{"maxcount": 10, **more})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def keys(*shards: Path) -> list[str]:
    return [sample["__key__"] for sample in read_samples(map(str, shards), split=True)]


@pytest.fixture
def whole(server: FaultServer, tmp_path: Path) -> tuple[list[Wanted], dict[str, bytes]]:
    """The rows of 35 objects, and the files of a run in which nothing failed."""
    rows = put(server, 35)
    folder = tmp_path / "whole"
    folder.mkdir()
    result = create(rows, folder / "a-%02d.tar")
    assert (result.total, len(result.shards), result.failed, result.table) == (35, 4, {}, None)
    server.requests.clear()
    return rows, contents(folder)


def test_shards_are_those_of_gnu_tar_and_have_the_rows(server: FaultServer, tmp_path: Path) -> None:
    rows = put(server, 25)
    create(rows, tmp_path / "a-%02d.tar", index=True)
    found = {}
    for path in sorted(tmp_path.glob("*.tar")):
        with tarfile.open(path) as archive:
            found.update({member.name: archive.extractfile(member).read() for member in archive})  # type: ignore[union-attr]
    assert found == {
        f"{row.sample['__key__']}.{field}": content
        for number, row in enumerate(rows)
        for field, content in {"cls": row.sample["cls"], "jpg": JPEG + b"%d" % number}.items()
    }
    assert sorted(path.name for path in tmp_path.glob("*.idx")) == ["a-00.idx", "a-01.idx", "a-02.idx"]


def test_failed_rows_are_listed_and_the_same_call_fetches_only_those(
    server: FaultServer, tmp_path: Path, whole: tuple[list[Wanted], dict[str, bytes]]
) -> None:
    rows, expected = whole
    gone = {0, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 34}
    for number in gone:
        server.objects[f"{number}.jpg"].faults.append(GONE)
    server.objects["34.jpg"].faults.append(GONE)
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "a-%02d.tar"
    first = create(rows, output)
    assert (first.total, first.failed, len(first.shards)) == (22, {"http-404": 13}, 4)
    # The second has no sample, and is there all the same: trainers stop at a gap.
    assert sorted(path.name for path in output.parent.glob("*.tar")) == [f"a-0{number}.tar" for number in range(4)]
    table = list(csv.DictReader((output.parent / "a-failed.csv").read_text().splitlines()))
    assert [(row["key"], row["field"], row["reason"], row["attempts"]) for row in table] == [
        (f"{number:04}", "jpg", "http-404", "1") for number in sorted(gone)
    ]
    assert table[0]["url"] == rows[0].sources[0][1]
    server.requests.clear()
    published: list[str] = []
    second = create(rows, output, published=published.append)
    assert sorted(path for path, _ in server.requests) == sorted(f"{number}.jpg" for number in gone)
    assert (second.total, second.failed, second.waiting) == (34, {"http-404": 1}, 13)
    # The shard of which no row came is left as it is.
    assert published == second.published == [str(output) % number for number in (0, 1)]
    assert [row["key"] for row in csv.DictReader((output.parent / "a-failed.csv").read_text().splitlines())] == ["0034"]
    third = create(rows, output)
    assert (third.total, third.waiting, third.published) == (35, 1, [str(output) % 3])
    assert contents(output.parent) == expected
    server.requests.clear()
    assert create(rows, output).published == []
    assert not server.requests


def test_every_order_of_failures_ends_with_the_same_bytes(
    server: FaultServer, tmp_path: Path, whole: tuple[list[Wanted], dict[str, bytes]]
) -> None:
    rows, expected = whole
    draw = random.Random(5)
    (tmp_path / "out").mkdir()
    for _ in range(6):
        for number in range(35):
            server.objects[f"{number}.jpg"].always = GONE if draw.random() < 0.4 else None
        create(rows, tmp_path / "out" / "a-%02d.tar")
    for number in range(35):
        server.objects[f"{number}.jpg"].always = None
    assert create(rows, tmp_path / "out" / "a-%02d.tar").total == 35
    assert contents(tmp_path / "out") == expected


def test_a_server_that_fails_5_percent_of_requests_loses_none(
    server: FaultServer, tmp_path: Path, whole: tuple[list[Wanted], dict[str, bytes]]
) -> None:
    rows, expected = whole
    draw = random.Random(1)
    kinds = ("stall", "replace", "error-body", "longer", "shorter")
    for number in range(35):
        while draw.random() < 0.3 and len(server.objects[f"{number}.jpg"].faults) < 4:
            fault = random_fault(draw, 500, first=True)
            if fault.kind not in kinds:
                server.objects[f"{number}.jpg"].faults.append(Fault(fault.kind, fault.at, fault.status))
    (tmp_path / "out").mkdir()
    result = create(rows, tmp_path / "out" / "a-%02d.tar")
    assert (result.total, result.failed) == (35, {})
    assert contents(tmp_path / "out") == expected


def test_a_shard_that_was_changed_is_fetched_anew(
    server: FaultServer, tmp_path: Path, whole: tuple[list[Wanted], dict[str, bytes]]
) -> None:
    rows, expected = whole
    out = shutil.copytree(tmp_path / "whole", tmp_path / "out")
    (out / "a-01.tar").write_bytes(b"cut")
    (out / "a-02.tar").unlink()
    assert create(rows, out / "a-%02d.tar").waiting == 20
    assert contents(out) == expected
    # With failed rows, its samples are used again: then its content is checked, too.
    server.objects["3.jpg"].faults.append(GONE)
    create(rows, out / "a-%02d.tar", force=True)
    shard = out / "a-00.tar"
    shard.write_bytes(shard.read_bytes()[:600] + b"X" + shard.read_bytes()[601:])
    assert create(rows, out / "a-%02d.tar").waiting == 10
    assert contents(out) == expected


@pytest.mark.parametrize("step", range(8))
def test_a_kill_between_any_two_files_is_repaired(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int,
    whole: tuple[list[Wanted], dict[str, bytes]],
) -> None:  # fmt: skip
    """The call ends right before the publication of a record: nothing after it happens."""
    rows, expected = whole
    (tmp_path / "out").mkdir()
    server.objects["2.jpg"].faults.append(GONE)
    create(rows[:20], tmp_path / "out" / "a-%02d.tar")
    count = 0
    publish = DoneRecord.publish

    def interrupted(self: DoneRecord, output_url: str) -> None:
        nonlocal count
        count += 1
        if count > step:
            raise KeyboardInterrupt
        publish(self, output_url)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DoneRecord, "publish", interrupted)
        create(rows, tmp_path / "out" / "a-%02d.tar")
        # The last steps do not exist.
        raise KeyboardInterrupt
    create(rows, tmp_path / "out" / "a-%02d.tar")
    assert contents(tmp_path / "out") == expected


CHILD = """
import sys
sys.path[:0] = sys.argv[3:]
from test_rowshards import create, put_rows
create(put_rows(sys.argv[1], 35), sys.argv[2])
"""


def put_rows(host: str, count: int) -> list[Wanted]:
    """The rows of objects that another process serves."""
    return [
        Wanted({"__key__": f"{number:04}", "cls": b"%d" % (number % 7)}, [("jpg", f"http://{host}/{number}.jpg")])
        for number in range(count)
    ]


def test_kill_and_again_gives_the_same_bytes(
    server: FaultServer, tmp_path: Path, whole: tuple[list[Wanted], dict[str, bytes]]
) -> None:
    rows, expected = whole
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "a-%02d.tar"
    server.objects["25.jpg"].faults.append(Fault("stall", at=100))
    command = [sys.executable, "-c", CHILD, server.host, str(output), *sys.path]
    with subprocess.Popen(command) as child:
        record = tmp_path / "out" / "a-01.tar.done.json"
        wait_for(lambda: record.exists() and '"state": "done"' in record.read_text() and server.asked("25.jpg"))
        child.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out" / "a-02.tar").exists()
    server.requests.clear()
    assert create(rows, output).total == 35
    asked = {path for path, _ in server.requests}
    assert asked == {f"{number}.jpg" for number in range(20, 35)}
    assert contents(tmp_path / "out") == expected


def test_other_rows_or_options_are_an_error_without_force(server: FaultServer, tmp_path: Path) -> None:
    rows = put(server, 25)
    output = tmp_path / "a-%02d.tar"
    create(rows, output)
    before = contents(tmp_path)
    others = [*rows[:5], Wanted({"__key__": "x"}, rows[5].sources), *rows[6:]]
    for changed, options in ((others, {}), (rows, {"mtime": 5}), (rows, {"maxcount": 9}), (rows, {"index": True})):
        with pytest.raises(UsageError, match=r"a-00\.tar .*--force"):
            create(changed, output, **options)
    assert contents(tmp_path) == before
    assert create(others, output, force=True).waiting == 25
    assert keys(tmp_path / "a-00.tar")[5] == "x"
    (tmp_path / "a-03.tar").write_bytes(b"of something else")
    with pytest.raises(UsageError, match=r"a-03\.tar"):
        create([*others, *put(server, 45)[25:]], output)


def test_only_rows_that_were_added_are_fetched(
    server: FaultServer, tmp_path: Path, whole: tuple[list[Wanted], dict[str, bytes]]
) -> None:
    rows, expected = whole
    (tmp_path / "out").mkdir()
    server.objects["11.jpg"].faults.append(GONE)
    for count, waiting in ((13, 13), (14, 2), (14, 0), (35, 21)):
        assert create(rows[:count], tmp_path / "out" / "a-%02d.tar").waiting == waiting
    assert contents(tmp_path / "out") == expected


def test_shards_of_a_longer_run(server: FaultServer, tmp_path: Path) -> None:
    rows = put(server, 40)
    output = tmp_path / "a-%02d.tar"
    create(rows, output, index=True)
    with pytest.raises(UsageError, match=r"a-02\.tar and 1 more shard of a longer run"):
        create(rows[:20], output, index=True)
    assert create(rows[:20], output, index=True, force=True).removed == [str(output) % number for number in (2, 3)]
    assert sorted(contents(tmp_path)) == sorted(
        f"a-0{number}.{end}" for number in range(2) for end in ("tar", "idx", "tar.done.json")
    )


def test_nothing_is_published_if_no_file_comes(server: FaultServer, tmp_path: Path) -> None:
    rows = put(server, 25)
    for number in range(25):
        server.objects[f"{number}.jpg"].always = GONE if number < 24 else Fault("status", status=403)
    with pytest.raises(StreamError, match="nothing was published: http-404 24, http-403 1"):
        create(rows, tmp_path / "a-%02d.tar", manifest=str(tmp_path / "m.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["a-failed.csv"]


def test_the_manifest_lists_shards_of_both_runs(server: FaultServer, tmp_path: Path) -> None:
    rows = put(server, 30)
    for number in range(10, 21):
        server.objects[f"{number}.jpg"].faults.append(GONE)
    manifest = str(tmp_path / "m.json")
    create(rows, tmp_path / "a-%02d.tar", manifest=manifest)
    assert [shard.nsamples for shard in read_manifest(manifest)] == [10, 0, 9]
    create(rows, tmp_path / "a-%02d.tar", manifest=manifest)
    listed = read_manifest(manifest)
    assert [(shard.nsamples, shard.filesize) for shard in listed] == [
        (10, (tmp_path / f"a-0{number}.tar").stat().st_size) for number in range(3)
    ]


def test_one_shard(server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = put(server, 25)
    server.objects["3.jpg"].faults.append(GONE)
    for total in (24, 25, 25):
        assert create(rows, tmp_path / "one.tar").total == total
    assert keys(tmp_path / "one.tar") == [row.sample["__key__"] for row in rows]
    monkeypatch.setattr("tarkit.steps.rowshards._MOST_ROWS_OF_ONE", 20)
    with pytest.raises(UsageError, match="more than 20; write a series"):
        create(rows, tmp_path / "two.tar")
    assert not (tmp_path / "two.tar").exists()


def test_rows_with_large_values_make_smaller_shards(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarkit.steps.rowshards._MOST_BYTES", 40)
    rows = put(server, 20)
    shards = create(rows, tmp_path / "a-%02d.tar").shards
    assert [len(keys(Path(shard))) for shard in shards] == [8, 8, 4]


def test_a_dry_run_counts_what_is_to_be_fetched(server: FaultServer, tmp_path: Path) -> None:
    rows = put(server, 25)
    result = create(rows, tmp_path / "a-%02d.tar", dry_run=True)
    assert (result.waiting, len(result.shards)) == (25, 3)
    assert not server.requests
    assert not list(tmp_path.iterdir())


def test_a_table_of_failed_rows_with_a_name_of_its_own(server: FaultServer, tmp_path: Path) -> None:
    rows = put(server, 5)
    server.objects["3.jpg"].faults.append(GONE)
    table = tmp_path / "failed.csv"
    assert create(rows, tmp_path / "a-%02d.tar", failed_table=str(table)).table == str(table)
    (found,) = csv.DictReader(table.read_text().splitlines())
    assert (found["key"], found["reason"], found["attempts"]) == ("0003", "http-404", "1")
    assert create(rows, tmp_path / "a-%02d.tar", failed_table=str(table)).table is None
    assert not table.exists()
    with pytest.raises(UsageError, match=r"\*\.csv"):
        create(rows, tmp_path / "a-%02d.tar", failed_table=str(tmp_path / "failed.txt"))


@pytest.mark.parametrize(
    ("output", "table"),
    [
        ("train-%06d.tar", "train-failed.csv"),
        ("a/%06d.tar", "a/failed.csv"),
        ("s3://b/x_%d.tar", "s3://b/x-failed.csv"),
        ("one.tar", "one-failed.csv"),
    ],
)
def test_name_of_the_table(output: str, table: str) -> None:
    assert failed_table_name(output) == table
