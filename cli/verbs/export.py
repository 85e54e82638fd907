"""``tarkit export``: write samples as files, as a table, or as a data set of another library."""

from __future__ import annotations

import json
from typing import Any

import click

from tarkit.errors import counted
from tarkit.names.redaction import redact

from ..shared.meter import Meter
from ..shared.program import (
    dry_run_notes,
    dry_run_option,
    json_option,
    read_options,
    reader_options,
    refuse_mixed_output,
    refuse_terminal_input,
    say,
    standard_options,
)
from ..shared.results import Results, met
from ..shared.selection import choosing_options, exit_code_of_selected, selected, selection_of

_NAME = "tarkit export"
_EPILOG = """\b
Examples:
  tarkit export 'train-*.tar' --to folder -o pictures/
  tarkit export 'train-*.tar' --to csv --files media/ -o train.csv
  tarkit export 'train-*.tar' --to hf -o dataset/
"""


@click.command("export", epilog=_EPILOG)
@click.argument("inputs", metavar="[SHARD]...", nargs=-1)
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder or table to write; - is standard output.")
@click.option(
    "--to", required=True, type=click.Choice(["folder", "csv", "jsonl", "parquet", "mds", "hf"]), help="Form of OUT."
)
@click.option("--files", metavar="DIR", help="For a table: write fields that are not text as files in this folder.")
@click.option("--force", is_flag=True, help="Replace a folder that has files.")
@dry_run_option
@json_option
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@choosing_options
@reader_options
@standard_options
def command(
    inputs: tuple[str, ...], output: str, to: str, files: str | None, force: bool, dry_run: bool, as_json: bool,
    quiet: bool, allow_empty: bool, allow_pipe: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Export samples to a folder of files, a table, or a data set of another library.

    \b
    folder   a file KEY.FIELD for each field, which tarkit create makes shards of
    csv      a row for each sample, with the columns of the first, or those of --fields
    jsonl    an object for each sample, on a line
    parquet  a row for each sample (needs pyarrow)
    mds      shards of Mosaic streaming (needs mosaicml-streaming)
    hf       Parquet that datasets.load_dataset("OUT") loads, with images and audio (needs pyarrow)

    In tables and data sets, cls is a number, txt and json are text, in jsonl json is a value; the
    key is __key__. All other fields are bytes: in csv and jsonl as Base64, in the column
    FIELD.base64. With --files, a table has paths of files instead, relative to itself.

    OUT appears whole, at the end; a run that was killed is repeated. Two samples with the same
    file, and a key that would lead out of the folder (..), are errors. Folders are written on this
    machine; tables go anywhere.

    SHARD is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or - (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    refuse_mixed_output(output, as_json)
    from tarkit.formats.tally import Tally
    from tarkit.formats.tar.large import KeepInFiles
    from tarkit.samples.read import read_samples
    from tarkit.specs.shardspec import counted_shards
    from tarkit.steps.export import columns_of, kept_inputs, open_export

    tally, number = Tally(), 0
    reading, columns = read_options(options, tally), columns_of(options["fields"], options["rename"])
    with selection_of(options) as selection, Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:
        found, total = counted_shards(urls, allow_pipe_in_lists=allow_pipe, outputs=[output])
        kept = kept_inputs(found, output, to, files=files, lists=selection.lists)
        samples = read_samples(kept, literal=True, split=True, large=KeepInFiles(), **reading)
        with open_export(output, to, files=files, columns=columns, force=force, dry_run=dry_run) as write:
            for number, sample in enumerate(selection.select(samples), 1):
                write(sample)
                if meter.is_due():
                    meter.show(f"{counted(number, 'sample')} so far", tally.shards_read() / total if total else None)
        if as_json:
            results.line(json.dumps({"samples": number, "output": redact(output)}))
    code = exit_code_of_selected(selection, tally, allow_empty)
    if code or not quiet:
        say(_NAME, "; ".join([counted(number, "sample"), *dry_run_notes(), *selected(selection), *met(tally)]))
    return code
