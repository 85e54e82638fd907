"""``tarkit export``: write samples as files, as a table, or as a data set of another library."""

from __future__ import annotations

import click

from tarkit.errors import counted
from tarkit.names.redaction import redact

from ..shared.program import dry_run_notes, dry_run_option, refuse_mixed_output
from ..shared.shardverb import VerbRun, shard_verb

_EPILOG = """\b
Examples:
  tarkit export 'train-*.tar' --to folder -o pictures/
  tarkit export 'train-*.tar' --to csv --files media/ -o train.csv
  tarkit export 'train-*.tar' --to hf -o dataset/
"""


@shard_verb("export", epilog=_EPILOG, may_be_empty=False, only_messages=True)
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder or table to write; - is standard output.")
@click.option(
    "--to", required=True, type=click.Choice(["folder", "csv", "jsonl", "parquet", "mds", "hf"]), help="Form of OUT."
)
@click.option("--files", metavar="DIR", help="For a table: write fields that are not text as files in this folder.")
@click.option("--force", is_flag=True, help="Replace a folder that has files.")
@dry_run_option
def command(run: VerbRun, output: str, to: str, files: str | None, force: bool, dry_run: bool) -> None:
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
    """
    refuse_mixed_output(output, run.as_json)
    from tarkit.steps.export import columns_of, kept_inputs, open_export

    number, given = 0, click.get_current_context().params
    names = run.shards(outputs=[output])
    samples = run.samples(kept_inputs(names, output, to, files=files, lists=run.selection.lists))
    with open_export(
        output, to, files=files, columns=columns_of(given["fields"], given["rename"]), force=force, dry_run=dry_run
    ) as write:
        for number, sample in enumerate(run.selection.select(samples), 1):
            write(sample)
            if run.meter.is_due():
                run.meter.show(f"{counted(number, 'sample')} so far", run.part())
    run.found = {"samples": number, "output": redact(output)}
    run.notes = [counted(number, "sample"), *dry_run_notes()]
