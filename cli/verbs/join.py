"""``tarkit join``: join two data sets by key."""

from __future__ import annotations

from typing import Any

import click

from tarkit.errors import EXIT_SET_ASIDE, UsageError

from ..shared.exchangeverb import ExchangeVerb, exchange_verb
from ..shared.program import reject_options, work_option
from ..shared.sections import LongHelp
from ..shared.tableoptions import TABLE_TEXT, columns_option, table_text_options

_EPILOG = """\b
Examples:
  tarkit join 'images-{000..147}.tar' -- 'captions-*.tar' -O joined/
  tarkit join 'images-*.tar' -- captions.csv --key id --columns caption=txt --how left -O joined/
  tarkit join old/dataset.json -- new/dataset.json --prefix ,new. -O s3://bucket/both --maxsize 1G
"""
_BETWEEN = "\0"
"""Stands for the ``--`` between the sides; no argument of a program can be that."""


class TwoSides(LongHelp):
    """A command whose first ``--`` stands between two lists of inputs; options may follow it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args = [*args[:at], _BETWEEN, *args[at + 1 :]]
        return super().parse_args(ctx, args)


def _prefixes(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, str]:
    left, comma, right = text.partition(",")
    if not comma or "," in right:
        raise click.BadParameter(f"{text!r} is not LEFT,RIGHT; one of them may be empty, as in ,new.")
    return left, right


@exchange_verb("join", keys="", epilog=_EPILOG, inputs=None, cls=TwoSides)
@click.argument("inputs", metavar="LEFT... -- RIGHT...", nargs=-1, required=True)
@click.option(
    "--how",
    type=click.Choice(["inner", "left", "outer"]),
    default="inner",
    show_default=True,
    help="Samples without a partner to write: none, those of the left, or of both sides.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(["error", "left", "right"]),
    default="error",
    show_default=True,
    help="For a field that both samples have, report it, or take the field of one side.",
)
@click.option(
    "--prefix",
    metavar="LEFT,RIGHT",
    default=",",
    callback=_prefixes,
    help="Texts before the names of fields; with ,new. jpg of the right becomes new.jpg.  [default: none]",
)
@click.option("--key", metavar="COLUMN", help="Column of the keys, if a side is a table.")
@columns_option
@table_text_options
@work_option("allow_empty", help="Do not exit with 3 if no key is on both sides.")
def command(
    exchange: ExchangeVerb, how: str, on_conflict: str, prefix: tuple[str, str], key: str | None,
    columns: dict[str, str | None] | None, delimiter: str | None, quoting: str | None, encoding: str,
) -> int | None:  # fmt: skip
    """Join two data sets by key: one sample of both for each key.

    LEFT and RIGHT are lists of SHARD. A joined sample has the members of the left, with the bytes
    that they have, and then those of the right. The samples are in the order of their keys. A key
    that comes twice on one side is an error. The summary counts pairs, and samples without a
    partner.

    One side may be a table, as in images-*.tar -- captions.csv --key id: .csv, .tsv, .jsonl or
    .parquet. A row is then a sample with the fields that tarkit create --table makes. Keys and
    values of CSV and TSV stay text: 00012 is 00012. A row without any value is left out.

    --shards, --maxcount and --maxsize cut the samples of both sides, sorted by key, before they are
    joined; so a shard has at most --maxcount joined samples, and in a full match half of that.

    If no key is on both sides, the exit code is 3, unless --how is outer.
    """
    from tarkit.exchange.join import JOINED, LEFT_ONLY, RIGHT_ONLY, Join
    from tarkit.exchange.tableside import TableColumns

    given = [*exchange.run.inputs]
    if _BETWEEN not in given:
        raise UsageError("a join has two sides, with -- between them: tarkit join LEFT... -- RIGHT... -O DIR")
    at = given.index(_BETWEEN)
    left, right = (exchange.names(specs) if specs else [] for specs in (given[:at], given[at + 1 :]))
    table = None
    if key is None:
        reject_options(["columns", *TABLE_TEXT], "goes with --key, for a side that is a table")
    else:
        table = TableColumns(key, columns, delimiter, None if quoting is None else quoting == "csv", encoding)
    step = Join(left, right, how, on_conflict, prefix, table)
    code = exchange.do(step, step.inputs)
    if exchange.options["dry_run"] or exchange.options["stage"] == "scatter":
        return code
    found: dict[str, Any] = exchange.run.found
    alone = found.pop("noted", {})
    pairs = found["dropped"].get(JOINED, 0)
    found |= {"pairs": pairs, "left_only": alone.get(LEFT_ONLY, 0), "right_only": alone.get(RIGHT_ONLY, 0)}
    if pairs or how == "outer" or exchange.options["stage"] or exchange.run.allow_empty:
        return code
    exchange.run.notes.append("no key is on both sides")
    return code or EXIT_SET_ASIDE
