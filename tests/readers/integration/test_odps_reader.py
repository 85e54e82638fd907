"""Rows of ODPS tables, from a stand-in for the service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from odpsserver import Table, serve

from tarkit.errors import DataError, MissingInputError, ReplacedError, StreamError, TemporaryStreamError, UsageError
from tarkit.readers.create import create_data_reader
from tarkit.readers.odps import ODPSDataReader
from tarkit.readers.reader import Shard, Task, TaskShard, shards_of
from tarkit.store.retry import Retry

ROWS = [(number, f"name {number}" if number % 7 else None, number / 4) for number in range(1000)]
COLUMNS = [("id", "bigint"), ("name", "string"), ("score", "double")]
QUICK = Retry(attempts=3, base=0.0)


@pytest.fixture
def table() -> Table:
    return Table(COLUMNS, ROWS)


@pytest.fixture
def account(table: Table) -> Iterator[dict[str, Any]]:
    pytest.importorskip("odps", reason="pyodps is not installed, so ODPS tables are not tested")
    with serve({"clicks": table, "daily": Table(COLUMNS, ROWS[:10], "day=20200101")}) as url:
        yield {
            "project": "p", "access_id": "id", "access_key": "SECRET", "endpoint": f"{url}/api", "tunnel_endpoint": url,
            "retry": QUICK,
        }  # fmt: skip


def rows_of(reader: ODPSDataReader, start: int, end: int) -> list[list[str | None]]:
    return list(reader.read_records(Task(TaskShard("clicks", start, end))))


def text(rows: list[tuple[int, str | None, float]]) -> list[list[str | None]]:
    return [[None if value is None else str(value) for value in row] for row in rows]


def test_rows_and_shards(account: dict[str, Any]) -> None:
    reader = ODPSDataReader("clicks", 300, **account)
    assert shards_of(reader) == [Shard("clicks", start, min(300, 1000 - start)) for start in (0, 300, 600, 900)]
    assert rows_of(reader, 300, 600) == text(ROWS[300:600])
    assert rows_of(reader, 0, 0) == []
    assert reader.metadata.column_dtypes == {"id": "bigint", "name": "string", "score": "double"}


def test_columns_and_a_partition(account: dict[str, Any]) -> None:
    reader = ODPSDataReader("p.daily", columns=["score", "id"], partition="day=20200101", **account)
    assert shards_of(reader) == [Shard("p.daily", 0, 10)]
    assert rows_of(reader, 8, 10) == [["2.0", "8"], ["2.25", "9"]]
    assert list(reader.metadata.column_names) == ["score", "id"]


def test_a_read_that_drops_goes_on_at_its_row(account: dict[str, Any], table: Table) -> None:
    table.faults = ["cut", "busy", "cut"]
    assert rows_of(ODPSDataReader("clicks", **account), 100, 900) == text(ROWS[100:900])
    assert table.ranges[0] == (100, 800) and all(start + count == 900 for start, count in table.ranges)


def test_a_service_that_stays_away(account: dict[str, Any], table: Table) -> None:
    table.faults = ["cut"] * 3
    with pytest.raises(TemporaryStreamError, match=r"odps://p/clicks: .*failed after 3 attempts"):
        rows_of(ODPSDataReader("clicks", **account), 0, 1)


def test_what_is_refused_is_not_asked_again(account: dict[str, Any], table: Table) -> None:
    table.faults = ["denied"]
    with pytest.raises(StreamError, match=r"odps://p/clicks: cannot be read: .*NoPermission") as caught:
        rows_of(ODPSDataReader("clicks", **account), 0, 5)
    assert len(table.ranges) == 1 and "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("name", "partition"), [("nothing", None), ("daily", "day=20200102")])
def test_what_does_not_exist(account: dict[str, Any], name: str, partition: str | None) -> None:
    with pytest.raises(MissingInputError, match=f"odps://p/{name}: no such table or partition"):
        ODPSDataReader(name, partition=partition, **account).create_shards()


def test_a_task_beyond_the_end(account: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="odps://p/clicks: has 1000 rows, and rows 990 to 1009 were asked for"):
        rows_of(ODPSDataReader("clicks", **account), 990, 1010)


def test_it_is_chosen_by_the_environment(account: dict[str, Any]) -> None:
    environ = {
        "MAXCOMPUTE_PROJECT": "p", "MAXCOMPUTE_AK": "id", "MAXCOMPUTE_SK": "SECRET",
        "MAXCOMPUTE_ENDPOINT": account["endpoint"], "MAXCOMPUTE_TUNNEL_ENDPOINT": account["tunnel_endpoint"],
    }  # fmt: skip
    reader = create_data_reader("clicks", 500, environ=environ)
    assert [shard.records for shard in shards_of(reader)] == [500, 500]
    assert shards_of(create_data_reader("clicks", reader_type="ODPS", environ=environ))


def test_arguments_that_are_refused(account: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="ODPSDataReader has no parameter partitions"):
        ODPSDataReader("clicks", partitions="x", **account)
    # It would have no shards, and so no record would be read, in silence.
    with pytest.raises(UsageError, match="records_per_task is -5; it must be at least 1"):
        ODPSDataReader("clicks", -5, **account)
    with pytest.raises(UsageError, match="ODPS needs project, access_id and access_key"):
        create_data_reader("clicks", reader_type="ODPS", environ={})


def test_a_table_that_has_another_number_of_rows_than_when_it_was_counted(
    account: dict[str, Any], table: Table
) -> None:
    reader = ODPSDataReader("clicks", **account)
    assert shards_of(reader) == [Shard("clicks", 0, 1000)]
    table.rows = [*ROWS, (1000, "new", 0.0)]
    with pytest.raises(DataError, match="has 1001 rows, and had 1000 when they were counted; create the shards anew"):
        rows_of(reader, 0, 10)
    # Another process, which has not counted them.
    other = ODPSDataReader("clicks", **account)
    for identity, count in (("1000 rows", 10), ("1002 rows", 1002)):
        with pytest.raises(ReplacedError, match=f"has 1001 rows, and had {identity[:4]} when they were counted"):
            list(other.read_records(Task(TaskShard("clicks", 0, count, identity=identity))))
    assert len(list(other.read_records(Task(TaskShard("clicks", 0, 10, identity="1001 rows"))))) == 10
    assert [shard.identity for shard in shards_of(reader)] == ["1001 rows"]
    assert shards_of(reader) == [Shard("clicks", 0, 1001)]
    assert len(rows_of(reader, 0, 1001)) == 1001


def test_a_table_that_grows_between_two_attempts(account: dict[str, Any], table: Table) -> None:
    """The second attempt would count from another first row."""

    def grows(*part: Any) -> bytes:
        content = encoded(*part)
        table.rows = [(-1, "first", 0.0), *ROWS]
        return content

    encoded, table.faults = table.encoded, ["cut"]
    table.encoded = grows  # type: ignore[method-assign]
    with pytest.raises(DataError, match="has 1001 rows, and had 1000"):
        rows_of(ODPSDataReader("clicks", **account), 0, 1000)


def test_columns_that_are_not_there(account: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="has no column nope; it has id, name, score"):
        ODPSDataReader("clicks", columns=["id", "nope"], **account).metadata  # noqa: B018
    with pytest.raises(UsageError, match="columns is 'id'; it must be a list of names"):
        ODPSDataReader("clicks", columns="id", **account)
