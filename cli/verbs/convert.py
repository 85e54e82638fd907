"""``tarkit convert``: convert shards to record files and back."""

from __future__ import annotations

import click

from tarkit.errors import counted
from tarkit.names.url import display_name

from ..shared.completion import format_values
from ..shared.program import dry_run_option, gathering_options, names_in, refuse_mixed_output, source_format_option
from ..shared.shardverb import VerbRun, shard_verb

_EPILOG = """\b
Examples:
  tarkit convert 'train-{0000..0009}.tar' -o train.recordio --verify
  tarkit convert train.recordio -o train.tar
  tarkit convert train.tar -o train.tfrecord --example
  tarkit convert part-00000 -o words.tar --field txt
"""


@shard_verb(
    "convert", epilog=_EPILOG, is_described=False, inputs="INPUT...", only_messages=True,
    reader=("key_rule", "on_repeated_key", "on_damage", "mem", "allow_pipe"),
)  # fmt: skip
@click.option("-o", "--output", required=True, metavar="OUT", help="File to write.")
@click.option(
    "--to", metavar="FORMAT", shell_complete=format_values, help="Format of OUT.  [default: by the end of its name]"
)
@source_format_option
@click.option("--field", metavar="FIELD", help="Make a record of the bytes of this field of each sample.")
@click.option(
    "--example",
    is_flag=True,
    help="Make a record of each sample as a tf.train.Example: a feature for each field, and __key__.",
)
@click.option("--piece", is_flag=True, help="Make a record of each sample's part of the tar, headers included.")
@click.option("--columns", metavar="A,B", callback=names_in, help="Columns of Parquet to read or write.")
@click.option(
    "--typed", is_flag=True,
    help="Write fields NAME.json as values of the feature or column NAME; for Parquet, also NAME.txt as text.",
)  # fmt: skip
@click.option("--verify", is_flag=True, help="Read OUT after writing, and compare each record.")
@gathering_options
@dry_run_option
def command(
    run: VerbRun, output: str, to: str | None, source_format: str | None, field: str | None, example: bool,
    piece: bool, columns: list[str] | None, typed: bool, verify: bool, skip_others: bool, on_same_extension: str,
    dry_run: bool, mem: int,
) -> None:  # fmt: skip
    """Convert tar shards to record files, back, or between formats of record files.

    FORMAT is tar, recordio, tfrecord, sequencefile, parquet or har.

    With --piece, the default between tars and record files, a record is a sample's part of the tar,
    headers included: converting back gives the same bytes; several tars come back as one. A har
    holds files, by default one for each field of a sample. With --field a record is the content of
    one field, and all other fields are left out. Between two record files records are copied
    unchanged; keys are lost if the output format has none. Records without keys become samples
    whose keys are the records' numbers.

    With --example a record is a tf.train.Example. Converting back, a feature of bytes becomes a
    field, and a feature of numbers or of several texts becomes a JSON field, FEATURE.json. A slash
    in a feature's name is written as %2F in its field.

    A row of Parquet is a sample: the column __key__ is its key, and each other column is a field:
    bytes become COLUMN, text COLUMN.txt, numbers and lists COLUMN.json; a structure becomes
    COLUMN.PART for each part, and a null is left out. Fields become columns of bytes; with
    --typed, they become text, numbers and lists again.

    Samples, fields and keys can be selected as with tarkit select, where a record is not a sample's
    part of the tar.

    All inputs are written to one file, which is published whole or not at all. A folder as input
    stands for its files that are not hidden.
    """
    refuse_mixed_output(output, run.as_json)
    from tarkit.specs.outputcheck import check_folder
    from tarkit.steps.convert import convert
    from tarkit.steps.encoding import Encoding

    def progress(records: int) -> None:
        if run.meter.is_due():
            run.meter.show(f"{records} records so far", None)

    check_folder(output)
    encoding = Encoding(
        field, example, piece, rule=run.reading["rule"], on_repeated_key=run.reading["on_repeated_key"],
        on_others="skip" if skip_others else "error", on_same_extension=on_same_extension, mem=mem, typed=typed,
        columns=columns,
    )  # fmt: skip
    count = convert(
        run.inputs, output, to, encoding, on_damage=run.reading["on_damage"], source_format=source_format,
        allow_pipe_in_lists=run.allow_pipe, verify=verify, dry_run=dry_run, tally=run.tally, progress=progress,
        selection=run.chosen,
    )  # fmt: skip
    run.found = {"output": display_name(output), "written": not dry_run, "records": count, **run.tally.as_dict()}
    run.notes = [f"{counted(count, 'record')}{', not written' if dry_run else ''}"]
    run.notes += ["read back and compared"] if verify else []
