"""``tarkit select``: copy the samples that fit, from each shard to one of the same name."""

from __future__ import annotations

from typing import Any

import click

from tarkit.errors import UsageError
from tarkit.names.redaction import redact

from ..shared.meter import Meter
from ..shared.program import refuse_mixed_output, refuse_terminal_input, reject_options, standard_options, work_option
from ..shared.results import Results
from ..shared.selection import joining_options, report_joined, selection_of

_NAME = "tarkit select"
_EPILOG = """\b
Examples:
  tarkit select 'train-*.tar' --without-keys bad.txt -O clean/
  tarkit select 'train-*.tar' --keys parts.csv:id --fields 'jpg cls' -o part.tar
  tarkit select a.tar --where 'json.width >= 512 and cls != 7' -o large.tar
  tarkit select a.tar --where 'width(jpg) > 2 * height(jpg)' -o wide.tar
"""


@click.command("select", epilog=_EPILOG)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("-o", "--output", metavar="OUT", help="Shard to write; - is standard output.")
@click.option("-O", "--outdir", metavar="DIR", help="Folder or URL for a shard of the same name for each INPUT.")
@click.option("--force", is_flag=True, help="Replace existing shards in DIR; remove the others of an earlier run.")
@joining_options
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no names of shards, no summary.")
@work_option("allow_pipe")
@standard_options
def command(
    inputs: tuple[str, ...], output: str | None, outdir: str | None, allow_empty: bool, force: bool, dry_run: bool,
    key_rule: str, parallel: int | None, allow_pipe: bool, as_json: bool, quiet: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Copy the samples that meet conditions, with some of their fields.

    All conditions must hold: --match, --keys, --without-keys, --where. They see samples as they are
    in their shard. Then --fields and --drop-fields leave out fields, --rename renames them, and
    --rekey gives new keys. Samples that are not changed keep the bytes of their members, others get
    new headers. Members that belong to no sample are left out and counted.

    Dropped samples are counted by option, and so are keys of a list that no sample has. A field
    that no sample has is an error. If no sample is left, the exit code is 3.

    A list of keys has one on each line; a column of a table is data.csv:COLUMN, also .tsv, .jsonl
    and .parquet, compressed or not. Up to 200,000 keys are held in memory; of the others, digests
    of 16 bytes are sorted in $TMPDIR.

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

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or - (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    if (output is None) == (outdir is None):
        raise UsageError("name the output: one shard, -o OUT, or a folder for a shard of each INPUT, -O DIR")
    refuse_mixed_output(output or "", as_json)
    reject_options(["force"] if outdir is None else ["parallel"], f"goes with {'-O' if outdir is None else '-o'}")
    from tarkit.formats.tally import Tally
    from tarkit.samples.sample import key_rule as rule_of
    from tarkit.steps.select import select_one, select_shards

    tally = Tally()
    options |= {"rule": rule_of(key_rule), "tally": tally, "allow_pipe_in_lists": allow_pipe, "dry_run": dry_run}
    with (
        selection_of(options) as selection,
        Meter(_NAME, quiet=quiet or output == "-") as meter,
        Results(only_messages=True) as results,
    ):
        options["progress"] = meter.joined(tally)

        def published(name: str) -> None:
            if not (quiet or as_json):
                with meter.hidden():
                    results.now(redact(name))

        if outdir is not None:
            made = select_shards(urls, outdir, selection, force=force, published=published, **options)
        else:
            made = select_one(urls, output or "", selection, parallel=parallel or 1, **options)
    return report_joined(
        _NAME, made, selection, tally, quiet=quiet, allow_empty=allow_empty, as_json=as_json, dry_run=dry_run
    )  # fmt: skip
