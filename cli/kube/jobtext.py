"""The status of a Job as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tarkit.errors import counted, printable
from tarkit.k8s.cluster.jobstatus import JobStatus
from tarkit.k8s.cluster.jobview import JobView
from tarkit.k8s.cluster.runjobs import sum_line
from tarkit.k8s.cluster.runrecords import RunRecords
from tarkit.k8s.durations import in_words
from tarkit.k8s.indexset import format_indexes
from tarkit.names.url import display_name

from ..shared.results import Results

MOST = 10
_INDEX_TEXT = 60
_WRONG = ("empty:", "failures:", "not running:", "failed shard", "note:")
"""Beginnings of the lines that a table has below a Job."""


def status_lines(status: JobStatus, most: int | None = MOST) -> Iterator[str]:
    """Yield the lines of a Job's status, the most important first.

    Args:
        most: largest number of entries of each list; None prints all of them.
    """
    for note in status.notes:
        yield f"note: {note}"
    view = status.view
    if view is None:
        yield f"{status.name}: from its done records alone"
    else:
        yield f"{view.name}: {_state(view)}"
        if status.done_all_the_same:
            yield f"but every shard has its done record: exit code {status.exit_code}"
        yield f"{'pods' if view.total is None else 'indexes'}: {_numbers(view)}{_time_left(view)}"
    if status.records is not None:
        yield from _shards(status.records, most)
    yield from (reason.line for reason in status.reasons)
    yield from _failures(status, most)


def show_status(
    results: Results, found: Sequence[JobStatus], retried: int, deleted: Sequence[str] = (), *, verbose: bool = False,
    all_of_them: bool = True,
) -> None:  # fmt: skip
    """Print the status of one Job, or a table of several Jobs and their sum.

    Args:
        retried: number of Jobs that a retry replaced.
        deleted: number of Jobs that were deleted.
        all_of_them: complete Jobs have a line, too.
    """
    if len(found) == 1 and not deleted:
        for line in status_lines(found[0], None if verbose else MOST):
            results.line(line)
        return
    shown = [each for each in found if all_of_them or each.exit_code or each.done_all_the_same]
    for line in (*table_lines(shown), *(f"{name}: deleted before it had ended" for name in deleted)):
        results.line(line)
    states = [each.view.state for each in found if each.view is not None]
    results.line(sum_line(states, retried, len(deleted)))


def short_line(view: JobView) -> str:
    """Return one line for ``--watch``: the counts of indexes and the estimated end."""
    return f"{view.name}: {view.state}, {_numbers(view)}{_time_left(view)}"


def table_lines(found: Iterable[JobStatus]) -> Iterator[str]:
    """Yield one line for each Job, followed by lines about its problems."""
    for each in found:
        yield short_line(each.view) if each.view is not None else each.name
        if each.exit_code or each.failures or each.reasons or each.notes:
            yield from (f"  {line}" for line in status_lines(each) if line.startswith(_WRONG))


def _state(view: JobView) -> str:
    since = "" if view.seconds is None else f" {'after' if view.finished else 'for'} {in_words(view.seconds)}"
    why = f" ({view.reason})" if view.reason else ""
    message = f": {printable(view.message)}" if view.message and view.state == "failed" else ""
    return f"{view.state}{since}{why}{message}"


def _time_left(view: JobView) -> str:
    return "" if view.seconds_left is None else f"; about {in_words(view.seconds_left)} left"


def _numbers(view: JobView) -> str:
    running = f"{view.running} running" if view.running or not view.ending else ""
    running = ", ".join(filter(None, (running, f"{view.ending} ending" if view.ending else "")))
    if view.total is None:
        return f"{view.done} done, {running}, {view.pending} pending"
    pending = f", {view.pending} with a pod that does not run yet" if view.pending else ""
    return f"{view.done} of {view.total} done, {running}{pending}, {view.failed} failed, {view.left} left"


def _shards(records: RunRecords, most: int | None) -> Iterator[str]:
    found = records.found
    if records.is_empty:
        came = f"{counted(found.counts.read, 'sample')} came in, and none came out"
        yield f"empty: {came}; if that is meant, make the Job with -- --allow-empty"
    of = "" if records.total is None else f" of {records.total}"
    missing = "" if records.total is None and not found.runs else f", {len(found.missing)} missing"
    stale = f", {len(found.stale)} stale" if found.stale else ""
    counts = f"{len(found.done)}{of} done{missing}, {len(found.failed)} failed{stale}"
    yield f"shards: {counts}; records in {printable(display_name(records.outdir))}"
    if found.done and found.bytes:
        yield "; ".join([f"samples: {found.counts.sum_of_samples()}", *found.counts.emptied_phrase()])
    if records.any_command and found.done:
        yield (
            "note: shards made by any command are counted, since a file in the container, or one of its variables, "
            "decides what the Job's does"
        )
    for reason, number in found.not_compared.items():
        yield f"note: files that the work uses are not compared for {counted(number, 'shard')}: {reason}"
    yield from _listed("failed shard", found.failed, most)
    yield from _listed("stale shard", found.stale, most)
    if found.set_aside:
        number = sum(found.set_aside.values())
        yield (
            f"set aside: {counted(number, 'sample')} of {counted(len(found.set_aside), 'shard')}, in *.failed.tar "
            "there; tarproc --retry-failed runs just those"
        )
    if found.damaged:
        yield f"damaged: {counted(len(found.damaged), 'shard')} whose input had damage or dropped fields"


def _listed(word: str, names: Mapping[str, str], most: int | None) -> Iterator[str]:
    for name, why in list(names.items())[:most]:
        yield f"{word} {name}: {printable(why)}"
    if most is not None and len(names) > most:
        yield f"… and {len(names) - most} more (-v shows all)"


def _failures(status: JobStatus, most: int | None) -> Iterator[str]:
    failures = status.failures
    for each in failures[:most]:
        advice = "done since" if status.done_all_the_same else each.advice
        said = f' "{each.message}"' if each.message else ""
        where = f" on {'index' if len(each.indexes) == 1 else 'indexes'} {_cut(each.indexes)}" if each.indexes else ""
        yield f"failures: {each.title} ×{each.count}{said}{where}: {advice}"
    if most is not None and len(failures) > most:
        yield f"… and {len(failures) - most} more kinds of failures (-v shows all)"


def _cut(indexes: list[int]) -> str:
    text = format_indexes(indexes)
    return text if len(text) <= _INDEX_TEXT else f"{text[:_INDEX_TEXT].rpartition(',')[0]},…"
