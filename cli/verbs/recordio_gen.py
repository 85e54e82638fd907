"""``tarkit recordio-gen``: convert images, tables and shards to RecordIO files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import UsageError, counted, printable

from ..shared.meter import Meter
from ..shared.program import names_in, quiet_option, say, standard_options, work_option
from ..shared.results import Results, exit_code_of

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally

_EPILOG = """\b
Examples:
  tarkit recordio-gen mnist-jpg/ -o records --records_per_file 200
  tarkit recordio-gen images.tar.gz -o records --model_file mnist.py
  tarkit recordio-gen --kind shards 'train-{0000..0009}.tar' -o s3://bucket/records
  tarkit recordio-gen iris.data -o records --columns a,b,c,d,class --label class
"""


def _of_files(
    sources: Sequence[str], tally: Tally, *, model_file: str | None = None, codec: str | None = None,
    image: str | None = None, classes: Sequence[str] | None = None, on_damage: str = "error",
) -> Iterator[bytes]:  # fmt: skip
    from tarkit.formats.tally import Tally
    from tarkit.steps import prepare as rules
    from tarkit.steps.sourcefiles import files_of

    if model_file is None and codec is not None:
        raise UsageError(f"{_flag('codec')} goes with --model_file")
    if model_file is None:
        # Their own tally: the files are read once more for their records.
        names = (file.name for file in files_of(sources[0], Tally(), on_damage=on_damage))
        prepare = rules.prepare_images(classes or rules.classes_of(names), image or "bytes")
    elif image is None and classes is None:
        model = rules.load_model(rules.read_model_file(model_file), model_file)
        prepare = rules.prepare_with_model(model, codec or "tf_example")
    else:
        raise UsageError(f"{_flag('classes' if image is None else 'image')} goes without --model_file")
    return rules.prepared(files_of(sources[0], tally, on_damage=on_damage), prepare, tally)


def _of_shards(
    sources: Sequence[str], tally: Tally, *, fields: Sequence[str] = (), on_damage: str = "error"
) -> Iterator[bytes]:
    from tarkit.steps.prepare import shard_records

    return shard_records(sources, tally, fields, on_damage=on_damage)


def _of_table(
    sources: Sequence[str], tally: Tally, *, columns: Sequence[str] | None = None, label: str | None = None,
    skip_rows: int = 0, with_text: Callable[[list[str]], object],
) -> Iterator[bytes]:  # fmt: skip
    from tarkit.steps.tables import table_records

    return table_records(sources[0], columns=columns, label=label, skip_rows=skip_rows, with_text=with_text)


_KINDS: dict[str, Callable[..., Iterator[bytes]]] = {
    "files": _of_files, "shards": _of_shards, "csv": _of_table,
}  # fmt: skip
"""Kind of SOURCE -> function that makes its records; its keyword arguments are its options."""


def _flag(name: str) -> str:
    return next(option.opts[0] for option in click.get_current_context().command.params if option.name == name)


def _kind_of(sources: Sequence[str]) -> str:
    source = sources[0]
    if len(sources) > 1 or source.startswith("@") or (("{" in source or "*" in source) and not os.path.exists(source)):
        return "shards"
    return "csv" if source.endswith((".csv", ".data")) else "files"


@click.command("recordio-gen", epilog=_EPILOG)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "-o", "--output_dir", "--output-dir", required=True, metavar="FOLDER", help="Folder to write the files to."
)
@click.option(
    "--kind",
    type=click.Choice(list(_KINDS)),
    help="Kind of SOURCE.  [default: csv for .csv and .data, shards for several or a pattern, else files]",
)
@click.option(
    "--records_per_file", "--records-per-file", type=click.IntRange(1), default=1024, show_default=True, metavar="N",
    help="Number of records in a file.",
)  # fmt: skip
@click.option("--model_file", "--model-file", metavar="FILE", help="Python file that prepares the records of a file.")
@click.option(
    "--codec_type", "--codec", "codec", type=click.Choice(["tf_example", "bytes"]),
    help="Encoding of the records that a model file prepares.  [default: tf_example]",
)  # fmt: skip
@click.option("--image", type=click.Choice(["bytes", "floats"]), help="Format of the feature image.  [default: bytes]")
@click.option(
    "--classes",
    callback=names_in,
    metavar="A,B",
    help="Class folders, in the order of their numbers from 0.  [default: sorted]",
)
@click.option("--fields", callback=names_in, metavar="A,B", help="Fields of samples to write as features.")
@click.option(
    "--columns", callback=names_in, metavar="A,B", help="Names of a table's columns.  [default: its first row]"
)
@click.option(
    "--label", metavar="COLUMN", help="Column to write as label: the number of its value among the sorted values."
)
@click.option(
    "--skip-rows", type=click.IntRange(0), metavar="N", help="Number of rows to skip at the beginning of a table."
)
@work_option(
    "on_damage",
    default=None,
    show_default="error",
    help="If a tar is damaged: stop, or leave out the damaged part, count the losses, and exit with 3.",
)
@click.option("--force", is_flag=True, help="Replace the files of an earlier run.")
@quiet_option
@standard_options
def command(
    sources: tuple[str, ...], output_dir: str, kind: str | None, records_per_file: int, force: bool, quiet: bool,
    verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Make RecordIO files of tf.train.Examples.

    SOURCE is a folder or a tar of images, with one folder for each class: the features are image
    and label, the number of the class. With --model_file, SOURCE has any files, prepared by
    prepare_data_for_a_single_file(file, name) of that Python file. It may also be tar shards
    (--kind shards), with a feature for each field, or a CSV file, with a feature for each column. A
    file without a record, such as one that is not an image, is counted as no-record.

    The files are named data-00000, data-00001, …, and each is published whole. Their names are
    printed as they are published.
    """
    kind = kind or _kind_of(sources)
    if kind != "shards" and len(sources) != 1:
        raise UsageError("tar shards are any number; any other SOURCE is one")
    given = {name: value for name, value in options.items() if value is not None}
    if unused := [name for name in given if name not in signature(_KINDS[kind]).parameters]:
        raise UsageError(f"{_flag(unused[0])} is not for SOURCE of the kind {kind}; leave it out, or see --kind")
    with Meter("tarkit recordio-gen", quiet=quiet) as meter, Results(only_messages=True) as results:
        from tarkit.formats.tally import Tally
        from tarkit.names.url import display_name
        from tarkit.steps.recordfiles import clear_record_files, write_record_files

        tally = Tally()
        text_columns: list[str] = []
        if kind == "csv":
            given["with_text"] = text_columns.extend
        records = _KINDS[kind](sources, tally, **given)
        if not force:
            clear_record_files(output_dir)
        # What is there is removed once there is something to replace it.
        if (first := next(records, None)) is None:
            reason = "; see --kind, and --model_file for files that are not images"
            raise UsageError(f"{display_name(sources[0])} gives no record{reason}")
        if force:
            clear_record_files(output_dir, force=True, sources=sources)
        files = 0

        def published(name: str, count: int) -> None:
            nonlocal files
            files += 1
            with meter.hidden():
                results.now(display_name(name))
            if meter.is_due():
                meter.show(f"{files} files so far", None)

        total = write_record_files(
            itertools.chain([first], records),
            output_dir,
            records_per_file=records_per_file,
            # Of two runs into one folder at once, one wins: together they would leave a mixture.
            if_absent=True,
            published=published,
        )
    code = exit_code_of(tally)
    skipped = "skipped members" if kind == "shards" else "skipped files"
    if code or not quiet:
        texts = [f"columns of text: {', '.join(map(printable, text_columns))}"] if text_columns else []
        made = f"{counted(total, 'record')} in {counted(files, 'file')}"
        say("tarkit recordio-gen", "; ".join([made, *texts, *tally.phrases(skipped=skipped)]))
    return code
