"""Log of the batches that a training loop was given: a file a process, a line a batch.

``docs/formats/audit.md`` specifies the files.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import finalize
from zlib import crc32

from tarkit.errors import CorruptRecordError, DataError, StreamError, UsageError, printable
from tarkit.names.url import display_name, local_path, name_of_shard
from tarkit.store.publish import open_publish
from tarkit.trainers.checkedstate import check_state
from tarkit.trainers.order import Place
from tarkit.trainers.subset import Subset

VERSION = 1
SUFFIX = ".audit"
TRAINING = "training.json"
"""Name of the file with the state with which the first process began."""
_FIXED = ("kind", "shards", "subset", "seed", "run", "block", "equalize")
"""Settings that are equal in all states of a training."""
_SHOWN = {"kind": "data set", "shards": "digest of the shards", "subset": "digest of the chosen samples"}
_DIGITS = 8
_NO_KEY = "0" * _DIGITS


class Evidence(NamedTuple):
    """Contents of a batch, for an audit.

    Attributes:
        samples: ``"5.0 0.12- 1.3*"``, the number of the shard and the number in it of each sample;
            ``-`` marks one that was left out, ``*`` one that fills the batch.
        keys: 8 digits of the digest of each sample's key, or 0 if it was left out.
    """

    samples: str
    keys: str


def evidence_of(
    places: Sequence[Place],
    left_out: Sequence[bool],
    fillers: Sequence[Place],
    keys: Mapping[tuple[int, int], str],
) -> Evidence:
    """Return the evidence of a batch that should have these samples.

    Args:
        left_out: for each sample, True if it failed or was dropped.
        fillers: the samples in their place.
        keys: digests of the keys of the samples that were read.
    """
    marks = ["-" if is_out else "*" if place.filler else "" for place, is_out in zip(places, left_out, strict=True)]
    marked = list(zip([*places, *fillers], [*marks, *"*" * len(fillers)], strict=True))
    samples = " ".join(f"{place.shard}.{place.sample}{mark}" for place, mark in marked)
    return Evidence(samples, "".join(_NO_KEY if mark == "-" else keys[place[:2]] for place, mark in marked))


def key_digest(url: str, key: str) -> str:
    """Return 8 digits of the hash of a sample: its key, and its shard's name without the folder."""
    words = f"{name_of_shard(url)}\0{key}".encode("utf-8", "surrogateescape")
    return blake2b(words, digest_size=_DIGITS // 2).hexdigest()


class AuditLog:
    """The audit file of one process.

    Each line is written by one call, so that a kill leaves whole lines.

    Args:
        folder: a local folder, or one of a file system that all machines share.
        shards: name of each shard, and number of its samples that are chosen.
        state: a state of the training.
        chosen: these samples; None: all samples.
        streams: number of shards of each stream of a mixture.

    Raises:
        UsageError: the folder is not local.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        shards: Sequence[tuple[str, int]],
        state: Mapping[str, Any],
        chosen: Subset | None = None,
        streams: Mapping[str, int] | None = None,
    ) -> None:
        path = local_path(os.fspath(folder))
        if path is None:
            raise UsageError(f"audit is {display_name(os.fspath(folder))}; it must be a folder of a file system")
        self._folder = path
        self._header: dict[str, Any] = {}
        self._name = list_name(state)
        self._shards = {
            "shards": shards,
            **({} if chosen is None else {"chosen": chosen.texts()}),
            **({} if streams is None else {"streams": streams}),
        }
        self._file: int | None = None
        self._in_hand: list[int] | None = None

    def begin(self, rank: int, world: int, state: dict[str, Any]) -> None:
        """Record that the loop of this rank begins or resumes at this state.

        Raises:
            UsageError: the folder has the audit of another training.
            DataError: the state with which its training began is damaged.
            StreamError: the audit cannot be written.
        """
        process = {"host": socket.gethostname(), "pid": os.getpid()}
        header = {"audit": VERSION, "rank": rank, "world": world, **process}
        if header != self._header:
            self._header, self._file = header, None
        self._write({"begin": state})
        self._in_hand = None

    def given(self, epoch: int, number: int, worker: int, evidence: Evidence) -> None:
        """Record that the loop was given a batch, and so has used the one before."""
        self._in_hand = [epoch, number]
        self._write({"batch": self._in_hand, "worker": worker, **evidence._asdict()})

    def used(self) -> None:
        """Record that the loop has used the last batch."""
        if self._in_hand is not None:
            self._write({"used": self._in_hand})
            self._in_hand = None

    def _write(self, fields: dict[str, Any]) -> None:
        try:
            if self._file is None:
                os.makedirs(self._folder, exist_ok=True)
                self._compare(self._publish(TRAINING, fields["begin"]), fields["begin"])
                self._publish(self._name, self._shards)
                name = os.path.join(self._folder, f"rank-{self._header['rank']:05}-{secrets.token_hex(8)}{SUFFIX}")
                self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                finalize(self, os.close, self._file)
                self._append(self._header)
            self._append({**fields, "at": round(time.time(), 6)})
        except OSError as error:
            reason = f"the audit cannot be written: {error.strerror or error}"
            raise StreamError(reason, url=self._folder, hint="a training without its audit is not audited") from error

    def _append(self, fields: dict[str, Any]) -> None:
        line = audit_line(fields)
        if self._file is not None and os.write(self._file, line) != len(line):
            raise OSError("only a part of a line was written, the disk may be full")

    def _publish(self, name: str, value: object) -> str:
        """Write a file that the folder has once, if it is not there, and return its path."""
        path = os.path.join(self._folder, name)
        if not os.path.exists(path):
            with open_publish(path, compression=None) as stream:
                stream.write(json.dumps(value).encode())
        return path

    def _compare(self, path: str, state: Mapping[str, Any]) -> None:
        """Refuse a folder in which the first process began with a state of another training."""
        hint = "use a new folder for each training, or remove the files of the other one"
        try:
            with open(path, "rb") as file:
                first = json.load(file)
            check_state(first)
        except (ValueError, RecursionError) as error:
            raise DataError(f"the first state cannot be read: {error}", url=path, hint=hint) from None
        if what := difference(state, first):
            raise UsageError(f"{display_name(self._folder)} has the audit of another training: {what}; {hint}")


def difference(state: Mapping[str, Any], first: Mapping[str, Any]) -> str | None:
    """Return which setting shows that two states are of two trainings, or None.

    Where an epoch begins, a training may go on with other batches, streams and amounts. So these
    are compared only if both states are of the first batch.

    Args:
        state, first: valid states.
    """
    one, other = _settings(state), _settings(first)
    both_begin = not any(each["epoch"] or each["next_batch"] for each in (state, first))
    for name in [*_FIXED, *one, *other] if both_begin else _FIXED:
        if (new := one.get(name)) != (old := other.get(name)):
            return f"{_SHOWN.get(name, name)} is {printable(repr(new))}, and was {printable(repr(old))}"
    return None


def _settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a state has beside its place, with the amounts of its streams one by one."""
    found = {name: value for name, value in state.items() if name not in ("epoch", "next_batch", "crc")}
    if "streams" not in state:
        return {**found, "kind": "shards"}
    found |= {"kind": "streams", "streams": list(state["streams"]), "shards": None, "subset": None}
    for name, (digest, amount, _) in state["streams"].items():
        found[f"digest of the shards of stream {printable(name)!r}"] = digest
        found[f"amount of stream {printable(name)!r}"] = amount
    return found


def list_name(state: Mapping[str, Any]) -> str:
    """Return the name of the list of the shards of a state."""
    subset = f"-{state['subset']}" if "subset" in state else ""
    return f"shards-{state['shards']}{subset}.json"


def audit_line(fields: dict[str, Any]) -> bytes:
    """Return a line: JSON, a tab, the CRC-32 of the JSON as 8 hexadecimal digits."""
    text = json.dumps(fields, separators=(",", ":")).encode()
    return b"%s\t%08x\n" % (text, crc32(text))


def parsed_line(line: bytes, url: str, offset: int) -> dict[str, Any]:
    """Parse a line of ``audit_line``.

    Raises:
        CorruptRecordError: the text is not such a line.
    """
    text, _, crc = line.removesuffix(b"\n").rpartition(b"\t")
    if crc != b"%08x" % crc32(text):
        raise damaged_line(url, offset, "its checksum differs")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged_line(url, offset, f"its JSON cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise damaged_line(url, offset, "it is not a JSON object")
    return found


def damaged_line(path: str, offset: int, what: str) -> CorruptRecordError:
    """Return the error of a line, with its number."""
    number = 1
    with open(path, "rb") as file:
        while file.tell() < offset:
            file.readline()
            number += 1
    hint = "restore the file, or take it out of the folder: its batches are then reported as missing"
    return CorruptRecordError(f"line {number} is damaged: {what}", url=path, offset=offset, hint=hint)


def read_lines(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines of a file, each with its offset.

    A last line that a kill cut off is left out.

    Raises:
        CorruptRecordError: a line is damaged.
        DataError: the file is not of an audit, or of a later version.
    """
    with open(path, "rb") as file:
        offset = 0
        for line in file:
            if not line.endswith(b"\n"):
                return
            fields = parsed_line(line, path, offset)
            if not offset and fields.get("audit") != VERSION:
                raise DataError(f"this is not an audit of version {VERSION}", url=path)
            yield offset, fields
            offset += len(line)
