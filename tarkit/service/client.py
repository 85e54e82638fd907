"""What a trainer imports: ``ShardClient``, and the records of its shards.

From data to trainer: the records of the shards that a client is given, read by a reader,
acknowledged when used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, starmap
from operator import attrgetter
from typing import Any, NamedTuple

from tarkit.errors import DataError, ReplacedError, counted, printable, quoted
from tarkit.readers.identity import COUNT_ANEW, parsed_content
from tarkit.readers.reader import AbstractDataReader
from tarkit.service.dataset import DataSet as DataSet
from tarkit.service.leases import NoShard as NoShard
from tarkit.service.reports import HeldShard as HeldShard
from tarkit.service.shardclient import ShardClient as ShardClient

_log = logging.getLogger(__name__)


class ServedRecord(NamedTuple):
    """A record of a shard.

    Attributes:
        value: what the reader gave.
        at: its place in the order of the shard's records.
    """

    value: Any
    shard: HeldShard
    at: int


def served_records(client: ShardClient, reader: AbstractDataReader, max_failures: int = 10) -> Iterator[ServedRecord]:
    """The records of all shards that a client is given, to the end of the data set.

    They may be used in any order; ``acknowledge`` reports those that were.

    It ends early where all that is left is with workers that wait for each other: use and
    acknowledge what is held, in a batch or a buffer, and call it again until ``client.ended``.

    A shard that the reader cannot read is reported as failed, with the reason, and the next one
    comes.

    Raises:
        ReplacedError: a source is not the one whose records were counted; after its first task.
        Exception: what the reader raised, after ``max_failures`` shards in a row of which it read
            none to its end.
        ServiceLostError: the service does not answer.
    """
    failures = 0
    for shard in client:
        try:
            yield from _records(shard, reader)
            failures = 0
        except Exception as error:
            client.failed(shard, f"{type(error).__name__}: {printable(str(error))}")
            failures += 1
            place = f"{quoted(shard.name)}, records {shard.start} to {shard.end}"
            _log.warning("%s could not be read and is reported as failed: %s", place, printable(str(error)))
            if failures >= max_failures or isinstance(error, ReplacedError):
                client.flush()
                raise


def _records(shard: HeldShard, reader: AbstractDataReader) -> Iterator[ServedRecord]:
    counted_then, now = map(parsed_content, (shard.identity, reader.content_identity(shard.name)))
    if not counted_then.is_same(now):
        raise counted_then.replaced(shard.name, now, "since its records were counted", COUNT_ANEW)
    places, records, number = chain.from_iterable(starmap(range, shard.ranges)), shard.end - shard.start, 0
    wanted, last = next(places, None), None
    for number, value in enumerate(reader.read_records(shard.task), 1):
        if number > records:
            raise DataError(f"the task has {counted(records, 'record')}, and the reader gave more", url=shard.name)
        if number - 1 == wanted:
            found, wanted = ServedRecord(value, shard, wanted), next(places, None)
            if wanted is None:
                last = found  # it makes the shard complete, which more records, or too few, would show as wrong
            else:
                yield found
    if number != records:
        raise DataError(f"the reader gave {number} of {counted(records, 'record')}", url=shard.name)
    if last is not None:
        yield last


def acknowledge(client: ShardClient, records: Iterable[ServedRecord]) -> None:
    """These records were used: they are not handed out again.

    Returns at once.
    """
    for shard, used in groupby(records, attrgetter("shard")):
        client.done(shard, [(record.at, record.at + 1) for record in used])


def read_shards(client: ShardClient, reader: AbstractDataReader, max_failures: int = 10) -> Iterator[Any]:
    """The records of all shards that a client is given, as the reader gives them.

    A record is acknowledged when the next one is asked for, so use it before; that it is in a batch
    or buffer then is not enough.
    """
    for found in served_records(client, reader, max_failures):
        yield found.value
        client.done(found.shard, [(found.at, found.at + 1)])
