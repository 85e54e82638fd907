"""RecordIO files of raw data on Spark: ``data-<worker>-<chunk>``, the same in each run."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from tarkit.errors import LocatedError, StreamError, UsageError, counted
from tarkit.extras import library
from tarkit.formats.tally import Tally
from tarkit.names.url import base_name, local_path
from tarkit.spark.sourceslices import Slice, plan_slices
from tarkit.spark.tasks import new_context, on_all_machines, remove_left_by_tasks, run_tasks, seconds_after_end
from tarkit.steps.prepare import Prepare, load_model, prepare_images, prepare_with_model, prepared, read_model_file
from tarkit.steps.recordfiles import RECORDS_PER_FILE, clear_record_files, write_record_files
from tarkit.store.entries import entries, remove


class RecordFile(NamedTuple):
    """A written file: its name in the folder, and its number of records."""

    name: str
    records: int


class Preparation(NamedTuple):
    """A rule for preparing files as records.

    Attributes:
        model: text and name of a Python file; without it, the records are images, by class.
    """

    model: tuple[str, str] | None = None
    codec: str = "tf_example"
    classes: Sequence[str] | None = None
    image: str = "bytes"

    def function(self) -> Prepare:
        """Return the function from a file to its records.

        It runs the model file.
        """
        if self.model is None:
            return prepare_images(self.classes, self.image)
        return prepare_with_model(load_model(*self.model), self.codec)


def generate_records(
    source: str,
    folder: str,
    *,
    is_tar: bool,
    model_file: str | None = None,
    codec: str = "tf_example",
    classes: Sequence[str] | None = None,
    image: str = "bytes",
    records_per_file: int = RECORDS_PER_FILE,
    workers: int = 2,
    force: bool = False,
    tally: Tally | None = None,
    context: Any = None,
) -> list[RecordFile]:
    """Prepare the files of a folder or a tar in several tasks, and write their records to a folder.

    The files are cut into ``workers`` contiguous slices; slice W becomes ``data-W-0000``,
    ``data-W-0001`` …, each published whole. A task that is run again, or twice at once, writes the
    same files again.

    Args:
        source, folder: paths or URLs at any place that all machines reach by the same name.
        model_file: file with a function that must give the same records for the same file each
            time. A file that spark-submit sent (``--files``) is found by its name. Without one,
            records are images, by class.
        codec, classes, image: see :mod:`tarkit.steps.prepare`; classes of None are the folders that
            images are in.
        force: replace the files of an earlier run.
        tally: counts what is skipped: hidden files, and those that give no record.
        context: a SparkContext; None makes one, and stops it at the end.

    Returns:
        The files, by worker and chunk.

    Raises:
        UsageError: files of an earlier run are there.
        TaskError: a task failed; the files that are there stay.
        StreamError: a file is not in the folder after the job, or the source cannot be listed.
    """
    if workers < 1 or records_per_file < 1:
        raise UsageError("the number of workers and of records in a file must be at least 1")
    source, folder = on_all_machines(source), on_all_machines(folder)
    tally = Tally() if tally is None else tally
    lingering: float | None = None
    try:
        with nullcontext(context) if context is not None else new_context("tarkit recordio_gen") as found:
            model = None if model_file is None else _read_model(model_file)
            clear_record_files(folder, force=force)
            with_classes = model is None and classes is None
            slices, named = plan_slices(source, workers, tally, is_tar=is_tar, with_classes=with_classes)
            preparation = Preparation(model, codec, named if with_classes else classes, image)
            task = partial(_write_slice, folder, preparation, records_per_file)
            lingering = seconds_after_end(found)
            written = []
            for files, skipped in run_tasks(found, task, slices):
                written += files
                for reason, count in skipped.items():
                    tally.skip(reason, count)
    finally:
        # After the context, which ends the tasks that still run when a job has failed; and only of
        # this job: a folder that was refused may be that of another one.
        if lingering is not None:
            remove_left_by_tasks(folder, lingering)
    _check(folder, written)
    return written


def _read_model(path: str) -> tuple[str, str]:
    """Return the text and the name of a model file."""
    if local_path(path) is not None and not os.path.exists(path):
        sent = library("pyspark", "a job on Spark", "spark").SparkFiles.get(os.path.basename(path))
        path = sent if os.path.exists(sent) else path
    return read_model_file(path), path


def _write_slice(
    folder: str, preparation: Preparation, records_per_file: int, part: Slice
) -> tuple[list[RecordFile], dict[str, int]]:
    """Write one slice in a task; return the files written and the counts of skipped files."""
    prepare = preparation.function()
    written: list[RecordFile] = []
    tally = Tally()
    try:
        write_record_files(
            prepared(part.files(), prepare, tally),
            folder,
            f"data-{part.number}",
            digits=4,
            records_per_file=records_per_file,
            published=lambda name, records: written.append(RecordFile(base_name(name), records)),
        )
    except LocatedError as error:
        error.url = part.url if error.url is None else error.url
        raise
    return written, tally.skipped


def _check(folder: str, written: Sequence[RecordFile]) -> None:
    """Check that exactly the listed files are in the folder.

    A lost attempt may have written more.
    """
    expected = {file.name for file in written}
    found = {entry.name: entry.url for entry in entries(folder)} if written else {}
    missing = sorted(expected - found.keys())
    if missing:
        raise StreamError(
            f"{missing[0]} was written on another machine and is not here ({counted(len(missing), 'file')} in all)",
            url=folder,
            hint="name a folder that all machines share",
        )
    for name in found.keys() - expected:
        if re.fullmatch(r"data-\d+-\d{4,}", name):
            remove(found[name])
