"""``kubetpl local``: run a manifest on this machine, by the rules of a cluster."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import click

from tarkit.errors import UsageError, counted, printable
from tarkit.k8s.cluster.failures import last_line
from tarkit.k8s.indexset import format_indexes, parse_indexes
from tarkit.k8s.local.env import LocalNode, host_env
from tarkit.k8s.local.jobrun import JobRun, LocalResult
from tarkit.k8s.local.localjob import jobs_of
from tarkit.k8s.local.run import LocalSettings, PodFailure, run_documents
from tarkit.k8s.wellknown import LOGS

from ...shared.program import Seconds, say, standard_options
from ...shared.results import Results
from ...shared.signals import Terminated
from ..generator import asked_for
from ..manifestfile import manifest_documents

_say = partial(say, "kubetpl local")
_LINE_EVERY = 10.0  # seconds
_FAILURE_LINES = 20


@click.command(
    "local",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [job|pod|jobs|indexed|train …]",
)
@click.option("-f", "--file", metavar="MANIFEST", help="YAML or JSON with Jobs and Pods; - is standard input.")
@click.option("-j", "--parallelism", type=click.IntRange(1), help="Pods at once.  [default: the manifest's, or CPUs]")
@click.option("--index", metavar="3,7-9", help="Run only these indexes.")
@click.option("--state", metavar="DIR", help="Where journal and logs are kept.  [default: NAME.kubetpl-local]")
@click.option("--fresh", is_flag=True, help="Forget what an earlier run in the state folder has done, and its logs.")
@click.option(
    "--retry-delay", type=Seconds(), default=1.0, show_default=True,
    help="Seconds before the first retry; each next one waits twice as long, at most 64 times. In a cluster it is "
    "10 s, at most 10 min.",
)  # fmt: skip
@click.option("--inherit-env", is_flag=True, help="Pods see all variables of this shell, and not only those above.")
@click.option(
    "--volume", "volumes", multiple=True, metavar="NAME=DIR", help="Use a folder in the place of a volume or secret."
)
@click.option("--json", "as_json", is_flag=True, help="Print the Jobs' status as JSON when all is over.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but failures and the end.")
@standard_options
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
def command(words: tuple[str, ...], file: str | None, **options: Any) -> int:
    """Run a manifest here: kubetpl local -f job.yaml, or what a generator would print: kubetpl local indexed -n x …

    Each pod is a group of processes. Its variables, retries, limits per index, exit-code rules,
    deadlines, memory limit (on Linux) and logs are as in a cluster. Run it again after it was
    stopped or killed, and it goes on: indexes that are complete are not run again, failed ones are.

    Not as in a cluster: images, users, limits of disk space, and mounts. Commands run as you do, with the
    programs of this machine, each pod, which has one container, in a folder of its own. Arguments and variables
    that are a path in a volume (/scratch/x, @/files/x, --list=/files/x) or the address of a service of the manifest
    (NAME:PORT) are changed to where it is here; scripts are not changed, so write $TMPDIR in them, and not /scratch.
    The clock of activeDeadlineSeconds, and retries,
    begin anew with each run.

    Of this machine's environment pods see PATH, HOME (unless the manifest sets it), LANG, LC_*, TZ,
    proxies, certificates, and what gives access to clouds: AWS_*, GOOGLE_APPLICATION_CREDENTIALS, CLOUDSDK_*, AZURE_*.

    Exit codes: 0 all complete; 1 failed; 3 only failed because samples were set aside, or no sample came out;
    2 the manifest cannot be run.
    """
    documents = _documents(file, words)
    together = words[:1] == ("train",)
    if together:
        pods = sum(job.parallelism for job in jobs_of(documents))
        if (options["parallelism"] or pods) < pods:
            raise UsageError(f"-j {options['parallelism']}: the {pods} pods wait for one another; leave it out")
        options["parallelism"] = pods
    settings = LocalSettings(
        parallelism=options["parallelism"],
        indexes=None if options["index"] is None else set(parse_indexes(options["index"])),
        retry_delay=options["retry_delay"],
        fresh=options["fresh"],
        together=together,
        node=_node(_with_own_programs(host_env(os.environ, everything=options["inherit_env"])), options["volumes"]),
    )
    report = _Report(options["quiet"], options["verbose"])
    with _signals() as caught:
        result = run_documents(documents, options["state"], settings, report, stop=lambda: len(caught))
    _print_end(result)
    if options["as_json"]:
        _print_status(result)
    if result.interrupted:
        _say("run the same command again, and it goes on")
        raise KeyboardInterrupt if caught[0] == signal.SIGINT else Terminated
    return result.exit_code


def _documents(file: str | None, words: Sequence[str]) -> list[dict[str, Any]]:
    """The manifest: of a file, or of a generator with its own options."""
    if words and file is not None:
        raise UsageError(f"give either -f or a generator, not both -f and {printable(words[0])}")
    if words[:1] == ("train",):
        from .train import train_documents

        return train_documents(list(words[1:]))
    if not words and file is None:
        raise UsageError("no manifest: name one with -f, or a generator: kubetpl local indexed -n NAME …")
    if file is None:
        return asked_for(words).documents(_say, here=True)
    return manifest_documents(file)


def _with_own_programs(env: dict[str, str]) -> dict[str, str]:
    """Have tarproc found that was installed together with this program, unless there is another on PATH."""
    beside = os.path.dirname(os.path.abspath(sys.argv[0] if os.path.exists(sys.argv[0]) else sys.executable))
    return {**env, "PATH": os.pathsep.join(filter(None, (env.get("PATH", os.defpath), beside)))}


def _node(env: dict[str, str], volumes: Sequence[str]) -> LocalNode:
    found = {}
    for each in volumes:
        name, mark, folder = each.partition("=")
        if not (name and mark and os.path.isdir(folder)):
            raise UsageError(f"--volume {printable(each)}: write NAME=DIR, with a folder that exists")
        found[name] = os.path.abspath(folder)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
    return LocalNode(socket.gethostname(), cpus, memory, shutil.disk_usage(".").total, env, found)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Signals that came: the first has the pods end, the second has them end at once."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        if len(caught) == 1:
            _say("ending the pods; once more, and they are killed")

    # Ignored ones stay ignored, as under nohup.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.signal(each, note) for each in numbers if signal.getsignal(each) != signal.SIG_IGN}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Report:
    """What is printed while it runs."""

    def __init__(self, quiet: bool, verbose: bool) -> None:
        self._quiet = quiet
        self._failures = 0
        self._most = math.inf if verbose else _FAILURE_LINES
        self._next = time.monotonic() + _LINE_EVERY
        self._last = ""

    def note(self, text: str) -> None:
        if not self._quiet:
            _say(text)

    def pod_failed(self, failure: PodFailure) -> None:
        self._failures += 1
        if self._failures == self._most + 1:
            _say("further failures are not listed (-v lists them all); the logs have everything")
        if self._failures > self._most:
            return
        said = last_line(failure.message)
        _say(
            f"{failure.job} index {failure.index}, attempt {failure.attempt}: exit code {failure.exit_code} "
            f"({failure.reason}; {_MEANING[failure.action]})" + (f": {said}" if said else "")
        )

    def progress(self, jobs: Sequence[JobRun]) -> None:
        if self._quiet or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LINE_EVERY
        ledgers = [job.ledger for job in jobs]
        numbers = [(len(each.done), len(each.failed), len(each.running), each.left) for each in ledgers]
        line = "done {}, failed {}, running {}, left {}".format(*map(sum, zip(*numbers, strict=True)))
        if line != self._last:
            _say(line)
        self._last = line


_MEANING = {
    "Count": "it counts as a failure",
    "Ignore": "it does not count",
    "FailIndex": "the index has failed",
    "FailJob": "the Job has failed",
    "Restart": "it is restarted",
}


def _print_end(result: LocalResult) -> None:
    for job in result.jobs:
        ledger, outcome = job.ledger, job.ledger.outcome
        ended = f"{outcome.type} ({outcome.reason})" if outcome else "not finished"
        parts = (
            f"{job.job.name}: {ended}: done {len(ledger.done)} of {ledger.wanted}",
            f"completedIndexes {format_indexes(ledger.done)}" if job.job.indexed and ledger.done else "",
            f"failedIndexes {format_indexes(ledger.failed)}" if ledger.failed else "",
            counted(ledger.failures, "pod failed", "pods failed") if ledger.failures else "",
            outcome.message if outcome and outcome.reason == "PodFailurePolicy" else "",
            f"{counted(job.samples_lost, 'sample')} came in, and none came out (exit code 3); if that is meant, make "
            "the Job with -- --allow-empty"
            if job.samples_lost
            else "",
        )
        _say("; ".join(filter(None, parts)))
    _say(f"logs: {result.logs}")


def _print_status(result: LocalResult) -> None:
    items = []
    for run in result.jobs:
        metadata = {"name": run.job.name, "annotations": {LOGS: result.logs}}
        items.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "status": run.status()})
    document = items[0] if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}
    with Results(only_messages=True) as results:
        for line in json.dumps(document, indent=2).splitlines():
            results.line(line)
