"""``tarkit explain``: print the key and field of names, by several readers' rules."""

from __future__ import annotations

import json
from collections.abc import Iterable

import click

from ..shared.program import json_option, standard_options, work_option
from ..shared.results import Results

_EPILOG = """\b
Examples:
  tarkit explain images/cat.1.jpg
  tar -tf train-000000.tar | tarkit explain -
  tarkit explain --key-rule '(.*)_(.*)' shot_left.png
"""


@click.command("explain", epilog=_EPILOG)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@work_option("key_rule", help="One more rule: a regular expression with two groups, key and field.")
@json_option
@standard_options
def command(names: tuple[str, ...], as_json: bool, key_rule: str, verbose: bool) -> None:
    """Show the key and field of names, and why names are skipped.

    A shard's members with the same key form a sample, but not all readers split names in the same
    way. For each name, this shows the result of tarkit with the key rules first-dot (the default)
    and last-dot, of WebDataset, of Hugging Face's datasets, and of NVIDIA DALI without an index, or
    with one by its wds2idx.

    NAME is the name of a member, with its folder; - reads names from standard input, one a line.
    Nothing is opened.
    """
    from tarkit.steps.explain import explain

    with Results() as results:
        is_piped = names == ("-",)
        # Names are bytes, of any encoding.
        lines: Iterable[str] = open(0, encoding="utf-8", errors="surrogateescape", closefd=False) if is_piped else names
        for line in lines:
            name = line.removesuffix("\n") if is_piped else line
            readings = explain(name, key_rule)
            if as_json:
                results.line(json.dumps({"name": name, "readings": [each._asdict() for each in readings]}))
                continue
            results.line(name)
            width = max(len(each.reader) for each in readings)
            for each in readings:
                found = f"skipped: {each.skipped}" if each.skipped else f"key {each.key}  field {each.field}"
                results.line(f"  {each.reader:{width}}  {found}" + ("" if each.skipped else f"  ({each.rule})"))
