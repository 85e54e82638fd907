"""A plan and its estimate in lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from tarkit.errors import printable
from tarkit.k8s.durations import in_words
from tarkit.k8s.plan.estimate import POD_START, PODS_PER_SECOND, Estimate
from tarkit.k8s.plan.measure import Measured
from tarkit.k8s.plan.sliceplan import ShardPlan
from tarkit.redaction import redact

_UNITS = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def plan_lines(
    plan: ShardPlan,
    parallelism: int,
    made: Estimate,
    *,
    measured: Measured | None = None,
    shard_seconds: float | None = None,
    spot: bool = False,
) -> list[str]:
    """What ``kubetpl plan`` says.

    measured, shard_seconds: what ``made`` was told from; neither: the time is not known.
    """
    shards, slices = _counted(plan.shards, "shard"), _counted(plan.slices, "slice")
    at_once = min(parallelism, plan.slices)
    lines = [f"{shards}, {_size(plan)} → {slices}, {at_once:,} at a time, {_counted(made.waves, 'wave')}"]
    lines += _time(made, measured, shard_seconds, spot)
    lines.append(_where(plan))
    return lines + [f"note: {note}" for note in plan.notes]


def _time(made: Estimate, measured: Measured | None, shard_seconds: float | None, spot: bool) -> Iterator[str]:
    if measured is not None:
        rate = measured.per_byte
        of_bytes = "" if rate is None else f"{_range(rate.median * 1e9, rate.least * 1e9, rate.greatest * 1e9)} s/GB, "
        each = measured.per_shard
        yield (
            f"measured {of_bytes}{_range(each.median, each.least, each.greatest)} s a shard on "
            f"{_counted(measured.shards, 'shard')} (--measure {measured.shards}, on this machine)"
        )
    elif shard_seconds is not None:
        yield f"{shard_seconds:,.10g} s a shard, as --shard-seconds says"
    if made.seconds is None or made.slice_seconds is None or made.cpu_hours is None or made.gib_hours is None:
        yield "time and cost are not known: --measure 3 runs 3 shards here, or say --shard-seconds"
        return
    memory = f", ~{_rough(made.gib_hours)} GiB-h" if made.gib_hours else ""
    cost = "no price is configured (price: {cpu_hour: …} in kubetpl.yaml)"
    if made.cost is not None:
        cost = f"${made.cost:,.2f} at your prices{', on spot nodes' if spot else ''}"
    yield f"→ ~{in_words(made.seconds)}; ~{_rough(made.cpu_hours)} CPU-h{memory}; {cost}"
    yield (
        f"  of it in a pod ~{in_words(made.slice_seconds)}, and {POD_START:g} s to start; if {PODS_PER_SECOND:g} pods "
        "a second can be started, none waits for a node, and nothing is done twice"
    )


def _where(plan: ShardPlan) -> str:
    specs = ", ".join(printable(redact(spec)) for spec in plan.specs[:3])
    more = f" and {len(plan.specs) - 3} more" if len(plan.specs) > 3 else ""
    if plan.source == "pattern":
        return f"shards by pattern: {specs}{more}"
    return f"list of shards in a {'ConfigMap beside the Job' if plan.entries is not None else 'bucket'}: {specs}{more}"


def _size(plan: ShardPlan) -> str:
    if plan.total_bytes is None:
        return "bytes not known (--sizes all or sample asks)"
    return f"{byte_size(plan.total_bytes)}{f' (sampled {plan.sampled})' if plan.sampled else ''}"


def byte_size(number: int) -> str:
    """``1.18 TB``: three digits, powers of 1000."""
    for unit, name in _UNITS:
        # What would be rounded to 1000 of a unit is 1 of the next one.
        if number >= unit * 0.9995:
            value = number / unit
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {name}"
    return f"{number} bytes"


def _range(median: float, least: float, greatest: float) -> str:
    return _three(median) if least == greatest else f"{_three(median)} ({_three(least)} to {_three(greatest)})"


def _three(number: float) -> str:
    """Three digits that count: ``0.0123``, ``41.2``, ``3,610``."""
    return f"{number:.3g}" if number < 999.5 else f"{float(f'{number:.3g}'):,.0f}"


def _rough(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.2g}"


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word if number == 1 else word + 's'}"
