"""``tarkit show``: which samples are in a shard."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, MissingExtraError, TarkitError, UsageError, exit_code_of_all

from ..shared.program import escaped, reader_options, refuse_terminal_input, say, verbose_option, version_option
from ..shared.results import Results, exit_code_of, met

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.samples.sample import KeyRule, Sample

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
    content with a total. A shard that is bad does not stop the others: it is marked, and the exit code
    says what is wrong (65: damaged). Of several shards, each line of the listing begins with the shard's name.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz or @list.txt, or - (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    if count and number is not None:
        raise UsageError("--count counts all samples; -n goes with the listing")
    code = EXIT_OK
    with Results(only_messages=count) as results:
        from tarkit.formats.tally import Tally
        from tarkit.samples.sample import key_rule
        from tarkit.specs.shardspec import expand

        tally = Tally()
        rule = key_rule(options.pop("key_rule"))
        shards = expand(urls, allow_pipe_in_lists=options.pop("allow_pipe"))
        if count:
            code = _count(list(shards), results, as_json, tally, rule, options)
        else:
            first = list(itertools.islice(shards, 2))
            samples = _samples(itertools.chain(first, shards), tally, rule, options)
            _list(itertools.islice(samples, number), results, as_json, several=len(first) > 1)
    phrases = met(tally)
    if phrases and (exit_code_of(tally) or not quiet):
        say("tarkit show", "; ".join(phrases))
    return code or exit_code_of(tally)


def _samples(urls: Iterable[str], tally: Tally, rule: KeyRule, options: dict[str, Any]) -> Iterator[tuple[int, Sample]]:
    """(offset, sample) of all shards."""
    from tarkit.samples.read import sized_samples
    from tarkit.store.read import open_read

    policies = {name: options[name] for name in ("on_duplicate_field", "on_repeated_key", "on_damage")}
    for url in urls:
        with open_read(url) as stream:
            yield from sized_samples(stream.read, url=stream.name, rule=rule, tally=tally, **policies)


def _sizes(sample: Sample) -> dict[str, int]:
    from tarkit.samples.sample import is_reserved

    return {field: len(value) for field, value in sample.items() if not is_reserved(field)}


def _list(samples: Iterable[tuple[int, Sample]], results: Results, as_json: bool, several: bool) -> None:
    """A line for each sample. several: shards, so that each line names its own."""
    width = 0
    for offset, sample in samples:
        key, url, sizes = sample["__key__"], sample["__url__"], _sizes(sample)
        if as_json:
            results.line(json.dumps({"key": key, "url": url, "offset": offset, "fields": sizes}))
            continue
        # No wider than the widest so far: the samples to come are not known, and may never end.
        shown = escaped(f"{url}: {key}" if several else key)
        width = max(width, len(shown))
        results.line(f"{shown:<{width}}  {' '.join(f'{field}:{bytes_}' for field, bytes_ in sizes.items())}")


def _row(counts: Counter[str], name: str) -> str:
    return f"{counts['samples']:>10} {counts['members']:>10} {counts['bytes']:>15}  {name}"


def _count(
    urls: list[str], results: Results, as_json: bool, tally: Tally, rule: KeyRule, options: dict[str, Any]
) -> int:
    """A row for each shard; one that cannot be read to its end is marked. The exit code of those."""
    from tarkit.store.url import display_name

    total, codes = Counter[str](), []
    table = len(urls) > 1 and not as_json
    if table:
        results.line(f"{'samples':>10} {'members':>10} {'bytes':>15}  shard")
    for url in urls:
        counts, name, error = Counter(samples=0, members=0, bytes=0), display_name(url), None
        try:
            for _, sample in _samples([url], tally, rule, options):
                sizes = _sizes(sample)
                counts.update(samples=1, members=len(sizes), bytes=sum(sizes.values()))
        except (UsageError, MissingExtraError):
            raise
        except TarkitError as problem:
            if len(urls) == 1:
                raise
            error = problem
            codes.append(problem.exit_code)
            say("tarkit show", str(problem))
        total += counts
        if as_json:
            found = {"url": name, **counts}
            results.line(json.dumps(found if error is None else {**found, "error": str(error)}))
        elif table:
            results.line(_row(counts, name if error is None else f"{name} (bad; counted up to the error)"))
    if table:
        results.line(_row(total, f"total ({len(codes)} of {len(urls)} shards bad)" if codes else "total"))
    elif not as_json:
        results.line(str(total["samples"]))
    return exit_code_of_all(codes)
