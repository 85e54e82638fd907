"""``tarkit show``: list the samples of a shard, or the records of a file of another format."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tarkit.errors import EXIT_OK, UsageError, escaped, exit_code_of_all
from tarkit.names.redaction import redact

from ..shared.program import reject_options, say, source_format_option
from ..shared.results import Results
from ..shared.samplepictures import show_pictures, write_sheet
from ..shared.shardverb import VerbRun, number_option, shard_verb

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.samples.sample import Sample
    from tarkit.steps.counting import ShardCount
    from tarkit.steps.selection import Selection

_EPILOG = """\b
Examples:
  tarkit show train-000000.tar -n 3
  tarkit show --count 'train-{000000..000009}.tar'
  tarkit show --json train-000000.tar | jq -r .key
  tarkit show --count records/
  tarkit show train-000000.tar --html sheet.html -n 500 -p 8
"""


_MOST_TEXT = 1000
"""Largest number of characters of a text in a list."""


class _Shown(NamedTuple):
    """A sample or record to print.

    Attributes:
        lines: its lines in a list; the first goes behind the label.
        as_json: its values for JSON, with key and url.
        sizes: sizes of its fields; for a record, its own size.
        url: URL of the file, without secrets.
        label: key, or number of a record without a key.
    """

    url: str
    label: str
    lines: list[str]
    as_json: dict[str, Any]
    sizes: list[int]


@shard_verb(
    "show", epilog=_EPILOG, is_described=False, inputs="[INPUT]...",
    parallel=(2, "Number of processes that decode the pictures of the page."),
)  # fmt: skip
@click.option("--count", is_flag=True, help="Count samples or records instead of listing them.")
@click.option("--text", is_flag=True, help="List texts, numbers, JSON and the first values of arrays, not only sizes.")
@click.option("--picture", is_flag=True, help="Show pictures in the terminal, with chafa or termvisage.")
@click.option("--html", metavar="FILE.html", help="Write a page that shows the samples; - is standard output.")
@click.option(
    "--thumbnail", type=click.IntRange(16, 1024), default=160, show_default=True, metavar="PIXELS",
    help="Longer edge of the pictures of the page.",
)  # fmt: skip
@number_option
@source_format_option
def command(
    run: VerbRun, count: bool, text: bool, picture: bool, html: str | None, thumbnail: int, number: int | None,
    source_format: str | None, parallel: int,
) -> int:  # fmt: skip
    """List the samples of shards, or the records of files of other formats, with their sizes.

    With --json, each line is {"key", "url", "offset", "fields": {FIELD: BYTES}}; the offset is that
    of the sample's first header in the uncompressed shard. With --text, it also has "texts":
    {FIELD: TEXT}, of up to 1 MiB; without --json, a text ends after 1,000 characters.

    --html writes a contact sheet: one page with thumbnails, texts, numbers, and sound and video
    that can be played. It has a search and a filter by class (the field cls), needs no other file,
    and works from disk. It has the first 2,000 samples, or N, in at most 30 MB, and says what it
    lacks. A picture that cannot be decoded is replaced by the reason, which is also printed. No
    program and no content of the samples can run in the page.

    A record is listed by its name or key, and its size; a record without a name, by its number from
    0 among the listed records of its file. With --json, each line is {"key", "url", "number",
    "size"}. FORMAT is tar, recordio, tfrecord, sequencefile, parquet or har. The size of a row of
    Parquet is that of its values, as text where they are not bytes.

    --count prints the number of samples; for several shards, a table of samples, members and bytes
    of content with a total. It reads as little as tarkit count, which also counts by field. A
    record counts as a sample of one member. A bad shard does not stop the others: it is marked, and
    the exit code says what is wrong (65: damaged). With several shards, each line of the list
    begins with the name of its shard.

    --match, --keys, --without-keys and --where select samples, and --fields, --drop-fields,
    --rename and --rekey change them, but not for --count. Dropped samples are counted.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), a folder, which stands for its files that are not hidden, or - (the default), which
    is a tar unless --from names a format.
    """
    outputs = {"--count": count, "--text": text, "--picture": picture, "--html": html is not None}
    chosen = [name for name, is_given in outputs.items() if is_given]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} are different outputs: choose one of them")
    if count and number is not None:
        raise UsageError("--count counts all samples; -n goes with the listing")
    if chosen not in ([], ["--count"]) and source_format not in (None, "tar"):
        raise UsageError(f"{chosen[0]} shows samples, which tar shards have, and --from is {source_format}")
    if picture or html is not None:
        reject_options(("as_json",), f"goes with a list, not with {chosen[0]}")
    if html is None:
        reject_options(("parallel", "thumbnail"), "goes with --html")
    from tarkit.formats.registry import format_of, input_files
    from tarkit.formats.tar.large import KeepInFiles
    from tarkit.samples.read import placed_samples, read_samples
    from tarkit.samples.sample import key_rule
    from tarkit.specs.outputcheck import other_than
    from tarkit.steps.fieldvalues import LARGE, MOST_BYTES

    if run.chosen and (count or source_format not in (None, "tar")):
        raise UsageError("samples are selected for a list, --text, --html and --picture")
    run.results.only_messages = count
    policies: Any = {**run.reading, "rule": key_rule(run.reading["rule"])}
    large = KeepInFiles() if run.chosen else LARGE
    placed = partial(placed_samples, large=large if text or run.chosen else None, **policies)
    most = 0 if not text else MOST_BYTES if run.as_json else _MOST_TEXT
    shards = input_files(run.shards(), run.tally)
    first = list(itertools.islice(shards, 2))
    shards = itertools.chain(first, shards)
    if count:
        from tarkit.steps.counting import count_shards

        counts = count_shards(shards, parallel=4, source_format=source_format, **run.reading)
        return _count(counts, run.results, run.as_json, run.tally, several=len(first) > 1)
    if picture or html is not None:
        read = read_samples(other_than([html or "-"], shards), literal=True, large=large, **policies)
        samples = run.selection.select(read)
        if html is None:
            show_pictures(itertools.islice(samples, number), run.results)
        else:
            title = ", ".join(map(redact, run.inputs))
            write_sheet(samples, html, title, number, thumbnail, parallel, run.is_quiet)
        return EXIT_OK

    def found() -> Iterator[_Shown]:
        for url in shards:
            known = source_format or format_of(url)
            if known == "tar" or text or run.chosen:
                yield from _samples(url, placed, most, run.selection)
            else:
                yield from _records(known, url, policies["on_damage"], run.tally)
        run.selection.check()

    _list(itertools.islice(found(), number), run.results, run.as_json, several=len(first) > 1)
    return EXIT_OK


def _samples(
    url: str, placed: Callable[..., Iterator[tuple[int, Sample]]], most: int, selection: Selection
) -> Iterator[_Shown]:
    """Yield the lines for the selected samples of a shard.

    Args:
        placed: function that yields the samples with their offsets.
        most: largest number of characters of the text of a field; 0: only sizes are shown.
    """
    from tarkit.samples.sample import is_reserved
    from tarkit.steps.fieldvalues import value_text
    from tarkit.store.read import open_read

    with open_read(url) as stream:
        for offset, each in placed(stream.read, url=stream.name):
            if (sample := selection.apply(each)) is None:
                continue
            key, name = sample["__key__"], sample["__url__"]
            fields = {field: value for field, value in sample.items() if not is_reserved(field)}
            sizes = {field: len(value) for field, value in fields.items()}
            lines = [" ".join(f"{field}:{size}" for field, size in sizes.items())]
            as_json = {"key": key, "url": name, "offset": offset, "fields": sizes}
            if most:
                texts = {field: value_text(field, value, most) for field, value in fields.items()}
                as_json["texts"] = {field: text for field, text in texts.items() if text is not None}
                lines = ["", *(f"  {field}: {texts[field] or f'{size} bytes'}" for field, size in sizes.items())]
            yield _Shown(name, key, lines, as_json, list(sizes.values()))


def _records(source_format: str, url: str, on_damage: str, tally: Tally) -> Iterator[_Shown]:
    from tarkit.formats.registry import read_sizes
    from tarkit.names.url import display_name

    name = display_name(url)
    for number, (key, size) in enumerate(read_sizes(source_format, url, on_damage=on_damage, tally=tally)):
        as_json = {"key": key, "url": name, "number": number, "size": size}
        yield _Shown(name, str(number) if key is None else key, [str(size)], as_json, [size])


def _list(samples: Iterable[_Shown], results: Results, as_json: bool, several: bool) -> None:
    """Print the lines of each sample.

    Args:
        several: there are several shards, so each line has the name of its shard.
    """
    width = 0
    for sample in samples:
        if as_json:
            results.line(json.dumps(sample.as_json))
            continue
        # No wider than the widest so far: the samples to come are not known, and may never end.
        label = escaped(f"{sample.url}: {sample.label}" if several else sample.label)
        width = max(width, len(label))
        results.line(f"{label:<{width}}  {sample.lines[0]}".rstrip())
        for line in sample.lines[1:]:
            results.line(line)


def _row(counts: Counter[str], name: str) -> str:
    return f"{counts['samples']:>10} {counts['members']:>10} {counts['bytes']:>15}  {name}"


def _count(counts: Iterable[ShardCount], results: Results, as_json: bool, tally: Tally, several: bool) -> int:
    """Print a line for each shard, and return the exit code.

    A shard that cannot be read to its end is marked.

    Args:
        tally: the counts of skipped members and damage are added to it.
        several: there are several shards, so the result is a table.
    """
    total, codes, shards = Counter[str](), [], 0
    table = several and not as_json
    if table:
        results.line(f"{'samples':>10} {'members':>10} {'bytes':>15}  shard")
    for count in counts:
        shards += 1
        if count.error is not None:
            if not several:
                raise count.error
            codes.append(count.error.exit_code)
            say("tarkit show", str(count.error))
        tally.add(count.tally)
        numbers = Counter(samples=count.samples, members=count.members.total(), bytes=count.sizes.total())
        total += numbers
        if as_json:
            found = {"url": count.url, **numbers}
            results.line(json.dumps(found if count.error is None else {**found, "error": str(count.error)}))
        elif table:
            results.line(_row(numbers, f"{count.url} (bad; counted up to the error)" if count.error else count.url))
    if table:
        results.line(_row(total, f"total ({len(codes)} of {shards} shards bad)" if codes else "total"))
    elif not as_json:
        results.line(str(total["samples"]))
    return exit_code_of_all(codes)
