"""``tarkit show``: which samples are in a shard."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import UsageError

from .._common import reader_options, refuse_terminal_input, say, verbose_option, version_option
from .._results import Results, escaped, exit_code_of, met

if TYPE_CHECKING:
    from tarkit.sample import KeyRule, Member, Sample, Tally

_EPILOG = """\b
Examples:
  tarkit show train-000000.tar -n 3
  tarkit show --count 'train-{000000..000009}.tar'
  tarkit show --json train-000000.tar | jq -r .key
"""


@click.command("show", epilog=_EPILOG)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("--count", is_flag=True, help="Count samples instead of listing them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("-n", "number", type=click.IntRange(0), metavar="N", help="Only the first N samples.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of skipped members; only what was lost.")
@reader_options
@verbose_option
@version_option
def command(
    inputs: tuple[str, ...], count: bool, as_json: bool, number: int | None, quiet: bool, **options: Any
) -> int:
    """List the samples of shards: keys, fields and their sizes in bytes.

    With --json, a line is {"key", "url", "offset", "fields": {FIELD: BYTES}}; the offset is that of the
    sample's first header in the uncompressed shard.

    --count gives the number of samples; for several shards, a table of samples, members and bytes of
    content with a total.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz or @list.txt, or - (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    if count and number is not None:
        raise UsageError("--count counts all samples; -n goes with the listing")
    with Results() as results:
        from tarkit.sample import Tally, key_rule
        from tarkit.shards import expand

        tally = Tally()
        rule = key_rule(options.pop("key_rule"))
        shards = expand(urls, allow_pipe_in_lists=options.pop("allow_pipe"))
        if count:
            _count(list(shards), results, as_json, tally, rule, options)
        else:
            _list(itertools.islice(_samples(shards, tally, rule, options), number), results, as_json)
    phrases = met(tally)
    if phrases and (exit_code_of(tally) or not quiet):
        say("tarkit show", "; ".join(phrases))
    return exit_code_of(tally)


def _samples(urls: Iterable[str], tally: Tally, rule: KeyRule, options: dict[str, Any]) -> Iterator[tuple[int, Sample]]:
    """(offset, sample) of all shards."""
    from tarkit.largemembers import SkipLarge, SkippedContent
    from tarkit.sample import group_by_keys
    from tarkit.streams import open_read
    from tarkit.tarshard import read_members

    grouping = {name: options[name] for name in ("on_duplicate_field", "on_repeated_key")}
    for url in urls:
        offsets: dict[str, int] = {}

        def noted(members: Iterable[Member], offsets: dict[str, int] = offsets) -> Iterator[Member]:
            for member in members:
                split = rule(member[0])
                if split is not None:
                    offsets.setdefault(split[0], member[2])
                # Content is not looked at, and a sample's would add up.
                yield (member[0], SkippedContent(len(member[1])), member[2]) if member[0] else member

        with open_read(url) as stream:
            members = read_members(
                stream.read, url=stream.name, rule=rule, on_damage=options["on_damage"], tally=tally, large=SkipLarge()
            )
            for sample in group_by_keys(noted(members), url=stream.name, rule=rule, tally=tally, **grouping):
                yield offsets.pop(sample["__key__"]), sample


def _sizes(sample: Sample) -> dict[str, int]:
    from tarkit.sample import is_reserved

    return {field: len(value) for field, value in sample.items() if not is_reserved(field)}


def _list(samples: Iterable[tuple[int, Sample]], results: Results, as_json: bool) -> None:
    width = 0
    for offset, sample in samples:
        key, sizes = sample["__key__"], _sizes(sample)
        if as_json:
            results.line(json.dumps({"key": key, "url": sample["__url__"], "offset": offset, "fields": sizes}))
            continue
        # No wider than the widest so far: the samples to come are not known, and may never end.
        shown = escaped(key)
        width = max(width, len(shown))
        results.line(f"{shown:<{width}}  {' '.join(f'{field}:{bytes_}' for field, bytes_ in sizes.items())}")


def _count(
    urls: list[str], results: Results, as_json: bool, tally: Tally, rule: KeyRule, options: dict[str, Any]
) -> None:
    from tarkit.streams import display_name

    total = [0, 0, 0]
    if len(urls) > 1 and not as_json:
        results.line(f"{'samples':>10} {'members':>10} {'bytes':>15}  shard")
    for url in urls:
        counts = [0, 0, 0]
        for _, sample in _samples([url], tally, rule, options):
            sizes = _sizes(sample)
            for column, value in enumerate((1, len(sizes), sum(sizes.values()))):
                counts[column] += value
        total = [sum(pair) for pair in zip(total, counts, strict=True)]
        name = display_name(url)
        if as_json:
            results.line(json.dumps({"url": name, "samples": counts[0], "members": counts[1], "bytes": counts[2]}))
        elif len(urls) > 1:
            results.line(f"{counts[0]:>10} {counts[1]:>10} {counts[2]:>15}  {name}")
    if as_json:
        return
    if len(urls) == 1:
        results.line(str(total[0]))
    else:
        results.line(f"{total[0]:>10} {total[1]:>10} {total[2]:>15}  total")
