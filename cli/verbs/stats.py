"""``tarkit stats``: a summary of fields, sizes, classes, pictures, JSON, texts and sound."""

from __future__ import annotations

from functools import partial

import click

from tarkit.errors import UsageError

from ..shared.program import refuse_terminal_input
from ..shared.shardverb import VerbRun, against_option, number_option, shard_verb

_EPILOG = """\b
Examples:
  tarkit stats 'train-{0000..0009}.tar' --html train.html
  tarkit stats 'train-{0000..0009}.tar' --against 'val-*.tar'
  tarkit stats train.tar -n 1000
  tarkit stats train.tar --json | jq .fields.jpg.bytes.median
"""


@shard_verb("stats", epilog=_EPILOG, parallel=(4, "Number of shards to read at once; with -n or a selection, 1."))
@against_option()
@click.option("--html", metavar="FILE.html", help="Also write a page with tables and plots; - is standard output.")
@number_option
@click.option(
    "--class", "class_fields", metavar="FIELD", multiple=True,
    help="Count the values of this field as classes.  [repeatable; default: cls]",
)  # fmt: skip
@click.option("--classes-from", metavar="FILE", help="Table of classes, such as the classes.json of other shards.")
def command(
    run: VerbRun, against: tuple[str, ...], html: str | None, number: int | None, class_fields: tuple[str, ...],
    classes_from: str | None, parallel: int,
) -> None:  # fmt: skip
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
    """
    refuse_terminal_input(against)
    from tarkit.names.url import display_name
    from tarkit.specs.outputcheck import check_folder, check_other_than
    from tarkit.steps.classfolders import read_classes
    from tarkit.steps.stats import gather_statistics
    from tarkit.steps.statsreport import differences, lines_of, report_page
    from tarkit.store.publish import open_publish

    if html is not None:
        check_folder(html)
        check_other_than([html], [classes_from] if classes_from is not None else [])
    if html == "-" and run.as_json:
        raise UsageError("--json and --html - both write to standard output; name a file for the page")
    classes = None if classes_from is None else read_classes(classes_from)
    sets = {}
    select = partial(run.selection.select, last=False) if run.chosen else None
    for label, given in zip("AB", (run.inputs, against) if against else (run.inputs,), strict=False):
        shards = run.shards(given, [html] if html is not None else [])
        sets[label] = gather_statistics(
            shards, class_fields=class_fields, classes=classes, number=number, select=select, parallel=parallel,
            progress=run.meter.samples(run.total, f"{label}: " if against else ""), **run.reading,
        )  # fmt: skip
        run.tally.add(sets[label].tally)
    run.selection.check()
    run.results.only_messages = html is not None
    if run.as_json:
        dicts = {label: each.as_dict() for label, each in sets.items()}
        run.found = {"sets": dicts, "differences": differences(sets)} if against else dicts["A"]
    elif html != "-":
        for line in lines_of(sets):
            run.results.line(line)
    if html is not None:
        names = [" ".join(map(display_name, shards)) for shards in (run.inputs, against) if shards]
        with open_publish(html) as stream:
            stream.write(report_page(sets, names))
