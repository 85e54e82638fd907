"""What tarproc itself costs: a command that does nothing, and a mapper that returns its sample."""

from __future__ import annotations

import statistics
import time

from data import Shard, long_photo_shard, small_shard
from environments import Settings, call, settle, system_program, tarkit_environment
from rounds import Bar, Line, MeasureError, Result, Side, Trial, compare, raw_trials, shown, take_turns, timed

from measures.archive import listed
from measures.loop import LOOPS, run_loop


def _tarproc(settings: Settings, name: str, arguments: list[str]) -> Trial:
    """One clocked run of tarproc as a whole process, writing ``out.tar`` into a fresh folder."""
    program = tarkit_environment(settings.work).program("tarproc")
    folder = settings.fresh(name)
    settle()
    begin = time.perf_counter()
    call([program, *arguments, "-o", "out.tar"], folder=folder, variables={"TMPDIR": str(folder)})
    seconds = time.perf_counter() - begin
    evidence = listed(folder / "out.tar")
    settings.fresh(name)
    return Trial(seconds, evidence)


def empty_command(settings: Settings) -> Result:
    """``tarproc -c :`` with one slot, against the loop that anybody would write first."""
    shard = small_shard(settings, 300 if settings.quick else 3000)
    environment = tarkit_environment(settings.work)

    def loop(_number: int) -> Trial:
        folder = settings.fresh("empty-loop")
        settle()
        result = run_loop(environment, "spawn_bash", [folder, str(shard.samples)])
        settings.fresh("empty-loop")
        return Trial(result["seconds"], result["evidence"])

    sides = [
        Side("tarproc -c :", lambda _: _tarproc(settings, "empty-tarproc", ["-p", "1", "-c", ":", str(shard.path)])),
        Side("mkdir, write, bash -c :", loop),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"a command that does nothing, {shard.samples:,} small samples, one slot",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(0.7, at_least=False),
        agree=("samples",),
        per_second=(shard.samples, "samples"),
        note="tarproc: the whole process, reading and writing tar included; the loop: only the loop, from memory",
    )
    return Result([line], raw_trials(trials))


def _copy(settings: Settings, shard: Shard) -> Trial:
    """One clocked copy of the shard to the disk with dd: what writing as many bytes costs anybody
    here.
    """
    program = system_program("dd", "coreutils")
    target = settings.fresh("map-copy") / "out.tar"
    settle()
    begin = time.perf_counter()
    call([program, f"if={shard.path}", f"of={target}", "bs=1M", "conv=fsync"])
    seconds = time.perf_counter() - begin
    evidence = listed(target)
    settings.fresh("map-copy")
    return Trial(seconds, evidence)


def map_photos(settings: Settings) -> Result:
    """A Python mapper that returns its sample: samples per second of the whole process."""
    shard = long_photo_shard(settings, 2000 if settings.quick else 20_000)
    want = listed(shard.path)
    arguments = ["-p", "2", "--map", f"{LOOPS / 'mapper.py'}:unchanged", str(shard.path)]
    sides = [
        Side("tarproc --map", lambda _: _tarproc(settings, "map", arguments)),
        Side("dd conv=fsync", lambda _: _copy(settings, shard)),
    ]
    trials = take_turns(sides, settings.repeats)
    for trial in trials["tarproc --map"]:
        if trial.evidence != want:
            raise MeasureError(f"the output is not the input: {trial.evidence['samples']} of {want['samples']} samples")
    seconds = timed(trials["tarproc --map"])
    rates = [shard.samples / each for each in seconds]
    line = Line(
        f"tarproc -p 2 --map, mapper returns its sample, {shard.samples:,} photos of 50 kB",
        f"tarproc --map: {shown(seconds, shard.samples, 'samples')}",
        f"no bar: dd conv=fsync, a plain copy: {shown(timed(trials['dd conv=fsync']), shard.samples, 'samples')}",
        shard.samples / statistics.median(seconds),
        " samples/s",
        f"{min(rates):,.0f}-{max(rates):,.0f}",
        Bar(5000, at_least=True),
        "whole process, start-up and safe writing of the output to the disk included",
    )
    return Result([line], raw_trials(trials))
