"""A look at the data: a contact sheet of photos, one page."""

from __future__ import annotations

import statistics
import time

from data import photo_shard
from environments import Settings, call, settle, viewing_environment
from rounds import Bar, Line, MeasureError, Result, Side, Trial, raw_trials, shown, take_turns, timed

from measures.loop import run_loop

_SECONDS = 6


def contact_sheet(settings: Settings) -> Result:
    """``tarkit show --html``, the whole process, beside a loop that only makes the thumbnails."""
    shard = photo_shard(settings, 100 if settings.quick else 2000)
    environment = viewing_environment(settings.work)

    def page(_number: int) -> Trial:
        target = settings.fresh("sheet") / "sheet.html"
        settle()
        begin = time.perf_counter()
        call([environment.program("tarkit"), "show", shard.path, "--html", target, "-p", "2"])
        seconds = time.perf_counter() - begin
        return Trial(seconds, {"samples": target.read_bytes().count(b'"data:image/jpeg;base64,')})

    def loop(_number: int) -> Trial:
        result = run_loop(environment, "thumbnails_pillow", [shard.path])
        return Trial(result["seconds"], result["evidence"])

    sides = [Side("tarkit show --html", page), Side("Image.thumbnail in a loop", loop)]
    trials = take_turns(sides, settings.repeats)
    for side in sides:
        for trial in trials[side.name]:
            if trial.evidence["samples"] != shard.samples:
                raise MeasureError(f"{side.name}: {trial.evidence['samples']} of {shard.samples} photos")
    seconds = timed(trials[sides[0].name])
    line = Line(
        f"tarkit show --html -p 2, a page with {shard.samples:,} photos",
        f"tarkit show --html: {shown(seconds, shard.samples, 'photos')}",
        f"no bar: Image.thumbnail in a loop: {shown(timed(trials[sides[1].name]), shard.samples, 'photos')}",
        statistics.median(seconds),
        " s",
        f"{min(seconds):.2f}-{max(seconds):.2f}",
        Bar(_SECONDS, at_least=False),
        "tarkit: the whole process, with reading the tar and writing the page to the disk; the loop: one process, "
        "thumbnails only",
    )
    return Result([line], raw_trials(trials))
