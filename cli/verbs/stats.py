"""``tarkit stats``: a summary of fields, sizes, classes, pictures, JSON, texts and sound."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import click

from tarkit.errors import UsageError, exit_code_of_all

from ..shared.meter import Meter
from ..shared.program import json_option, read_options, reader_options, refuse_terminal_input, say, standard_options
from ..shared.results import Results, exit_code_of, met
from ..shared.selection import selected, selection_of, selection_options

_EPILOG = """\b
Examples:
  tarkit stats 'train-{0000..0009}.tar' --html train.html
  tarkit stats 'train-{0000..0009}.tar' --against 'val-*.tar'
  tarkit stats train.tar -n 1000
  tarkit stats train.tar --json | jq .fields.jpg.bytes.median
"""


@click.command("stats", epilog=_EPILOG)
@click.argument("specs", metavar="[SHARD]...", nargs=-1)
@click.option("--against", metavar="SHARD", multiple=True, help="Compare with these shards.  [repeatable]")
@click.option("--html", metavar="FILE", help="Also write a page with tables and plots; - is standard output.")
@json_option
@click.option("-n", "number", type=click.IntRange(1), metavar="N", help="Measure only the first N samples.")
@click.option(
    "--class", "class_fields", metavar="FIELD", multiple=True,
    help="Count the values of this field as classes.  [repeatable; default: cls]",
)  # fmt: skip
@click.option("--classes-from", metavar="FILE", help="Names of the classes: JSON, name to number.")
@click.option(
    "-p", "--parallel", type=click.IntRange(1), default=4, show_default=True,
    help="Number of shards to read at once; with -n or a selection, 1.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only results and losses: no progress.")
@selection_options
@reader_options
@standard_options
def command(
    specs: tuple[str, ...], against: tuple[str, ...], html: str | None, as_json: bool, number: int | None,
    class_fields: tuple[str, ...], classes_from: str | None, parallel: int, quiet: bool, allow_pipe: bool,
    verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Summarize fields, sizes, classes, pictures, JSON, texts and sound, or compare two data sets.

    The report shows how many samples have each field and each combination of fields; the smallest
    and the largest number, the mean and quantiles of sizes in bytes, of widths and heights of
    pictures, of characters of texts and of seconds of sound; and how often each class, format,
    mode, EXIF orientation, size of a picture, and key and type of JSON occurs.

    The extension of a field says what it holds. Of pictures and sound only headers are read; widths
    are those before the EXIF orientation is applied. WAV needs no library, pictures need Pillow,
    and FLAC, OGG and MP3 need soundfile. Contents that are not measured or cannot be read are
    counted, with their keys.

    Quantiles are exact up to a million numbers; above, they are marked with ~ and within 5 %. A
    share is that of the samples with the field.

    --against compares two data sets, A and B, and lists what differs between them: fields, classes
    and other values of one only, shares by 10 points or more, medians by 10 % or more. --html
    writes one file that needs no server and no network. --json prints {"samples", "sample",
    "fields": {FIELD: {MEASURE: ...}}}, with --against {"sets": {"A", "B"}, "differences"}.

    Options such as --where select the samples to measure. Memory is bounded: 8 MB for each measure
    and 50,000 values of each kind, of which the rest is counted.

    SHARD is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or - (the default).
    """
    specs = specs or ("-",)
    refuse_terminal_input([*specs, *against])
    from tarkit.formats.tally import Tally
    from tarkit.names.url import display_name
    from tarkit.specs.outputcheck import check_folder, check_other_than
    from tarkit.specs.shardspec import counted_shards
    from tarkit.steps.classfolders import read_classes
    from tarkit.steps.stats import gather_statistics
    from tarkit.steps.statsreport import differences, lines_of, report_page
    from tarkit.store.publish import open_publish

    if html is not None:
        check_folder(html)
        check_other_than([html], [classes_from] if classes_from is not None else [])
    if html == "-" and as_json:
        raise UsageError("--json and --html - both write to standard output; name a file for the page")
    classes = None if classes_from is None else read_classes(classes_from)
    sets = {}
    selection, reading = selection_of(options), read_options(options, Tally())
    select = partial(selection.select, last=False) if selection.selects else None
    with Meter("tarkit stats", quiet=quiet) as meter, selection:
        for label, given in zip("AB", (specs, against) if against else (specs,), strict=False):
            shards, count = counted_shards(
                given, allow_pipe_in_lists=allow_pipe, outputs=[html] if html is not None else []
            )
            sets[label] = gather_statistics(
                shards, class_fields=class_fields, classes=classes, number=number, select=select, parallel=parallel,
                progress=meter.samples(count, f"{label}: " if against else ""), **reading,
            )  # fmt: skip
        selection.check()
    dicts = {label: each.as_dict() for label, each in sets.items()} if as_json else {}
    result = {"sets": dicts, "differences": differences(sets)} if as_json and against else dicts.get("A")
    with Results(only_messages=html is not None) as results:
        for line in [json.dumps(result)] if as_json else lines_of(sets) if html != "-" else ():
            results.line(line)
    if html is not None:
        names = [" ".join(map(display_name, shards)) for shards in (specs, against) if shards]
        with open_publish(html) as stream:
            stream.write(report_page(sets, names))
    code = exit_code_of_all(exit_code_of(each.tally) for each in sets.values())
    phrases = [*selected(selection), *(phrase for found in sets.values() for phrase in met(found.tally))]
    if phrases and (code or not quiet):
        say("tarkit stats", "; ".join(phrases))
    return code
