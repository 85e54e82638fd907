"""``tarkit sort``: write all samples in the order of a value."""

from __future__ import annotations

import click

from ..shared.exchangeverb import ExchangeVerb, exchange_verb, placement_of, placing_options

_EPILOG = """\b
Examples:
  tarkit sort 'train-{000..147}.tar' -O sorted/ --by key --shards 148
  tarkit sort @list.txt -O sorted/ --by json.width --reverse --maxsize 1G
  tarkit sort train.tar -O sorted/ --by cls:number --maxcount 5000
  tarkit sort train.tar -O sorted/ --by length.py:seconds --shards 10
  tarkit sort 'train-{000..147}.tar' -O parts/ --to parts.csv:id:part
"""


@exchange_verb("sort", epilog=_EPILOG)
@click.option(
    "--by", default="key", show_default=True, metavar="VALUE",
    help="Sort by key, size (bytes of content), FIELD (its bytes), FIELD:number, json.width (a value in a JSON "
    "field), another value as in tarkit select --where, or FILE.py:function or module:function.",
)  # fmt: skip
@click.option("--reverse", is_flag=True, help="The largest value first; equal ones stay in input order.")
@placing_options
def command(exchange: ExchangeVerb, by: str, reverse: bool, to_map: str | None, unlisted: str) -> int | None:
    """Write all samples in the order of a value; equal ones stay in input order.

    Numbers sort by their exact values, texts by their bytes in UTF-8, as LC_ALL=C sort does: as
    texts, 10 comes before 9; --by FIELD:number compares numbers. JSON values of different kinds:
    false, true, numbers, texts. A sample without the value, or with null, NaN, a list or an object,
    is a failed sample. The samples keep the bytes of their members.

    meta.json.a.b is the value a.b in the field meta.json; a field whose name has another dot is
    field('seg.png'). width(jpg), size(jpg) and len(txt) are values, too. A function gets a dict of
    __key__ and the bytes of each field, and returns a text, bytes, a number, True or False.

    With --to, the samples of each shard are in this order. The keys of MAP are those after --rekey.
    """
    from tarkit.exchange.sort import Sort

    return exchange.do(Sort(by, reverse, to=placement_of(to_map, unlisted)), exchange.names(exchange.run.inputs))
