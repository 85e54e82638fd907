"""``tarkit status``: print the states of a folder's shards, from their done records alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tarkit.errors import EXIT_FAILED, EXIT_OK, EXIT_SET_ASIDE, MissingInputError, UsageError, counted

from ..shared.program import Seconds, say, standard_options, work_option
from ..shared.results import Results

if TYPE_CHECKING:
    from tarkit.exchange.workstatus import WorkStatus
    from tarkit.runs.status import Progress

_LISTED = 20
_DAY = 86400.0
_EPILOG = """\b
Examples:
  tarkit status s3://bucket/jpeg
  tarkit status s3://bucket/jpeg 's3://bucket/raw-{000000..000999}.tar' --json
  tarkit status s3://bucket/jpeg --clean --older-than 7200

\b
Exit codes: 0 complete; 3 complete, but samples were set aside, or none came out; 1 shards are missing,
stale or failed; 66 no such folder, or no done record in it.
"""


@click.command("status", epilog=_EPILOG)
@click.argument("outdir", metavar="OUTDIR")
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print all names as one JSON document.")
@click.option("--clean", "wanted", is_flag=True, help="Remove temporary files of killed runs.")
@click.option(
    "--older-than",
    type=Seconds(),
    metavar="SECONDS",
    help="With --clean, in a store: remove only older files, as a slow writer looks like a dead one.  [default: 1 day]",
)
@work_option("allow_empty", help="Accept a run without output samples: do not exit with 3.")
@standard_options
def command(
    outdir: str, inputs: tuple[str, ...], as_json: bool, wanted: bool, older_than: float | None, allow_empty: bool,
    verbose: bool,
) -> int:  # fmt: skip
    """Show which shards of a tarproc -O OUTDIR are done, missing, stale or failed.

    Only records are read, so it works on any machine, during the run and after it: each run writes
    a record into OUTDIR when it begins, and each finished shard has one. INPUT replaces the inputs
    of the run's record; shards whose input has changed are then stale. Long lists are cut; --json
    or -v prints all.

    Of tarkit shuffle, sort, join, reduce and dedup, the slices before the shards are shown, too,
    from OUTDIR/_exchange; with another --work DIR, name DIR.
    """
    import time

    from tarkit.exchange.workstatus import work_status
    from tarkit.names.url import display_name
    from tarkit.runs.status import progress_of
    from tarkit.specs.shardspec import expand
    from tarkit.store.entries import remove_left_behind

    if outdir == "-" or outdir.startswith("pipe:"):
        raise UsageError(f"{display_name(outdir)} is a stream; name the folder")
    if older_than is not None and not wanted:
        raise UsageError("--older-than goes with --clean")
    if wanted:
        for name in remove_left_behind(outdir, older_than=_DAY if older_than is None else older_than, now=time.time()):
            say("tarkit status", f"removed {name}")
    asked = expand(inputs, allow_pipe=False) if inputs else None
    found = progress_of(outdir, asked, of_runs=True, compare_files=True)
    exchange = work_status(outdir)
    is_asked_known = bool(inputs or found.runs)
    if not (inputs or wanted or exchange or found.done or found.unfinished):
        raise MissingInputError(
            "this folder has no done record",
            url=outdir,
            hint="name the OUTDIR of tarproc -O, or its inputs too, to list them as missing; or the DIR of --work DIR",
        )
    is_short = found.lost_samples or (found.empty and not allow_empty)
    is_begun = exchange is not None and not found.runs
    code = EXIT_FAILED if found.unfinished or is_begun else EXIT_SET_ASIDE if is_short else EXIT_OK
    with Results(only_messages=True) as results:
        if as_json:
            known = found.as_dict() | ({} if is_asked_known else {"missing": None})
            known["exchange"] = exchange and exchange.as_dict()
            results.line(json.dumps({"outdir": display_name(outdir), "exit_code": code, **known}))
        else:
            _show(found, exchange, results, None if verbose else _LISTED, allow_empty, is_asked_known=is_asked_known)
    return code


def _show(
    found: Progress, exchange: WorkStatus | None, results: Results, most: int | None, allow_empty: bool, *,
    is_asked_known: bool,
) -> None:  # fmt: skip
    """Print the status as text: first the problems by name, then the totals.

    Args:
        is_asked_known: it is known which shards are missing, from inputs or from records of runs.
    """
    lists = (
        [f"missing {name}" for name in found.missing],
        [f"stale {name}: {why}" for name, why in found.stale.items()],
        [f"failed {name}: {why}" for name, why in found.failed.items()],
        [f"set aside {name}: {counted(count, 'sample')}" for name, count in found.set_aside.items()],
        [f"damaged {name}: the input had damage or dropped fields" for name in found.damaged],
    )
    for lines in lists:
        for line in lines[:most]:
            results.line(line)
        if most is not None and len(lines) > most:
            results.line(f"… and {len(lines) - most} more {lines[0].split()[0]}")
    for line in exchange.lines() if exchange else ():
        results.line(line)
    for run in found.runs if len(found.runs) > 1 else ():
        results.line(f"run {run.record}: {counted(run.asked, 'shard')}, {run.missing} missing")
    for reason, count in found.not_compared.items():
        results.line(f"files that the work uses are not compared for {counted(count, 'shard')}: {reason}")
    if not is_asked_known and exchange is None:
        results.line(
            "what was asked is unknown: the folder has no record of a run; name its inputs to know what is missing"
        )
    if found.empty and not allow_empty:
        came = f"{counted(found.counts.read, 'sample')} came in, and none came out"
        results.line(f"empty: {came}; pass --allow-empty if that is meant")
    numbers = {"done": found.done, "missing": found.missing, "stale": found.stale, "failed": found.failed}
    known = {word: str(len(names)) for word, names in numbers.items()} | (
        {} if is_asked_known else {"missing": "unknown"}
    )
    parts = ", ".join(f"{word} {number}" for word, number in known.items())
    line = f"shards: {parts}; samples of those done: {found.counts.sum_of_samples()}; {found.bytes} bytes"
    results.line("; ".join([line, *found.counts.emptied_phrase()]))
