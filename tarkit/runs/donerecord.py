"""The done record: a file beside an output shard that says what the shard was made of.

The record is published after the shard, so a shard without one is not finished. It has all facts by
which a run decides, without reading any sample, if the shard is up to date: the input's identity,
the command, the version, and the output's size and checksum.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from tarkit.errors import DataError, MissingInputError, UsageError, printable
from tarkit.names.outputnames import done_record_url
from tarkit.names.url import display_name, local_path
from tarkit.store.entries import Identity
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read

_FORMAT = "tarkit-done-1"
"""Change it when the meaning of a field changes; older records are stale then."""

_MAX_SIZE = 64 * 1024 * 1024


@dataclass
class DoneRecord:
    """Record of how one input shard became one output shard.

    Attributes:
        state: done, or failed (then ``error`` and ``exit_code`` say why, and there is no output).
        input: URL without secrets, with size and tag as in Identity.
        work: fingerprint of the command and all options that change the output.
        tarkit: version of tarkit.
        output: name, size in bytes, sha256; of an exchange also ``dropped``, reason -> number of
            samples that were left out, and ``noted``, other numbers that its step counts.
        samples: counts of samples.
        failed: for each failed sample its key, and how many output samples come before its place.
        skipped_members, missing_fields, dropped_fields, damage: findings of the reader.
        emptied_fields: fields of 0 bytes that had content in the input, or are new.
        retried: fingerprints of later runs over the failed samples alone.
        files: files that the work uses in addition to its fingerprint (see tarkit.runs.usedfiles);
            None in the records of versions that did not record them.
        pending: while a retry is published, the new values of the other fields, and the samples
            that failed again.
    """

    state: str
    input: dict[str, Any]
    work: str
    tarkit: str
    output: dict[str, Any] | None = None
    failed_output: str | None = None
    samples: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[str, int]] = field(default_factory=list)
    skipped_members: dict[str, int] = field(default_factory=dict)
    missing_fields: dict[str, int] = field(default_factory=dict)
    dropped_fields: int = 0
    emptied_fields: int = 0
    damage: list[dict[str, Any]] = field(default_factory=list)
    retried: list[str] = field(default_factory=list)
    error: str | None = None
    exit_code: int = 0
    files: list[dict[str, str]] | None = None
    pending: dict[str, Any] | None = None

    def other_input(self, url: str) -> str | None:
        """Return the record's input if it differs from ``url``, or None.

        Inputs of two folders may have the same names. A relative path matches any folder, since it
        is not known which folder it was relative to.
        """
        recorded = str(self.input.get("url"))
        there, here = _place(recorded), _place(display_name(url))
        for short, long in ((there, here), (here, there)):
            is_relative = "://" not in short + long and not short.startswith("/")
            if short == long or (is_relative and long.endswith(f"/{short}")):
                return None
        return recorded

    def why_stale(
        self,
        output_size: Callable[[], int | None],
        *,
        url: str | None = None,
        source: Identity | None = None,
        work: str | None = None,
        tarkit: str | None = None,
        files: list[dict[str, str]] | None = None,
    ) -> str | None:
        """Return the reason why the shard must be made again, or None.

        Arguments that are None are not compared.

        Args:
            output_size: function that returns the size of the output, None if its store does not
                report one; it raises MissingInputError.
            url: the input of the shard.
            source: the current identity of the input.
            work: fingerprint of the work.
            tarkit: version of tarkit.
            files: current files of the work; see also ``not_compared``.
        """
        if self.state != "done" or self.output is None:
            return self.error or "unknown"
        if url is not None and (other := self.other_input(url)):
            return f"it was made of {other}"
        if source is not None and (self.input.get("size"), self.input.get("tag")) != (source.size, source.tag):
            return "the input changed"
        if source is not None and source.tag is None:
            return "its store reports neither version nor time of the input, so a change could not be seen"
        if work not in (None, self.work):
            return "it was made by another command"
        if tarkit not in (None, self.tarkit):
            return f"it was made by tarkit {self.tarkit}"
        if changed := self.changed_file(files):
            return changed
        try:
            size = output_size()
        except MissingInputError:
            return "the output is gone"
        return None if size in (None, self.output["size"]) else "the output has another size"

    def changed_file(self, files: list[dict[str, str]] | None) -> str | None:
        """Return a sentence on a file that has changed since the shard was made, or None."""
        before, now = _digests(self.files or ()), _digests(files or ())
        changed = next((name for name in now if name in before and before[name] != now[name]), None)
        return None if changed is None else f"{printable(changed)} changed"

    def not_compared(self, files: list[dict[str, str]] | None) -> str | None:
        """Return the reason why the files of record and work cannot all be compared, or None.

        Args:
            files: files of the work; None if they are not known.
        """
        if self.files is None:
            return None if files == [] else "its record is of a version that noted none"
        before, now = _digests(self.files), _digests(files or ())
        if unseen := next((name for name in before if name not in now), None):
            return f"{printable(unseen)} is not on this machine"
        new = next((name for name in now if name not in before), None)
        return None if new is None else f"it was made without {printable(new)}"

    def publish(self, output_url: str) -> None:
        """Write the record beside the shard ``output_url``, whole or not at all."""
        document = {"format": _FORMAT, **vars(self)}
        with open_publish(done_record_url(output_url), compression=None) as stream:
            stream.write(json.dumps(document, indent=1, sort_keys=True).encode("utf-8") + b"\n")


def read_record(url: str) -> DoneRecord | None:
    """Read the done record at ``url``; None if no record of this format exists.

    Raises:
        DataError: the file is not a done record.
        StreamError, TemporaryStreamError: the record cannot be read.
    """
    try:
        with open_read(url, compression=None, may_be_replaced=True) as stream:
            content = b""
            while (piece := stream.read(1 << 20)) and len(content) < _MAX_SIZE:
                content += piece
    except MissingInputError:
        return None
    try:
        document = json.loads(content)
        if document.pop("format") != _FORMAT:
            return None
        known = {each.name for each in fields(DoneRecord)}
        record = DoneRecord(**{name: value for name, value in document.items() if name in known})
        record.failed = [(key, at) for key, at in record.failed]
        if not _is_sound(record):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DataError("this is not a done record", url=url, hint="remove it, and the shard is made again") from None
    return record


def _is_sound(record: DoneRecord) -> bool:
    """Return True if the values have the expected types.

    One damaged record must not end the status of all shards.
    """
    output, counts = record.output, record.samples
    return (
        record.state in ("done", "failed")
        and isinstance(record.input, dict)
        and (output is None or (isinstance(output, dict) and type(output.get("size")) is int))
        and isinstance(counts, dict)
        and all(type(number) is int for number in counts.values())
        and type(record.exit_code) is type(record.emptied_fields) is int
        and isinstance(record.damage, list)
        and isinstance(record.retried, list)
        and isinstance(record.error, (str, type(None)))
        and (record.pending is None or _is_sound_retry(record.pending, len(record.failed)))
        and (record.files is None or isinstance(record.files, list))
        and all(isinstance(each, dict) and isinstance(each.get("path"), str) for each in record.files or ())
    )


def _is_sound_retry(pending: Any, failed: int) -> bool:
    """Return True if the record lists which of its failed samples failed again."""
    again = pending.get("again") if isinstance(pending, dict) else None
    return isinstance(again, list) and all(type(number) is int and 0 <= number < failed for number in again)


def _digests(files: Iterable[dict[str, str]]) -> dict[str, str | None]:
    """Return the digest of each file by the name under which it is compared."""
    return {each.get("name", each["path"]): each.get("sha256") for each in files}


def _place(url: str) -> str:
    """Return a path in one form for all its spellings, without access to its folder."""
    try:
        path = local_path(url)
    except UsageError:
        # Not a path; a record may hold anything.
        return url
    return url if path is None else re.sub(r"^(?:\.\./)+", "", os.path.normpath(path))
