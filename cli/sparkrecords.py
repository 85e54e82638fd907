"""``python -m tarkit.spark.recordio_gen``: raw data to RecordIO files, on a Spark cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tarkit.errors import UsageError, counted

from .shared.program import names_in, run_program, say, standard_options
from .shared.results import Results

NAME = "recordio_gen"
_EPILOG = """\b
Examples:
  python -m tarkit.spark.recordio_gen --training_data_dir=images/ --output_dir=records
  spark-submit recordio_gen.py --training_data_tar_file=gs://b/images.tar --output_dir=gs://b/records \\
      --model_file=mnist.py --records_per_file=200 --num_workers=16
"""


@click.command(NAME, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--training_data_dir", "--training-data-dir", metavar="FOLDER", help="The raw files, at any depth.")
@click.option("--training_data_tar_file", "--training-data-tar-file", metavar="TAR", help="A tar of the raw files.")
@click.option("--output_dir", "--output-dir", required=True, metavar="FOLDER", help="Folder to write the files to.")
@click.option("--model_file", "--model-file", metavar="FILE", help="Python file that prepares the records of a file.")
@click.option(
    "--records_per_file", "--records-per-file", type=click.IntRange(1), default=1024, show_default=True, metavar="N",
    help="Number of records in a file.",
)  # fmt: skip
@click.option(
    "--num_workers", "--num-workers", "workers", type=click.IntRange(1), default=2, show_default=True, metavar="N",
    help="Tasks, each of which takes a contiguous part of the files.",
)  # fmt: skip
@click.option(
    "--codec_type", "--codec-type", "--codec", "codec", type=click.Choice(["tf_example", "bytes"]),
    default="tf_example", show_default=True, help="Encoding of the records that a model file prepares.",
)  # fmt: skip
@click.option(
    "--image",
    type=click.Choice(["bytes", "floats"]),
    default="bytes",
    show_default=True,
    help="Format of the feature image.",
)
@click.option(
    "--classes",
    callback=names_in,
    metavar="A,B",
    help="Class folders, in the order of their numbers from 0.  [default: sorted]",
)
@click.option("--force", is_flag=True, help="Replace the files of an earlier run.")
@standard_options
def command(
    training_data_dir: str | None, training_data_tar_file: str | None, output_dir: str, verbose: bool, **options: Any
) -> int:
    """Make RecordIO files of tf.train.Examples, in tasks on a Spark cluster.

    Without --model_file the files are images, in one folder for each class: the features are image
    and label, the number of the class. With it, prepare_data_for_a_single_file(file, name) of that
    Python file prepares them.

    Files are called data-WORKER-CHUNK, and each appears whole. Their names are printed at the end.
    """
    source = training_data_dir or training_data_tar_file
    if source is None or (training_data_dir and training_data_tar_file):
        raise UsageError("give --training_data_dir or --training_data_tar_file, one of the two")
    from tarkit.formats.tally import Tally
    from tarkit.names.url import display_name, join
    from tarkit.spark.records import generate_records

    tally = Tally()
    written = generate_records(source, output_dir, is_tar=training_data_dir is None, tally=tally, **options)
    with Results(only_messages=True) as results:
        for file in written:
            results.line(display_name(join(output_dir, file.name)))
    total = sum(file.records for file in written)
    if not total:
        raise UsageError(f"{display_name(source)} gives no record; see --model_file for files that are not images")
    skipped = tally.phrases(skipped="skipped files")
    say(NAME, "; ".join([f"{counted(total, 'record')} in {counted(len(written), 'file')}", *skipped]))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run_program(command, NAME, argv)
