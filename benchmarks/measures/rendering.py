"""Manifests of many Jobs, and of one Job over many shards."""

from __future__ import annotations

import hashlib
import re
import statistics
import time

from environments import Settings, call, kubectl_environment, tarkit_environment
from rounds import Bar, Line, Result, Side, Trial, compare, raw_trials, shown, take_turns, timed

JOBS = 148
SHARDS = 1_000_000
_COMMAND = "curl -sf https://example.com/raw-{i}.tar | tarproc -c true"


def _trial(texts: list[str], seconds: float) -> Trial:
    names = sorted(re.findall(r"^  name: (job[0-9]{4})$", "\n".join(texts), re.MULTILINE))
    commands = sorted(set(re.findall(r"raw-[0-9]{4}\.tar", "\n".join(texts))))
    digest = hashlib.sha256("\n".join([*names, *commands]).encode()).hexdigest()
    return Trial(seconds, {"jobs": len(names), "names and commands": digest})


def jobs_148(settings: Settings) -> Result:
    """``kubetpl jobs --over`` against a loop of ``kubectl create job --dry-run=client``, which also
    needs no server.
    """
    ours = tarkit_environment(settings.work).program("kubetpl")
    theirs = kubectl_environment(settings.work).program("kubectl")
    home = {"HOME": str(settings.fresh("kubectl-home")), "KUBECONFIG": "/dev/null"}

    def kubetpl(_number: int) -> Trial:
        begin = time.perf_counter()
        text = call([ours, "jobs", "-n", "job{i}", "-c", _COMMAND, "--over", f"{{0000..{JOBS - 1:04d}}}"])
        return _trial([text], time.perf_counter() - begin)

    def kubectl(_number: int) -> Trial:
        begin = time.perf_counter()
        texts = []
        for number in range(JOBS):
            command = _COMMAND.replace("{i}", f"{number:04d}")
            words = ["create", "job", f"job{number:04d}", "--image=ubuntu:24.04", "--dry-run=client", "-o", "yaml"]
            texts.append(call([theirs, *words, "--", "bash", "-c", command], variables=home))
        return _trial(texts, time.perf_counter() - begin)

    sides = [Side("kubetpl jobs", kubetpl), Side("kubectl create job, one after the other", kubectl)]
    trials = take_turns(sides, settings.repeats)
    what = f"print {JOBS} Jobs"
    agree = ("jobs", "names and commands")
    names = [side.name for side in sides]
    line = compare(what, trials, names[0], names[1], Bar(1, at_least=True), agree=agree, per_second=(JOBS, "Jobs"))
    seconds = timed(trials[names[0]])
    return Result([line, _absolute(what, names[0], seconds, JOBS, "Jobs")], raw_trials(trials))


def _absolute(what: str, name: str, seconds: list[float], count: int, unit: str) -> Line:
    spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
    value = statistics.median(seconds)
    own = f"{name}: {shown(seconds, count, unit)}"
    return Line(what, own, "a fixed bar", value, " s", spread, Bar(1, at_least=False))


def indexed_million(settings: Settings) -> Result:
    """``kubetpl indexed`` over a million shards by a pattern: how long, and how large the manifest
    is.
    """
    program = tarkit_environment(settings.work).program("kubetpl")
    pattern = f"s3://bucket/raw-{{000000..{SHARDS - 1:06d}}}.tar"
    words = ["indexed", "-n", "run", "-I", "image", "-c", "true", "--shards", pattern, "-O", "s3://bucket/out"]
    sizes: list[int] = []

    def run(_number: int) -> Trial:
        begin = time.perf_counter()
        text = call([program, *words])
        seconds = time.perf_counter() - begin
        sizes.append(len(text.encode()))
        found = re.search(r'tarkit\.dev/shards: "([0-9]+)"', text)
        return Trial(seconds, {"shards": int(found[1]) if found else 0})

    side = Side("kubetpl indexed", run)
    trials = take_turns([side], settings.repeats)
    what = f"print an Indexed Job over {SHARDS:,} shards"
    line = _absolute(what, side.name, timed(trials[side.name]), SHARDS, "shards")
    wrong = {trial.evidence["shards"] for trial in trials[side.name]} != {SHARDS}
    largest = max(sizes) / 1000
    size = Line(what, f"{side.name}: {largest:.1f} kB", "a fixed bar", largest, " kB", "", Bar(20, False), wrong=wrong)
    return Result([line, size], raw_trials(trials))
