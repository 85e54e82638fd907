"""A trial of a run: the first samples, each into a folder that stays."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, BinaryIO

from tarkit.errors import EncodeError, UsageError
from tarkit.mapping.parallel import in_batches
from tarkit.mapping.scratch import FieldNameError, extract, write_file
from tarkit.runs.account import Account, Sinks
from tarkit.runs.counts import Counts
from tarkit.runs.engine import Reporter, open_engine
from tarkit.runs.process import check_work, work_inputs
from tarkit.runs.work import Work
from tarkit.samples.sample import Sample
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.shardspec import counted_shards
from tarkit.store.fieldfile import FieldFile

LOG, ERROR = "__log__", "__error__"
"""Files in a sample's folder: the output of the command (stdout, then stderr), and its failure."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 100
"""Largest number of characters of a key in the name of a folder."""


class _FolderWriter(TarWriter):
    """A writer that checks samples as another does, and writes them to folders.

    Args:
        null: the null device.
        begun: path of the folder of each input sample so far, filled from outside.
        base: base name of the files in them.
        options: arguments of TarWriter.
    """

    def __init__(self, null: BinaryIO, begun: list[str], base: str, options: Mapping[str, Any]) -> None:
        super().__init__(null, **{**options, "index": False, "encoder": False})
        self._begun, self._base = begun, base

    def write_all(self, samples: Sequence[Mapping[str, Any]]) -> int:
        # Each sample but the first, which a command may make of one, is beside it.
        folders = [self._begun[-1] + (f"+{number}" if number else "") for number in range(len(samples))]
        try:
            for sample, folder in zip(samples, folders, strict=True):
                extract(dict(sample), folder, self._base)
            return super().write_all(samples)
        except (FieldNameError, EncodeError) as error:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
            raise EncodeError(str(error)) from None


class TrialSinks(Sinks):
    """The folders of a trial, in the place of the outputs of a run.

    Args:
        null: the null device.
        path: folder for all of them.
        base, options: see _FolderWriter.
    """

    def __init__(self, null: BinaryIO, path: str, base: str, options: Mapping[str, Any]) -> None:
        super().__init__(None, None, options)
        self._path, self._base = path, base
        self._begun: list[str] = []
        self.output = _FolderWriter(null, self._begun, base, options)

    def begin(self, sample: Sample) -> None:
        """Name the folder of an input sample."""
        key = _UNSAFE.sub("_", sample["__key__"])[:_LONGEST]
        self._begun.append(os.path.join(self._path, f"{len(self._begun):06d}-{key}"))

    def write_failed(self, sample: Sample, report: bytes) -> None:
        """Write a sample as it was, and the reason of its failure."""
        self._begun[-1] += "-failed"
        # A field that cannot be a file is the reason, then.
        with suppress(FieldNameError):
            extract(sample, self._begun[-1], self._base)
        write_file(os.path.join(self._begun[-1], ERROR), report)

    def write_log(self, number: int, log: bytes | FieldFile) -> None:
        """Write the output of the command of the last ``number`` samples."""
        for folder in self._begun[-number:]:
            # Of a sample that was dropped, only this is there.
            os.makedirs(folder, exist_ok=True)
            if log:
                write_file(os.path.join(folder, LOG), log)


def trial_of(work: Work, number: int) -> Work:
    """Return the work of a trial: its output is a new folder, and its failures are kept.

    Raises:
        UsageError: the work retries the failed samples of a folder.
    """
    if work.retry_failed is not None and work.outdir is not None:
        raise UsageError("--try goes with --retry-failed OUT.failed.tar, not with a folder: name one of its shards")
    folder = tempfile.mkdtemp(prefix="tarproc-try-")
    errors = "ignore" if work.errors == "ignore" else "keep"
    return replace(
        work, output=folder, outdir=None, count=min(number, work.count or number), errors=errors, max_errors="100%",
        slice=None, list_sha256=None, manifest=None, index=False, force=False, work_id=None,
    )  # fmt: skip


def run_trial(work: Work, reporter: Reporter) -> Counts:
    """Run the first samples, and write each to a folder of its own; nothing is published.

    The folder of a sample is called by its number and key. It has the new sample, or the sample as
    it was and the reason of the failure, and the output of the command.

    Args:
        work: result of :func:`trial_of`.
        reporter: object whose methods are called during the run.

    Raises:
        TooManyErrorsError: all samples failed.
    """
    counts, inputs = Counts(), work_inputs(work)
    check_work(work)
    shards, number = counted_shards(inputs, allow_pipe_in_lists=work.allow_pipe, must_exist=False)
    with open_engine(work, reporter) as engine, closing(engine.read(shards, counts.met)) as samples:
        reporter.started(counts, number, failed_are_kept=False)
        path = str(work.output)
        with open(os.devnull, "wb") as null, TrialSinks(null, path, work.base, engine.writer_options) as folders:
            account = Account(counts, folders, engine)
            with closing(engine.outcomes(in_batches(samples, engine.batch_size))) as outcomes:
                for batch, outcome in outcomes:
                    log = outcome.printed.kept()
                    account.enter(batch, outcome, folders.begin)
                    folders.write_log(len(batch), log)
            account.conclude()
    return counts
