"""``tarkit cat``: several shards into one, their bytes untouched."""

from __future__ import annotations

from typing import Any

import click

from .._common import refuse_terminal_input, say, verbose_option, version_option
from .._results import counted, exit_code_of, met

_EPILOG = """\b
Examples:
  tarkit cat 'train-{0000..0009}.tar' -o train.tar.gz
  tarkit cat a.tar b.tar | tarproc -c 'ls'
"""


@click.command("cat", epilog=_EPILOG)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("-o", "--output", default="-", metavar="OUT", help="Shard to write.  [default: standard output]")
@click.option(
    "--key-rule",
    default="first-dot",
    metavar="RULE",
    help="How a name splits into key and field: first-dot, last-dot, or a regular expression "
    "with two groups.  [default: first-dot]",
)
@click.option(
    "--on-repeated-key",
    type=click.Choice(["error", "allow"]),
    default="error",
    show_default=True,
    help="Samples of the result would have the same key: stop, or accept that.",
)
@click.option(
    "--on-damage",
    type=click.Choice(["error", "skip"]),
    default="error",
    show_default=True,
    help="A shard is damaged: stop, or leave out what is damaged and the samples beside it, count that, and exit 3.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary; only what was lost.")
@verbose_option
@version_option
def command(inputs: tuple[str, ...], output: str, quiet: bool, verbose: bool, **policies: Any) -> int:
    """Join shards into one.

    Headers, extended headers and content keep their bytes. End-of-archive marks are dropped, but for
    one at the end. All of it is checked on the way: damage is an error, as is a key that is in two
    shards, since the result is one. Folders, links and other members that are no part of a sample are
    copied too, except with --on-damage skip.

    Input is decompressed, whatever its name; output is compressed as its name says (.gz .tgz .zst
    .bz2 .xz .lz4). INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz or @list.txt, or -
    (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    from tarkit.publish import open_publish
    from tarkit.rawtar import concatenate
    from tarkit.sample import Tally, key_rule

    rule = key_rule(policies.pop("key_rule"))
    tally = Tally()
    with open_publish(output) as stream:
        joined = concatenate(urls, stream, rule=rule, tally=tally, **policies)
    code = exit_code_of(tally)
    if code or not quiet:
        copied = policies["on_damage"] == "error"
        parts = [
            f"{counted(joined.samples, 'sample')} of {counted(joined.shards, 'shard')}, {joined.size} bytes of tar"
        ]
        if tally.reopened:
            parts.append(f"keys that came back in their shard: {tally.reopened}")
        parts += met(tally, skipped="copied, though no part of a sample" if copied else "skipped members")
        say("tarkit cat", "; ".join(parts))
    return code
