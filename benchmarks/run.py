"""Measure tarkit against its peers: ``python benchmarks/run.py [names] [--work DIR] [--repeats N]
[--quick]``.

Makes its data and environments on first use, takes the measurements one after the other, and writes
a table and the raw numbers. Only the standard library is needed to start it. Exit code 0:
everything was measured, and all answers agreed (bars may be missed: the table says so); 1:
something could not be measured or compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from environments import CHECKOUT, Settings
from measures import ALL
from report import machine, without_paths, write
from rounds import Line, MeasureError, Result, say


def arguments() -> argparse.Namespace:
    """What the user asked for."""
    parser = argparse.ArgumentParser(description="Measure tarkit against its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which measurements: {', '.join(ALL)} (default: all)")
    parser.add_argument("--work", type=Path, default=CHECKOUT / "benchmarks" / "work", help="folder for data and runs")
    parser.add_argument("--repeats", type=int, default=0, help="rounds after the warm-up (default: 5; 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small data: shows only that it works")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in ALL]
    if unknown:
        parser.error(f"unknown measurement {unknown[0]!r}; the measurements are {', '.join(ALL)}")
    if asked.repeats < 0:
        parser.error("--repeats must be at least 1")
    return asked


def measured(name: str, settings: Settings) -> Result:
    """One measurement, or the reason why it could not be taken."""
    say(f"{name} (load {os.getloadavg()[0]:.2f})")
    try:
        result = ALL[name](settings)
    except MeasureError as error:
        reason = without_paths(error, settings)
        result = Result([Line(name, "-", "-", None, "", "", None, reason)], {"error": reason})
    for line in result.lines:
        value = "not measured" if line.value is None else f"{line.value:,.2f}{line.unit}"
        verdict = "" if line.value is None else f" ({line.verdict})"
        say(f"  {line.measures}; against {line.theirs.partition(':')[0]}: {value}{verdict}; {line.note}")
    return result


def main() -> int:
    """The exit code."""
    asked = arguments()
    settings = Settings(asked.work.resolve(), asked.repeats or (2 if asked.quick else 5), asked.quick)
    settings.work.mkdir(parents=True, exist_ok=True)
    names = asked.names or list(ALL)
    load = os.getloadavg()[0]
    results = {name: measured(name, settings) for name in names}
    try:
        facts = machine(settings)
    except MeasureError as error:
        sys.stderr.write(f"run.py: the table cannot be written: {without_paths(error, settings)}\n")
        return 1
    facts["load before the first measurement"] = f"{load:.2f}"
    page = write(settings, facts, results, set(names) == set(ALL))
    sys.stdout.write(page.read_text())
    say(f"written: {page} and {page.with_suffix('.json').name}")
    return 1 if any(line.value is None for result in results.values() for line in result.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
