"""Options of downloads, for the verbs that fetch the files of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, counted, printable
from tarkit.names.redaction import redact

from .meter import Meter
from .program import Seconds, option_group, size
from .results import Results
from .series import report_removed, summarize

if TYPE_CHECKING:
    from tarkit.steps.download import DownloadOptions, Outcome
    from tarkit.steps.rowshards import RowsResult

_PREFIX = "url_"
_COUNT: dict[str, Any] = {"type": click.IntRange(1), "show_default": True}
download_options = option_group(
    click.option("--tries", "url_tries", default=6, help="Attempts for a URL, and 300 s of waits.", **_COUNT),
    click.option("--per-host", "url_per_host", default=4, help="Most requests to one host at a time.", **_COUNT),
    click.option("--connections", "url_connections", default=64, help="Most requests at a time.", **_COUNT),
    click.option(
        "--timeout", "url_timeout", type=Seconds(min_open=True), default=60.0, show_default=True, metavar="SECONDS",
        help="Most time for one attempt, to the last byte.",
    ),
    click.option(
        "--max-bytes", "url_max_bytes", type=size, default="100M", show_default=True, metavar="SIZE",
        help="Refuse a larger file.",
    ),
    click.option("--ignore-robots", "url_ignore_robots", is_flag=True, help="Also fetch what robots.txt excludes."),
    click.option(
        "--ignore-opt-out", "url_ignore_opt_out", is_flag=True,
        help="Also fetch what X-Robots-Tag excludes (noai, noimageai, noindex, noimageindex).",
    ),
    click.option(
        "--allow-private", "url_allow_private", is_flag=True,
        help="Also connect to addresses that are not public: this machine and private networks.",
    ),
)  # fmt: skip
"""Options of :class:`tarkit.steps.download.DownloadOptions`."""


def options_of_downloads() -> DownloadOptions:
    """Return the options of :func:`download_options` that the current command was called with."""
    from tarkit.steps.download import DownloadOptions

    given = click.get_current_context().params
    return DownloadOptions(**{name.removeprefix(_PREFIX): given[name] for name in given if is_download(name)})


def is_download(name: str) -> bool:
    """Return True if this is the name of a parameter of :func:`download_options`."""
    return name.startswith(_PREFIX)


def row_counter(meter: Meter) -> Callable[[Outcome], None]:
    """Return a function of the outcome of each row that shows how many there are."""
    rows = failed = 0

    def count(outcome: Outcome) -> None:
        nonlocal rows, failed
        rows, failed = rows + 1, failed + isinstance(outcome, list)
        if meter.is_due():
            meter.show(f"{counted(rows, 'row')} so far, {failed} failed", None)

    return count


def failure_notes(reasons: Mapping[str, int], table: str) -> list[str]:
    """Return a phrase on files that could not be fetched."""
    if not reasons:
        return []
    listed = ", ".join(f"{reason} {number}" for reason, number in reasons.items())
    files = counted(sum(reasons.values()), "file")
    return [f"{files} not fetched ({listed}), listed in {printable(redact(table))}"]


def report_fetched(
    program: str, found: Mapping[str, RowsResult], results: Results, *, notes: list[str], quiet: bool, dry_run: bool
) -> int:
    """Print what was fetched and written in each part; return the exit code."""
    for part, result in found.items():
        failed = failure_notes(result.failed, result.table or "")
        again = ["the same command fetches them again"] if failed else []
        would = [f"{counted(result.waiting, 'row')} to fetch"] if dry_run else []
        about = {"part": part} if part else {}
        report_removed(program, result)
        summarize(
            f"{program}: {part}" if part else program, result, results, notes=[*would, *failed, *again, *notes],
            quiet=quiet, content="new content", failed=result.failed, failed_rows=result.table, **about,
        )  # fmt: skip
        notes = []
    return EXIT_SET_ASIDE if any(result.failed for result in found.values()) else EXIT_OK
