"""The table and the raw numbers: what was measured, on what, when."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from environments import (
    CHECKOUT,
    Settings,
    installed,
    old_tarproc_environment,
    tarkit_environment,
    webdataset_environment,
)
from rounds import Line, MeasureError, Result


def processor() -> str:
    """The processor's name and how many of its cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        name = found[1] if found else name
    except OSError:
        name = f"{name} (no /proc/cpuinfo)"
    return f"{' '.join(name.split())}, {len(os.sched_getaffinity(0))} cores"


def slug(text: str) -> str:
    """As part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _first_line(command: Sequence[str]) -> str:
    if shutil.which(command[0]) is None:
        return f"{command[0]} missing"
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    return (done.stdout.strip().splitlines() or ["unknown"])[0]


def _revision() -> str:
    """The commit that was measured, and whether anything was changed since."""
    git = ["git", "-C", str(CHECKOUT)]
    head = _first_line([*git, "rev-parse", "--short=12", "HEAD"])
    measured = [":!benchmarks", ":!docs", ":!tests"]
    changed = _first_line([*git, "status", "--porcelain", "--", ".", *measured]) not in ("", "unknown")
    return f"{head}{' with uncommitted changes' if changed else ''}"


def machine(settings: Settings) -> dict[str, str]:
    """What the numbers depend on.

    No host name, no paths.
    """
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": processor(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "tarkit": _revision(),
        "ImageMagick": _first_line([str(settings.work / "programs" / "convert"), "-version"]).split(" https")[0],
        "GNU parallel": _first_line(["parallel", "--version"]),
        "xargs": _first_line(["xargs", "--version"]),
        "bash": _first_line(["bash", "--version"]),
        "rounds": f"{settings.repeats} after one warm-up",
    }
    peers = (("webdataset", webdataset_environment), ("tarproc", old_tarproc_environment))
    for package, environment in peers:
        facts[f"PyPI {package}"] = installed(environment(settings.work), package)
    facts["tarkit version"] = installed(tarkit_environment(settings.work), "tarkit")
    facts["ImageMagick"] = facts["ImageMagick"].replace(str(settings.work / "programs" / "convert"), "convert")
    return facts


def _row(line: Line) -> str:
    value = "-" if line.value is None else f"{line.value:,.0f}" if line.value >= 100 else f"{line.value:.2f}"
    unit = line.unit.strip()
    cells = [line.measures, line.ours, line.theirs, f"{value} {unit}" if line.value is not None else value]
    bar = line.bar.text("x" if unit.startswith("x ") else f" {unit}") if line.bar else "-"
    cells += [line.spread or "-", bar, line.verdict, line.note]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def table(facts: Mapping[str, str], lines: Sequence[Line], quick: bool) -> str:
    """The page that people read."""
    met = sum(line.verdict == "met" for line in lines)
    missed = sum(line.verdict == "**missed**" for line in lines)
    missing = sum(line.value is None for line in lines)
    parts = [f"# Benchmarks of {facts['date'][:10]}", ""]
    if quick:
        parts += ["**QUICK: small data, few rounds. These numbers show only that the benchmarks run.**", ""]
    parts += [
        f"{met} bars met, {missed} missed, {missing} not measured. "
        "What each line means, and what is unfair about it, is in [the README](../README.md).",
        "",
        "| measurement | tarkit: median (spread) | peer: median (spread) | result | rounds | bar | verdict | note |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(line) for line in lines),
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
    ]
    return "\n".join(parts)


def write(settings: Settings, facts: Mapping[str, str], results: Mapping[str, Result], complete: bool) -> Path:
    """Write the table and the raw numbers side by side; the table's path.

    A complete run at full size goes to ``benchmarks/results``, to be committed; any other into the
    work folder.
    """
    whole = complete and not settings.quick
    folder = CHECKOUT / "benchmarks" / "results" if whole else settings.work / "results"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{facts['date'][:10]}-{slug(facts['machine'])}"
    if not whole:
        name += "-quick" if settings.quick else ""
        name += "" if complete else "-" + "-".join(results)
    lines = [line for result in results.values() for line in result.lines]
    page = folder / f"{name}.md"
    page.write_text(table(facts, lines, settings.quick))
    raw = {
        "facts": dict(facts),
        "quick": settings.quick,
        "measurements": {
            key: {"lines": [dataclasses.asdict(line) for line in result.lines], "raw": result.raw}
            for key, result in results.items()
        },
    }
    page.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
    return page


def without_paths(error: MeasureError, settings: Settings) -> str:
    """The error's text as it may be published."""
    text = str(error)
    for path, word in ((settings.work, "WORK"), (CHECKOUT, "CHECKOUT"), (Path.home(), "HOME")):
        text = text.replace(str(path), word)
    return text
