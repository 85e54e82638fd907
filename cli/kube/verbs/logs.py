"""``kubetpl logs``: of the pods that matter, and what is known of shards whose pods are gone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tarkit.errors import (
    EXIT_OK,
    ClusterError,
    ClusterUnreachableError,
    MissingInputError,
    NoSuchObjectError,
    TarkitError,
    UsageError,
    printable,
)

from ...shared.program import say, verbose_option, version_option
from ...shared.results import Results, counted
from ..clusteroptions import cluster_options, job_argument, open_cluster, record_options
from ..followpod import pod_to_follow
from ..jobwork import read_records
from ..watching import watching

if TYPE_CHECKING:
    from tarkit.k8s.cluster.connection import Cluster
    from tarkit.k8s.cluster.runplan import RunRecords

_PROGRAM = "kubetpl logs"
_MOST_PODS = 100
_EPILOG = """\b
Examples:
  kubetpl logs grey --failed --tail 20
  kubetpl logs grey --index 3,7-9 --grep 'Error|Traceback'
  kubetpl logs grey --shard raw-000123.tar
  kubetpl logs grey --index 3 --follow

\b
Exit codes: 0 something was shown; 66 no such Job, index or shard, or nothing to show; 75 the
cluster cannot be reached.
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
    from tarkit.k8s.cluster.jobview import state_of
    from tarkit.k8s.indexset import parse_indexes

    from ..runjobs import is_run, jobs_named

    if indexes is not None and shard is not None:
        raise UsageError("--index and --shard both say which index; give one")
    wanted = None if indexes is None else set(parse_indexes(indexes))
    matches = _matcher(pattern)
    cluster = open_cluster(options)
    jobs = jobs_named(cluster, name)
    if is_run(jobs, name):
        one = {"--index": indexes, "--shard": shard, "--follow": follow, "--shards": options["specs"],
               "-O": options["outdir"]}  # fmt: skip
        asked = _Asked(cluster, matches, tail, container)
        _of_run(asked, name, jobs, [flag for flag, value in one.items() if value], failed)
        return EXIT_OK
    job = jobs[0]
    if shard is not None:
        wanted = {_index_of(cluster, job, shard, options)}
    if wanted is not None:
        _refuse_absent(job, wanted)
    asked = _Asked(cluster, matches, tail, container)
    lost: set[int] = set()
    if follow:
        failed = False
        pods = [each for each in [pod_to_follow(cluster, job, wanted, _PROGRAM)] if each is not None]
    else:
        failed = failed or (wanted is None and state_of(job)[0] == "failed")
        pods = _pods(cluster, job, wanted, failed)
    if wanted is None and not failed and len(pods) > _MOST_PODS:
        raise UsageError(f"{name} has {len(pods)} pods; say which: --failed, --index SET or --shard NAME")
    with Results() as results:
        shown = _show(asked, pods, results, lost, follow=follow)
        missing = lost | _without_pods(job, pods, wanted, failed)
        if missing:
            shown += _tell_records(cluster, job, missing, results, options)
    if not shown:
        raise MissingInputError(_nothing(name, bool(pods), failed, wanted, pattern))
    return EXIT_OK


class _Asked(NamedTuple):
    """Which lines of a pod's log are wanted."""

    cluster: Cluster
    matches: re.Pattern[bytes] | None
    tail: int | None
    container: str | None


def _refuse_absent(job: dict[str, Any], wanted: Collection[int]) -> None:
    """Refuse indexes that the Job never had.

    Raises:
        MissingInputError: as said.
    """
    from tarkit.k8s.cluster.jobview import name_of

    if not wanted:
        raise UsageError("--index must not be empty; write for example 3,7-9")
    spec = job.get("spec") or {}
    if spec.get("completionMode") != "Indexed":
        raise MissingInputError(f"Job {name_of(job)} has no indexes: it is not an Indexed Job; leave out --index")
    number = int(spec.get("completions") or 0)
    absent = max(wanted)
    if absent >= number:
        raise MissingInputError(f"Job {name_of(job)} has the indexes 0 to {number - 1}; there is no index {absent}")


def _of_run(asked: _Asked, run: str, jobs: list[dict[str, Any]], flags: list[str], failed: bool) -> None:
    """The logs of the failed Jobs of a run, each below the Job's name. flags: what goes with one Job only."""
    from tarkit.k8s.cluster.jobview import name_of, state_of

    from ..runjobs import not_one

    if flags:
        raise not_one(run, jobs, f"and {flags[0]} goes with one")
    ended_badly = [job for job in jobs if state_of(job)[0] == "failed"]
    if not ended_badly and failed:
        raise MissingInputError(f"no Job of run {run} has failed")
    if not ended_badly:
        raise not_one(run, jobs, "none of which has failed")
    found = 0
    with Results() as results:
        for job in ended_badly:
            pods = _pods(asked.cluster, job, None, True)
            if pods:
                results.line(f"==> {name_of(job)} <==")
                found += _show(asked, pods, results, set(), follow=False)
            else:
                say(_PROGRAM, f"{name_of(job)}: its pods are gone, and their logs with them")
    if not found:
        raise MissingInputError(
            f"run {run} has no failed pods any more, or they have written nothing that is asked for"
        )


def _pods(cluster: Cluster, job: dict[str, Any], wanted: Collection[int] | None, failed: bool) -> list[Any]:
    """Those that have the logs."""
    from tarkit.k8s.cluster.joblogs import chosen_pods, pods_with_logs

    live = pods_with_logs(cluster, job, indexes=wanted, failed=failed)
    live.list_anew()
    return chosen_pods(_not_done(job, live.things) if failed else live.things, indexes=wanted, failed=failed)


def _not_done(job: dict[str, Any], pods: Iterable[Any]) -> Iterator[Any]:
    """Without those of indexes that went well later: pods that succeeded are not in the list."""
    from tarkit.k8s.cluster.jobview import index_of
    from tarkit.k8s.indexset import parse_indexes

    done = set(parse_indexes(str((job.get("status") or {}).get("completedIndexes") or "")))
    return (pod for pod in pods if index_of(pod) not in done)


def _matcher(pattern: str | None) -> re.Pattern[bytes] | None:
    try:
        return None if pattern is None else re.compile(pattern.encode())
    except re.error as error:
        raise UsageError(f"--grep: not a regular expression: {error}") from None


def _index_of(cluster: Cluster, job: dict[str, Any], shard: str, options: dict[str, Any]) -> int:
    from tarkit.k8s.cluster.jobstatus import plan_source
    from tarkit.k8s.cluster.runplan import shard_map

    plan, specs = plan_source(cluster, job)
    folder = options["outdir"] or plan.outdir
    named = options["specs"]
    if folder is None or not (named or specs):
        raise UsageError("the Job does not say which shards it has (--raw?); --index names an index")
    return shard_map(plan, named or specs, folder, own=not named).index_of(shard)


def _show(asked: _Asked, pods: list[Any], results: Results, lost: set[int], *, follow: bool) -> int:
    """The number of lines. lost: gets the indexes whose pod went away meanwhile."""
    from tarkit.k8s.cluster.joblogs import has_log, label_of
    from tarkit.k8s.cluster.jobview import index_of

    shown = 0
    for pod in pods:
        prefix = f"[{label_of(pod)}] " if len(pods) > 1 or index_of(pod) is not None else ""
        if not has_log(pod):
            say(_PROGRAM, f"{label_of(pod)}: its container has not started; kubetpl status says why")
            continue
        try:
            for line in _lines(asked, pod, follow):
                if asked.matches is None or asked.matches.search(line):
                    results.line(prefix + line.decode("utf-8", "replace").rstrip("\r"))
                    shown += 1
                    if follow:
                        results.flush()
        except ClusterUnreachableError:
            raise
        except NoSuchObjectError:
            index = index_of(pod)
            lost.update(() if index is None else (index,))
        except ClusterError as error:
            if error.status == 403:
                raise
            say(_PROGRAM, f"{label_of(pod)}: {error}")
    return shown


def _lines(asked: _Asked, pod: dict[str, Any], follow: bool) -> Iterator[bytes]:
    from tarkit.k8s.cluster.failures import main_container
    from tarkit.k8s.cluster.joblogs import followed_log
    from tarkit.k8s.cluster.jobview import name_of

    # Of a pod with several containers, a server wants to be told which.
    container = asked.container or main_container(pod).get("name")
    if follow:
        return followed_log(asked.cluster, name_of(pod), watching(_PROGRAM), container=container, tail=asked.tail)
    return asked.cluster.log(name_of(pod), container=container, tail=asked.tail)


def _without_pods(job: Any, pods: Iterable[Any], wanted: Collection[int] | None, failed: bool) -> set[int]:
    """Indexes that were asked for, or have failed, and have no pod any more."""
    from tarkit.k8s.cluster.jobview import index_of
    from tarkit.k8s.indexset import parse_indexes

    if wanted is None and not failed:
        return set()
    asked = (
        set(wanted)
        if wanted is not None
        else set(parse_indexes(str((job.get("status") or {}).get("failedIndexes") or "")))
    )
    return asked - {index_of(pod) for pod in pods}


def _tell_records(cluster: Cluster, job: Any, missing: set[int], results: Results, options: dict[str, Any]) -> int:
    from tarkit.k8s.indexset import format_indexes

    what = "index" if len(missing) == 1 else "indexes"
    say(_PROGRAM, f"the pods of {what} {format_indexes(missing)} are gone, and their logs with them")
    try:
        records = read_records(cluster, job, options)
    except ClusterUnreachableError:
        raise
    except TarkitError as error:
        say(_PROGRAM, f"no done records: {error}")
        return 0
    if records is None or records.shards is None:
        say(_PROGRAM, "the Job does not say where its done records are; -O OUT and --shards SPEC name them")
        return 0
    shown = 0
    for line in _record_lines(records, missing):
        results.line(line)
        shown += 1
    return shown


def _record_lines(records: RunRecords, indexes: set[int]) -> Iterator[str]:
    found = records.found
    done = set(found.done)
    for index in sorted(indexes):
        for shard in records.shards.of_index(index) if records.shards is not None else ():
            if shard in found.failed:
                yield f"[{index}] {shard}: failed: {found.failed[shard]}"
            elif shard in done:
                aside = f", {counted(found.set_aside[shard], 'sample')} set aside" if shard in found.set_aside else ""
                yield f"[{index}] {shard}: done{aside}"
            else:
                yield f"[{index}] {shard}: {found.stale.get(shard, 'not begun, or cut short')}"


def _nothing(name: str, any_pods: bool, failed: bool, wanted: Collection[int] | None, pattern: str | None) -> str:
    """Why nothing was shown."""
    from tarkit.k8s.indexset import format_indexes

    of = "" if wanted is None else f" of index {format_indexes(wanted)}"
    if any_pods:
        what = "nothing" if pattern is None else f"nothing that --grep {printable(pattern)} finds"
        return f"{name}: its {'failed ' if failed else ''}pods{of} have written {what}"
    return f"{name} has no {'failed ' if failed else ''}pods{of}"
