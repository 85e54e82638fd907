"""The shard service: how many shards a second, how soon a report is answered, and what reading
through it costs.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from data import photo_shard
from environments import (
    Environment,
    Settings,
    call,
    elasticai_environment,
    elasticdl_environment,
    installed,
    service_environment,
)
from rounds import Bar, Line, MeasureError, Result, Side, Trial, compare, raw_trials, shown, take_turns, timed

from measures.loop import LOOPS, run_loop

_ORIGINAL = 1470
"""Pairs of a fetch and a report per second of ElasticDL's own service with four clients, two cores.
"""
_CLIENTS = 4
_WORKERS = 100


@contextmanager
def _service(environment: Environment, state: Path, *dataset: str) -> Iterator[str]:
    """The address of a service with one data set."""
    with _started([environment.python, LOOPS / "serve_shards.py", "service", state, *dataset]) as process:
        yield _address(process)


@contextmanager
def _started(words: Sequence[str | Path]) -> Iterator[subprocess.Popen[str]]:
    """A process, whose log is thrown away, and which is killed in the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen(list(map(str, words)), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as made:
        try:
            yield made
        finally:
            made.kill()


def _said(process: subprocess.Popen[str], line: str = "") -> str:
    """What a process answers to a line, or says without one."""
    if process.stdin is None or process.stdout is None:
        raise MeasureError("a process has no input or output")
    if line:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def _address(service: subprocess.Popen[str]) -> str:
    return f"127.0.0.1:{int(_said(service) or 0)}"


def _together(commands: Sequence[Sequence[str]], variables: dict[str, str]) -> tuple[float, list[dict[str, Any]]]:
    """Seconds from the start, when all are ready, to the end of the last one.

    And what each of them answered.
    """
    processes = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | variables)
        for words in commands
    ]
    for process in processes:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise MeasureError("a client did not start")
    begin = time.perf_counter()
    for process in processes:
        if process.stdin is not None:
            process.stdin.write("\n")
            process.stdin.flush()
    texts = [process.communicate(timeout=600)[0] for process in processes]
    seconds = time.perf_counter() - begin
    if any(process.returncode for process in processes):
        raise MeasureError("a client failed")
    return seconds, [json.loads(text.splitlines()[-1])["evidence"] for text in texts]


def _rate(measures: str, name: str, trials: list[Trial], shards: int, bar: float) -> Line:
    seconds = timed(trials)
    rates = [shards / each for each in seconds]
    own = f"{name}: {shown(seconds, shards, 'pairs')}"
    spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
    return Line(measures, own, "a fixed bar", statistics.median(rates), "/s", spread, Bar(bar, at_least=True))


def pairs(settings: Settings) -> Result:
    """Four clients fetch and report all shards of a data set, with the state on the disk."""
    ours, theirs = service_environment(settings.work), elasticai_environment(settings.work)
    many, few = (20_000, 2000) if settings.quick else (100_000, 4000)
    folder = settings.fresh("serve-pairs")

    def side(shards: int, environment: Environment, *words: str) -> Any:
        def run(number: int) -> Trial:
            state = folder / f"{environment.folder.name}-{'-'.join(words)}-{number}"
            with _service(ours, state, "pairs", str(shards * 10), "10") as address:
                own = [str(environment.python), str(LOOPS / f"{words[0]}.py")]
                own += ["pairs", address, *words[1:]] if environment is ours else ["pairs"]
                seconds, found = _together([own] * _CLIENTS, {"DLROVER_MASTER_ADDR": address})
            return Trial(seconds, {"shards": sum(each["shards"] for each in found)})

        return run

    peer = f"{installed(theirs, 'elasticai-api')} on this service"
    names = ["ShardClient", "ShardClient, one by one", peer]
    sides = [
        Side(names[0], side(many, ours, "serve_shards")),
        Side(names[1], side(few, ours, "serve_shards", "one_by_one")),
        Side(names[2], side(few, theirs, "serve_elasticai")),
    ]
    trials = take_turns(sides, settings.repeats)
    what = f"fetch and report, {_CLIENTS} client processes, state on the disk"
    lines = [
        _rate(what, names[0], trials[names[0]], many, 3 * _ORIGINAL),
        compare(
            f"{what}, each report on the disk before the next fetch",
            trials,
            names[1],
            names[2],
            Bar(0.8, at_least=True),
            agree=("shards",),
            per_second=(few, "pairs"),
        ),
    ]
    return Result(lines, raw_trials(trials))


def elasticdl(settings: Settings) -> Result:
    """100 workers fetch tasks and report them: this service, its state on the disk, and ElasticDL's
    own, in memory.
    """
    ours, theirs = service_environment(settings.work), elasticdl_environment(settings.work)
    tasks, rounds = 500 if settings.quick else 2000, settings.repeats * (1 if settings.quick else 5)
    records, folder = str(tasks * (rounds + 1) * 10), settings.fresh("serve-elasticdl")
    peer = installed(theirs, "elasticdl")
    names = {
        "master": "proto.Master of this service",
        "shards": "tarkit's protocol",
        "joined": "tarkit's protocol, one call to report and fetch",
        "elasticdl": peer,
    }
    with ExitStack() as stack:
        sides = []
        for protocol, name in names.items():
            environment, words = ours, ["serve_shards.py", "service", str(folder / protocol), "data", records, "10"]
            if protocol == "elasticdl":
                environment, words = theirs, ["serve_elasticdl.py", records, "10"]
            service = stack.enter_context(_started([environment.python, LOOPS / words[0], *words[1:]]))
            own = [environment.python, LOOPS / "serve_workers.py", protocol, _address(service), str(_WORKERS)]
            workers = stack.enter_context(_started(own))
            if _said(workers) != "ready":
                raise MeasureError(f"the workers of {name} did not start")
            sides.append(Side(name, _turn(service, workers, tasks)))
        trials = take_turns(sides, rounds)
    what = f"fetch and report, {_WORKERS} workers"
    costs = {
        name: [Trial(float(each.evidence["processor"]), each.evidence) for each in trials[name]] for name in trials
    }
    bar, agree, per_second = Bar(1.2, at_least=True), ("tasks", "records"), (tasks, "tasks")
    lines = [
        compare(text, each, names[protocol], peer, bar, agree=agree, per_second=per_second)
        for text, each in ((what, trials), (f"{what}: processor time of the service", costs))
        for protocol in names
        if names[protocol] != peer
    ]
    return Result(lines, raw_trials(trials))


def _turn(service: subprocess.Popen[str], workers: subprocess.Popen[str], tasks: int) -> Callable[[int], Trial]:
    def run(_number: int) -> Trial:
        before = _processor_seconds(service.pid)
        text = _said(workers, str(tasks))
        if not text:
            raise MeasureError("the workers failed, or the service did")
        found = json.loads(text)
        used = _processor_seconds(service.pid) - before
        return Trial(found["seconds"], {**found["evidence"], "processor": f"{used:.4f}"})

    return run


def _processor_seconds(process: int) -> float:
    """Of all threads that a process has now."""
    nanoseconds = 0
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def answers(settings: Settings) -> Result:
    """A report while 500 fetches are held; an epoch of two million shards.

    A worker that falls silent.
    """
    environment = service_environment(settings.work)
    folder = settings.fresh("serve-answers")
    reports, lines, raw = 200 if settings.quick else 1000, [], {}
    late, epochs, silent = [], [], []
    for number in range(settings.repeats):
        with _service(environment, folder / f"latency-{number}", "latency", str(reports * 10), "10") as address:
            late.append(run_loop(environment, "serve_shards", ["latency", address, str(reports)]))
        epochs.append(run_loop(environment, "serve_shards", ["epoch", "2000000"]))
        with _service(environment, folder / f"lost-{number}", "lost", "1000", "10") as address:
            silent.append(run_loop(environment, "serve_shards", ["lost", address]))
    for name, what, found, limit in (
        ("latency", "99th percentile of a report while 500 fetches are held", late, 0.05),
        ("epoch", "begin an epoch of 2,000,000 shuffled shards", epochs, 0.05),
        ("lost", "from the end of a silent worker's lease to the next lease of its shard", silent, 1.0),
    ):
        seconds = [float(each["seconds"]) for each in found]
        spread, value = f"{min(seconds):.4f}-{max(seconds):.4f}", statistics.median(seconds)
        note = ", ".join(f"{key} {number}" for key, number in found[-1]["evidence"].items())
        own = f"tarkit: {shown(seconds, 0, '')}"
        lines.append(Line(what, own, "a fixed bar", value, " s", spread, Bar(limit, at_least=False), note))
        raw[name] = found
    return Result(lines, raw)


def photos(settings: Settings) -> Result:
    """Photos out of tar shards, two workers: ranges from a service, against every second file read
    directly.
    """
    environment = service_environment(settings.work)
    samples, epochs = (200, 4) if settings.quick else (1000, 64)
    shard, folder = photo_shard(settings, samples).path, settings.fresh("serve-photos")
    files = [folder / f"photos-{number}.tar" for number in range(8)]
    for file in files:
        file.symlink_to(shard)
        call([environment.program("tarkit"), "index", file])
    spec = str(folder / "photos-{0..7}.tar")
    loop = [str(environment.python), str(LOOPS / "serve_shards.py"), "photos", spec]
    listed = json.dumps([(str(file), samples) for file in files])

    def trial(commands: Sequence[Sequence[str]]) -> Trial:
        seconds, found = _together(commands, {})
        return Trial(seconds, {key: sum(each[key] for each in found) for key in ("samples", "bytes")})

    def served(number: int) -> Trial:
        state = folder / f"state-{number}"
        with _service(environment, state, "photos", "0", "500", listed, str(epochs)) as address:
            return trial([[*loop, address, "0", "0"]] * 2)

    def direct(_number: int) -> Trial:
        return trial([[*loop, "", share, str(epochs)] for share in ("0", "1")])

    names = ["ranges of 500 samples from a service", "whole files, read directly"]
    trials = take_turns([Side(names[0], _costed(served)), Side(names[1], _costed(direct))], settings.repeats)
    total = (8 * samples * epochs, "samples")
    what = f"read {total[0]:,} photo samples, 2 workers"
    costs = {name: [Trial(float(each.evidence["processor"]), each.evidence) for each in trials[name]] for name in names}
    lines = [
        compare(text, each, *names, Bar(0.9, at_least=True), agree=("samples", "bytes"), per_second=total)
        for text, each in ((what, trials), (f"{what}: processor time of all processes, their start included", costs))
    ]
    return Result(lines, raw_trials(trials))


def _costed(run: Callable[[int], Trial]) -> Callable[[int], Trial]:
    """Such trials, with the processor time of all their processes, in seconds."""

    def costed(number: int) -> Trial:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        trial = run(number)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Trial(trial.seconds, {**trial.evidence, "processor": f"{seconds:.3f}"})

    return costed
