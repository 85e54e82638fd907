"""One shard of a run over many: whether it is done, and publishing it with its done record."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, MissingInputError, TarkitError, TemporaryStreamError
from tarkit.runs.account import Account
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import SUFFIX, DoneRecord, read_record
from tarkit.specs.outputnames import FAILED_SUFFIX
from tarkit.specs.shardspec import output_name
from tarkit.store.entries import Identity, identify, remove
from tarkit.store.retry import GoneStores
from tarkit.store.url import display_name, local_path


@dataclass(frozen=True)
class Shard:
    """One input with the place of its output. recorded: a record of an earlier run is there."""

    url: str
    output_url: str
    source: Identity
    recorded: bool = False

    @property
    def failed_url(self) -> str:
        """Where its failed samples go."""
        return self.output_url + FAILED_SUFFIX


@dataclass
class Finished:
    """A shard that came to its end. counts: of its samples; by_another: another run was faster."""

    shard: Shard
    record: DoneRecord
    counts: Counts
    by_another: bool = False


class ShardKeeper:
    """Knows what is done, and writes it into records. work: fingerprint of the command. version: of tarkit.

    gone: stores that did not answer, of which nothing more is asked. Its methods may be called from several threads.
    """

    def __init__(self, work: str, version: str) -> None:
        self.gone = GoneStores()
        self._work = work
        self._version = version

    def look(self, url: str, output_url: str) -> tuple[Shard, DoneRecord | None]:
        """A shard, and its record if it is done.

        Raises:
            MissingInputError: no such input. DataError: the record is damaged. StreamError,
            TemporaryStreamError: one of them cannot be asked.
        """
        # Noted there: the next look may be under way before this answer is looked at.
        with self.gone.asking(url, output_url):
            source = identify(url)
            record = read_record(output_url + SUFFIX)
        shard = Shard(url, output_url, source, record is not None)
        return shard, record if record is not None and self._is_fresh(shard, record) else None

    def _is_fresh(self, shard: Shard, record: DoneRecord) -> bool:
        why = record.why_stale(
            lambda: identify(shard.output_url).size,
            url=shard.url,
            source=shard.source,
            work=self._work,
            tarkit=self._version,
        )
        return why is None

    def publish(self, shard: Shard, account: Account) -> Finished:
        """Publish a shard and then its record; unless another run did in the meantime."""
        record = self.record(shard, "done")
        tally = account.counts.met
        record.samples = account.counts.as_dict()
        record.failed = account.failed_at
        record.skipped_members = tally.skipped
        record.missing_fields = tally.missing_fields
        record.dropped_fields = tally.replaced
        record.damage = tally.damage_as_dicts()
        try:
            with self.gone.asking(shard.output_url):
                there = read_record(shard.output_url + SUFFIX)
                if there is not None and self._is_fresh(shard, there):
                    account.sinks.discard()
                    return Finished(shard, there, account.counts, by_another=True)
                self._publish(shard, record, account)
        except TarkitError as problem:
            account.sinks.discard()
            record.state, record.error, record.exit_code = "failed", str(problem), problem.exit_code
        except BaseException:
            account.sinks.discard()
            raise
        return Finished(shard, record, account.counts)

    def _publish(self, shard: Shard, record: DoneRecord, account: Account) -> None:
        _refuse_changed(shard)
        if shard.recorded:
            # Sizes are multiples of 10 KiB: an old record might be taken for that of a new output.
            _remove(shard.output_url + SUFFIX)
        account.sinks.publish()
        size, sha256 = account.sinks.checksum()
        record.output = {"name": output_name(shard.output_url), "size": size, "sha256": sha256}
        record.failed_output = output_name(shard.failed_url) if account.sinks.has_failed else None
        record.exit_code = EXIT_SET_ASIDE if account.counts.lost_anything else EXIT_OK
        if not account.sinks.has_failed:
            _remove(shard.failed_url)
        record.publish(shard.output_url)

    def record(self, shard: Shard, state: str) -> DoneRecord:
        """A record that names its input, and nothing else."""
        source = {"url": display_name(shard.url), "size": shard.source.size, "tag": shard.source.tag}
        return DoneRecord(state, source, self._work, self._version)


def _refuse_changed(shard: Shard) -> None:
    """A local file has no version that could be asked for, so what was read may be of two."""
    if local_path(shard.url) is not None:
        with suppress(MissingInputError):
            if identify(shard.url) != shard.source:
                raise TemporaryStreamError("the input changed while it was read", url=display_name(shard.url))


def _remove(url: str) -> None:
    with suppress(MissingInputError):
        remove(url)
