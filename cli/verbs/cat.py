"""``tarkit cat``: join several shards into one, byte for byte.

With --raw, join any files.
"""

from __future__ import annotations

import click

from tarkit.errors import counted

from ..shared.program import dry_run_option, refuse_mixed_output, reject_options
from ..shared.shardverb import JOINER, VerbRun, shard_verb

_EPILOG = """\b
Examples:
  tarkit cat 'train-{0000..0009}.tar' -o train.tar.gz
  tarkit cat a.tar b.tar | tarproc -c 'ls'
  tarkit cat a.tar --keys wanted.txt -o wanted.tar
  tarkit cat --raw https://example.com/train-000000.tgz | tar -tzf -
"""

_OF_RAW = {"inputs", "output", "raw", "quiet", "allow_pipe", "verbose"}
"""Options that go with --raw."""


@shard_verb(
    "cat", epilog=_EPILOG, inputs="[INPUT]...", reader=JOINER, may_be_empty=False, only_messages=True,
    parallel=(1, "Number of shards to open, read and decompress at once; the output is the same."),
)  # fmt: skip
@click.option("-o", "--output", default="-", metavar="OUT", help="Shard to write; - is standard output.  [default: -]")
@click.option(
    "--raw", is_flag=True, help="Copy the bytes of any file unchanged: not decompressed, and not checked as a tar."
)
@dry_run_option
def command(run: VerbRun, output: str, raw: bool, dry_run: bool, parallel: int) -> None:
    """Join shards into one.

    Headers, extended headers and content are copied byte for byte, with one end-of-archive mark at
    the end. Everything is checked: damage is an error, and so is a key that two shards have, since
    the output is one shard. Folders, links and other members that do not belong to a sample are
    copied too, except with --on-damage skip and with a selection.

    The options of a selection keep samples that meet all of them; --rename and --rekey come last.
    Samples that are not changed keep their bytes, others get new headers. What was dropped is
    counted by option; if no sample is left, the exit code is 3. See tarkit select --help for the
    conditions of --where.

    Input is decompressed, whatever its name; output is compressed as its name says (.gz .tgz .zst
    .bz2 .xz .lz4).

    With --raw the inputs are any files, whose bytes are copied unchanged: neither decompressed nor
    checked as tars. A read that loses its connection resumes at the same byte, and the exit code is
    0 only if every input was read to its verified end: use it in pipelines in place of curl and
    gsutil cat. In bash, "set -o pipefail" makes a pipeline fail with that exit code.
    """
    refuse_mixed_output(output, run.as_json)
    from tarkit.steps.join import join_files
    from tarkit.steps.select import select_one

    if raw:
        others = {each.name or "" for each in click.get_current_context().command.params} - _OF_RAW
        reject_options(others, "does not go with --raw, which does not look into its inputs")
        files, size = join_files(run.inputs, output, allow_pipe_in_lists=run.allow_pipe)
        run.notes = [f"{counted(files, 'input')}, {size} bytes"] if output != "-" else []
        return
    made = select_one(run.inputs, output, run.selection, parallel=parallel, dry_run=dry_run, **run.joining(output))
    if run.reading["on_damage"] == "error" and not run.selection.selects:
        run.skipped = "copied, though no part of a sample"
    run.note_joined(made, dry_run)
