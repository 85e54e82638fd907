"""Options for the tables whose rows become samples."""

from __future__ import annotations

import click

from .program import option_group


def column_fields(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str | None] | None:
    """Parse values NAME or NAME=FIELD, separated by commas or given several times."""
    pairs: dict[str, str | None] = {}
    for text in (each for given in texts for each in given.split(",")):
        name, equals, field = text.rpartition("=") if "=" in text else (text, "", "")
        if not name or (parameter.name == "files" and not equals) or (equals and not field):
            raise click.BadParameter(f"{text!r} is not COLUMN=FIELD")
        pairs[name] = field or None
    return pairs or None


columns_option = click.option(
    "--columns", multiple=True, metavar="A,B=FIELD", callback=column_fields,
    help="Columns to write, with the names of their fields.  [default: all, as fields of their names]",
)  # fmt: skip
table_text_options = option_group(
    click.option("--delimiter", metavar="CHAR", help="Character between the values of a CSV.  [default: by its name]"),
    click.option(
        "--quoting", type=click.Choice(["csv", "none"]), help="Whether quotes have a meaning.  [default: not in TSV]"
    ),
    click.option("--encoding", default="utf-8", show_default=True, help="Encoding of a table of text."),
)
TABLE_TEXT = ("delimiter", "quoting", "encoding")
"""Names of the options for the text of a table."""
