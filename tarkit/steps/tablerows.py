"""Rows of a table as samples: each row, and the files that it names."""

from __future__ import annotations

from typing import NamedTuple

from tarkit.samples.sample import Sample


class Wanted(NamedTuple):
    """A sample of a row whose files are still to be read.

    Attributes:
        sample: key, and the fields from columns of values.
        sources: (field, path or URL of its content) for each file of the row.
    """

    sample: Sample
    sources: list[tuple[str, str]]
