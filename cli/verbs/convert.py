"""``tarkit convert``: convert shards to record files and back."""

from __future__ import annotations

import json
from typing import Any

import click

from tarkit.errors import counted
from tarkit.names.url import display_name

from ..shared.completion import format_values
from ..shared.meter import Meter
from ..shared.program import (
    dry_run_option,
    gathering_options,
    json_option,
    names_in,
    refuse_mixed_output,
    refuse_terminal_input,
    say,
    standard_options,
    work_options,
    write_stdout,
)
from ..shared.results import exit_code_of, met
from ..shared.sections import LongHelp
from ..shared.selection import selected, selection_of, selection_options

_EPILOG = """\b
Examples:
  tarkit convert 'train-{0000..0009}.tar' -o train.recordio --verify
  tarkit convert train.recordio -o train.tar
  tarkit convert train.tar -o train.tfrecord --example
  tarkit convert part-00000 -o words.tar --field txt
"""


@click.command("convert", cls=LongHelp, epilog=_EPILOG)
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("-o", "--output", required=True, metavar="OUT", help="File to write.")
@click.option(
    "--to", metavar="FORMAT", shell_complete=format_values, help="Format of OUT.  [default: by the end of its name]"
)
@click.option(
    "--from",
    "source_format",
    metavar="FORMAT",
    shell_complete=format_values,
    help="Format of INPUT.  [default: by its name, else by its first bytes]",
)
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
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@dry_run_option
@json_option
@work_options("key_rule", "on_repeated_key", "on_damage", "mem", "allow_pipe")
@gathering_options
@selection_options
@standard_options
def command(
    inputs: tuple[str, ...], output: str, to: str | None, source_format: str | None, field: str | None, example: bool,
    piece: bool, columns: list[str] | None, typed: bool, verify: bool, quiet: bool, dry_run: bool, as_json: bool,
    **options: Any,
) -> int:  # fmt: skip
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
    refuse_terminal_input(inputs)
    refuse_mixed_output(output, as_json)
    with selection_of(options) as selection, Meter("tarkit convert", quiet=quiet) as meter:
        from tarkit.formats.tally import Tally
        from tarkit.specs.outputcheck import check_folder
        from tarkit.steps.convert import convert
        from tarkit.steps.encoding import Encoding

        check_folder(output)
        tally = Tally()

        def progress(records: int) -> None:
            if meter.is_due():
                meter.show(f"{records} records so far", None)

        count = convert(
            inputs,
            output,
            to,
            Encoding(
                field,
                example,
                piece,
                rule=options["key_rule"],
                on_repeated_key=options["on_repeated_key"],
                on_others="skip" if options["skip_others"] else "error",
                on_same_extension=options["on_same_extension"],
                mem=options["mem"],
                typed=typed,
                columns=columns,
            ),
            on_damage=options["on_damage"],
            source_format=source_format,
            allow_pipe_in_lists=options["allow_pipe"],
            verify=verify,
            dry_run=dry_run,
            tally=tally,
            progress=progress,
            selection=selection if selection.selects else None,
        )
    code = exit_code_of(tally)
    if as_json:
        found = {"output": display_name(output), "written": not dry_run, "records": count, **tally.as_dict()}
        write_stdout(f"{json.dumps(found)}\n".encode())
    if code or not quiet:
        read_back = ["read back and compared"] if verify else []
        records = f"{counted(count, 'record')}{', not written' if dry_run else ''}"
        say("tarkit convert", "; ".join([records, *read_back, *selected(selection), *met(tally)]))
    return code
