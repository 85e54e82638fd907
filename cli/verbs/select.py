"""``tarkit select``: copy the samples that fit, from each shard to one of the same name."""

from __future__ import annotations

import click

from tarkit.errors import UsageError

from ..shared.program import dry_run_option, refuse_mixed_output, reject_options
from ..shared.series import name_printer
from ..shared.shardverb import JOINER, VerbRun, outdir_option, shard_verb

_EPILOG = """\b
Examples:
  tarkit select 'train-*.tar' --without-keys bad.txt -O clean/
  tarkit select 'train-*.tar' --keys parts.csv:id --fields 'jpg cls' -o part.tar
  tarkit select a.tar --where 'json.width >= 512 and cls != 7' -o large.tar
  tarkit select a.tar --where 'width(jpg) > 2 * height(jpg)' -o wide.tar
"""


@shard_verb(
    "select", epilog=_EPILOG, reader=JOINER, may_be_empty=False, only_messages=True,
    parallel=(1, "With -o: number of shards to open, read and decompress at once; the output is the same."),
)  # fmt: skip
@click.option("-o", "--output", metavar="OUT", help="Shard to write; - is standard output.")
@outdir_option
@click.option("--force", is_flag=True, help="Replace existing shards in DIR; remove the others of an earlier run.")
@dry_run_option
def command(run: VerbRun, output: str | None, outdir: str | None, force: bool, dry_run: bool, parallel: int) -> None:
    """Copy the samples that meet conditions, with some of their fields.

    All conditions must hold: --match, --keys, --without-keys, --where. They see samples as they are
    in their shard. Then --fields and --drop-fields leave out fields, --rename renames them, and
    --rekey gives new keys. Samples that are not changed keep the bytes of their members, others get
    new headers. Members that belong to no sample are left out and counted.

    Dropped samples are counted by option, and so are keys of a list that no sample has. A field
    that no sample has is an error. If no sample is left, the exit code is 3.

    A list of keys has one on each line; a column of a table is data.csv:COLUMN, also .tsv, .jsonl
    and .parquet, compressed or not. Up to 200,000 keys are held in memory; digests of the others
    are kept in $TMPDIR.

    --where takes and, or, not, parentheses; == != < <= > >=, in, not in; + - * / of numbers;
    numbers, 'texts', lists [1, 2]; true, false, null. Values are key; FIELD, the text of a field,
    or its number where it is compared with one; json.a.b, a value in a JSON field; size(FIELD);
    has(FIELD); len(x); lower(x); match(x, 'REGEX'); width(FIELD) and height(FIELD), from the header
    of a picture; field('seg.png'), for other names. A value that is missing is null, and
    comparisons with null are false, except x == null and x != null. Text and a number cannot be
    compared. A value of JSON that no sample has is reported.

    With -O, each output is published whole, under the name of its input. Existing shards of these
    names, or of the same names with other numbers, are an error; --force replaces or removes them.
    With -o, the output is one shard, as from tarkit cat.
    """
    if (output is None) == (outdir is None):
        raise UsageError("name the output: one shard, -o OUT, or a folder for a shard of each SHARD, -O DIR")
    refuse_mixed_output(output or "", run.as_json)
    reject_options(["force"] if outdir is None else ["parallel"], f"goes with {'-O' if outdir is None else '-o'}")
    from tarkit.steps.select import select_one, select_shards

    options = run.joining(output) | {"dry_run": dry_run}
    if outdir is not None:
        published = name_printer(run.meter, run.results)
        made = select_shards(run.inputs, outdir, run.selection, force=force, published=published, **options)
    else:
        made = select_one(run.inputs, output or "", run.selection, parallel=parallel, **options)
    run.note_joined(made, dry_run)
