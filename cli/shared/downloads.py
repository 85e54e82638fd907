"""Options of downloads, for the verbs that fetch the files of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .program import Seconds, option_group, size

if TYPE_CHECKING:
    from tarkit.steps.download import DownloadOptions

_COUNT = click.IntRange(1)
_OPTIONS: dict[str, dict[str, Any]] = {
    "tries": {"type": _COUNT, "default": 6, "help": "Attempts for a URL, within 300 seconds."},
    "per-host": {"type": _COUNT, "default": 4, "help": "Most requests to one host at a time."},
    "connections": {"type": _COUNT, "default": 64, "help": "Most requests at a time."},
    "timeout": {
        "type": Seconds(min_open=True),
        "default": 60.0,
        "metavar": "SECONDS",
        "help": "Most time for one attempt, to the last byte.",
    },
    "max-bytes": {"type": size, "default": "100M", "metavar": "SIZE", "help": "Refuse a larger file."},
    "ignore-robots": {"is_flag": True, "help": "Also fetch what robots.txt excludes."},
    "ignore-opt-out": {
        "is_flag": True,
        "help": "Also fetch what X-Robots-Tag excludes (noai, noimageai, noindex, noimageindex).",
    },
    "allow-private": {
        "is_flag": True,
        "help": "Also connect to addresses that are not public: this machine, private networks, metadata services.",
    },
}
download_options = option_group(
    *(click.option(f"--{name}", show_default="default" in option, **option) for name, option in _OPTIONS.items())
)
"""Options of :class:`tarkit.steps.download.DownloadOptions`."""


def options_of_downloads() -> DownloadOptions:
    """Return the options of :func:`download_options` that the current command was called with."""
    from tarkit.steps.download import DownloadOptions

    given = click.get_current_context().params
    return DownloadOptions(**{name: given[name] for name in (each.replace("-", "_") for each in _OPTIONS)})
