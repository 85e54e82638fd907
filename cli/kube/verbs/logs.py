"""``kubetpl logs``: of the pods that matter, and what is known of shards whose pods are gone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import click

from tarkit.errors import (
    EXIT_OK,
    ClusterError,
    ClusterUnreachableError,
    MissingInputError,
    NoSuchObjectError,
    TarkitError,
    UsageError,
    counted,
    printable,
)
from tarkit.k8s.apiobject import Object, index_of, indexes_of, name_of, spec_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.failures import deciding_container
from tarkit.k8s.cluster.joblogs import followed_log, has_log, label_of, pod_to_follow, pods_with_logs
from tarkit.k8s.cluster.jobview import state_of
from tarkit.k8s.cluster.runjobs import find_jobs, is_run, not_one
from tarkit.k8s.cluster.runrecords import RunRecords, ShardMap
from tarkit.k8s.cluster.watching import Watching
from tarkit.k8s.indexset import format_indexes, parse_indexes

from ...shared.program import say, verbose_option, version_option
from ...shared.results import Results
from ..clusteroptions import cluster_options, job_argument, open_cluster, record_options, record_source

_PROGRAM = "kubetpl logs"
_MOST_PODS = 100
_EPILOG = """\b
Examples:
  kubetpl logs grey --failed --tail 20
  kubetpl logs grey --index 3,7-9 --grep 'Error|Traceback'
  kubetpl logs grey --shard raw-000123.tar
  kubetpl logs grey --index 3 --follow

\b
Exit codes: 0 something was shown; 2 options that do not go together, or more pods than can be shown;
66 no such Job, index or shard, or nothing to show; 75 the cluster cannot be reached.
"""


@click.command("logs", epilog=_EPILOG)
@job_argument
@click.option("--failed", is_flag=True, help="Of indexes whose last pod failed; the default once the Job has failed.")
@click.option("--index", "indexes", metavar="SET", help="Of these indexes: 3,7-9.")
@click.option("--shard", metavar="NAME|URL", help="Of the index that has this shard.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="The last N lines of each.")
@click.option("--grep", "pattern", metavar="REGEX", help="Only lines in which this is found.")
@click.option("--follow", is_flag=True, help="Wait for the pod, and go on until it has ended; for one index.")
@click.option("--container", metavar="NAME", help="[default: main, or the pod's first]")
@record_options
@cluster_options
@verbose_option
@version_option
def command(
    name: str, failed: bool, indexes: str | None, shard: str | None, tail: int | None, pattern: str | None,
    follow: bool, container: str | None, **options: Any,
) -> int:  # fmt: skip
    """Show what the pods of Job NAME wrote: of each index the last pod's log, its lines behind [INDEX].

    NAME may be a run of kubetpl jobs, too: then the logs of its failed Jobs, each below the Job's name.
    Where the pods of a Job are gone, the done records say what became of the shards.
    """
    if indexes is not None and shard is not None:
        raise UsageError("--index and --shard both say which index; give one")
    wanted = None if indexes is None else set(parse_indexes(indexes))
    matches = _matcher(pattern)
    cluster = open_cluster(options)
    watching = Watching(lambda line: say(_PROGRAM, line))

    def lines_of(pod: Object) -> Iterator[bytes]:
        # For a pod with several containers, a server needs the name of one.
        chosen = container or deciding_container(pod).get("name")
        if follow:
            return followed_log(cluster, name_of(pod), watching, container=chosen, tail=tail)
        return cluster.log(name_of(pod), container=chosen, tail=tail)

    jobs, source = find_jobs(cluster, name), record_source(options)
    printed = _Printed(lambda pod: filter(matches, lines_of(pod)), at_once=follow)
    if is_run(jobs, name):
        one = {"--index": indexes, "--shard": shard, "--follow": follow, "--shards": source.specs,
               "-O": source.outdir}  # fmt: skip
        _of_run(cluster, name, jobs, [flag for flag, value in one.items() if value], failed, printed)
        return EXIT_OK
    job = jobs[0]
    if shard is not None:
        wanted = {_index_of(shard, source.shards(cluster, job)[1])}
    if wanted is not None:
        _refuse_absent(job, wanted)
    failed = not follow and (failed or (wanted is None and state_of(job)[0] == "failed"))
    pods = _pods(cluster, job, wanted, failed, watching if follow else None)
    with printed.results:
        printed.show(pods)
        # Indexes that were asked for, or have failed, and have no pod any more.
        asked = wanted if wanted is not None else indexes_of(job, "failedIndexes") if failed else set()
        missing = printed.lost | (asked - {index_of(pod) for pod in pods})
        if missing:
            printed.records(missing, lambda: source.read(cluster, job))
    if not printed.lines:
        raise MissingInputError(_nothing(name, bool(pods), failed, wanted, pattern))
    return EXIT_OK


def _pods(
    cluster: Cluster, job: Object, wanted: set[int] | None, failed: bool, follow: Watching | None
) -> list[Object]:  # fmt: skip
    """Those whose logs are shown. follow: the one that is waited for."""
    if follow is not None:
        pod = pod_to_follow(cluster, job, wanted, follow)
        return [] if pod is None else [pod]
    pods = pods_with_logs(cluster, job, wanted, failed=failed)
    if wanted is None and not failed and len(pods) > _MOST_PODS:
        raise UsageError(f"{name_of(job)} has {len(pods)} pods; say which: --failed, --index SET or --shard NAME")
    return pods


def _index_of(shard: str, shards: ShardMap | None) -> int:
    if shards is None:
        raise UsageError("the Job does not say which shards it has (--raw?); --index names an index")
    return shards.index_of(shard)


class _Printed:
    """What is printed. lines_of: the lines of a pod's log that are wanted. at_once: they do not wait for others.

    lines: their number. lost: indexes whose pod went away meanwhile.
    """

    def __init__(self, lines_of: Callable[[Object], Iterator[bytes]], *, at_once: bool) -> None:
        self.results = Results()
        self.lines = 0
        self.lost: set[int] = set()
        self._lines_of = lines_of
        self._line = self.results.now if at_once else self.results.line

    def show(self, pods: Collection[Object]) -> None:
        """The logs of pods."""
        for pod in pods:
            index, label = index_of(pod), label_of(pod)
            prefix = f"[{label}] " if len(pods) > 1 or index is not None else ""
            if not has_log(pod):
                say(_PROGRAM, f"{label}: its container has not started; kubetpl status says why")
                continue
            try:
                for line in self._lines_of(pod):
                    self._line(prefix + line.decode("utf-8", "replace").rstrip("\r"))
                    self.lines += 1
            except NoSuchObjectError:
                self.lost.update(() if index is None else (index,))
            except ClusterError as error:
                if error.status == 403:
                    raise
                say(_PROGRAM, f"{label}: {error}")

    def records(self, indexes: set[int], read: Callable[[], RunRecords | None]) -> None:
        """What became of the shards of indexes whose pods are gone."""
        what = "index" if len(indexes) == 1 else "indexes"
        say(_PROGRAM, f"the pods of {what} {format_indexes(indexes)} are gone, and their logs with them")
        try:
            found = read()
        except ClusterUnreachableError:
            raise
        except TarkitError as error:
            say(_PROGRAM, f"no done records: {error}")
            return
        if found is None or found.shards is None:
            say(_PROGRAM, "the Job does not say where its done records are; -O OUT and --shards SPEC name them")
            return
        for index in sorted(indexes):
            for shard in found.shards.of_index(index):
                self.results.line(f"[{index}] {shard}: {_fate(found, shard)}")
                self.lines += 1


def _fate(records: RunRecords, shard: str) -> str:
    """What the done records say of a shard."""
    found = records.found
    if shard in found.failed:
        return f"failed: {found.failed[shard]}"
    if shard in found.stale or shard in found.missing:
        return found.stale.get(shard, "not begun, or cut short")
    return "done" + (f", {counted(found.set_aside[shard], 'sample')} set aside" if shard in found.set_aside else "")


def _refuse_absent(job: Object, wanted: Collection[int]) -> None:
    """Refuse indexes that the Job never had.

    Raises:
        MissingInputError: there are some.
    """
    if not wanted:
        raise UsageError("--index must not be empty; write for example 3,7-9")
    if spec_of(job).get("completionMode") != "Indexed":
        raise MissingInputError(f"Job {name_of(job)} has no indexes: it is not an Indexed Job; leave out --index")
    number, absent = int(spec_of(job).get("completions") or 0), max(wanted)
    if absent >= number:
        raise MissingInputError(f"Job {name_of(job)} has the indexes 0 to {number - 1}; no index {absent}")


def _of_run(
    cluster: Cluster, run: str, jobs: list[Object], flags: list[str], failed: bool, printed: _Printed
) -> None:  # fmt: skip
    """The logs of the failed Jobs of a run, each below the Job's name. flags: what goes with one Job only."""
    if flags:
        raise not_one(run, jobs, f"and {flags[0]} goes with one")
    ended_badly = [job for job in jobs if state_of(job)[0] == "failed"]
    if not ended_badly and failed:
        raise MissingInputError(f"no Job of run {run} has failed")
    if not ended_badly:
        raise not_one(run, jobs, "none of which has failed")
    with printed.results:
        for job in ended_badly:
            pods = pods_with_logs(cluster, job, None, failed=True)
            if pods:
                printed.results.line(f"==> {name_of(job)} <==")
                printed.show(pods)
            else:
                say(_PROGRAM, f"{name_of(job)}: its pods are gone, and their logs with them")
    if not printed.lines:
        raise MissingInputError(
            f"run {run} has no failed pods any more, or they have written nothing that is asked for"
        )


def _matcher(pattern: str | None) -> Callable[[bytes], object]:
    try:
        return re.compile((pattern or "").encode()).search
    except re.error as error:
        raise UsageError(f"--grep: not a regular expression: {error}") from None


def _nothing(name: str, any_pods: bool, failed: bool, wanted: Collection[int] | None, pattern: str | None) -> str:
    """Why nothing was shown."""
    of = "" if wanted is None else f" of index {format_indexes(wanted)}"
    if any_pods:
        what = "nothing" if pattern is None else f"nothing that --grep {printable(pattern)} finds"
        return f"{name}: its {'failed ' if failed else ''}pods{of} have written {what}"
    return f"{name} has no {'failed ' if failed else ''}pods{of}"
