"""The run record: a file in the output folder, written when a run begins, with its plan.

Done records list what was made; only this record shows what is missing. Its name has the digest of
its content without the files that the work uses. So all slices of a run write the same file, even
if the command changes such a file, and several runs can share a folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tarkit.errors import DataError, MissingInputError
from tarkit.names.outputnames import RUN_RECORD
from tarkit.names.url import join
from tarkit.runs.usedfiles import UsedFile, used_files
from tarkit.runs.work import Work
from tarkit.specs.inputset import InputSet
from tarkit.store.entries import Entry, stat
from tarkit.store.publish import open_publish
from tarkit.store.read import read_whole

_FORMAT = "tarkit-run-1"
_NAME = re.compile(re.escape(RUN_RECORD).replace(r"\{\}", "[0-9a-f]{16}"))
_FRESH = 60.0
"""Seconds in which the slices of a run, which begin together, do not write the same file again."""


@dataclass(frozen=True)
class RunRecord:
    """Plan of a run.

    Attributes:
        work: fingerprint of its work, None if the slices of the run have different ones.
        tarkit: version of tarkit.
        files: files that the work uses, see tarkit.runs.usedfiles.
        slices: number of slices if the run is one slice of several, None for a whole run.
        begun: seconds since 1970, None if the time is not known.
        once: no other run has this fingerprint.
    """

    inputs: InputSet
    work: str | None
    tarkit: str
    files: list[UsedFile] = field(default_factory=list)
    slices: int | None = None
    begun: float | None = None
    once: bool = False

    @property
    def name(self) -> str:
        """Name of the record's file.

        Runs whose fingerprints never repeat replace the records of one another.
        """
        content = replace(self, files=[], work=None if self.once else self.work)._content()
        return RUN_RECORD.format(hashlib.sha256(content).hexdigest()[:16])

    def _content(self) -> bytes:
        known = {"slices": self.slices, "work": self.work, "tarkit": self.tarkit, "files": self.files}
        document = {"format": _FORMAT, **self.inputs.as_dict(), **known}
        return json.dumps(document, indent=1, sort_keys=True).encode("ascii") + b"\n"

    def publish(self, folder: str, now: float) -> None:
        """Write it into an output folder, whole or not at all.

        Its file's time is that of the last begin of the run.

        Args:
            now: seconds since 1970.

        Raises:
            StreamError, TemporaryStreamError: the record cannot be written.
        """
        url, content = join(folder, self.name), self._content()
        if self.slices is not None:
            with suppress(MissingInputError):
                begun = stat(url).mtime
                if (begun is None or now - begun < _FRESH) and read_whole(url, compression=None) == content:
                    return
        with open_publish(url, compression=None) as stream:
            stream.write(content)


def record_of(work: Work, inputs: InputSet, slices: int | None = None, *, once: bool = False) -> RunRecord:
    """Return the record of a run by this version of tarkit.

    Args:
        inputs: inputs of all slices.
        once: the name of the work is valid for this call only.
    """
    from importlib.metadata import version

    fingerprint = None if once and slices is not None else work.fingerprint()
    return RunRecord(inputs, fingerprint, version("tarkit"), used_files(work), slices, once=once)


def is_run_record(name: str) -> bool:
    """Return True if a file of an output folder is the record of a run."""
    return _NAME.fullmatch(name) is not None


def read_run_record(entry: Entry) -> RunRecord:
    """Read the record that is an entry of a folder.

    Raises:
        DataError: the record is damaged, or of another version.
        MissingInputError, StreamError, TemporaryStreamError: the record cannot be read.
    """
    try:
        document: dict[str, Any] = json.loads(read_whole(entry.url, compression=None))
        if document.pop("format") != _FORMAT:
            raise ValueError
        work, files, slices = document["work"], document["files"], document["slices"]
        if not isinstance(work, (str, type(None))) or not all(isinstance(each["path"], str) for each in files):
            raise ValueError
        return RunRecord(InputSet.from_dict(document), work, str(document["tarkit"]), files, slices, entry.mtime)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, DataError):
        hint = "remove it; what that run was to make is not known then"
        raise DataError("this is not the record of a run", url=entry.url, hint=hint) from None
