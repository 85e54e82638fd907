"""``tarkit pick``: fetch samples by their keys."""

from __future__ import annotations

import click

from tarkit.errors import UsageError, counted
from tarkit.names.redaction import redact

from ..shared.program import dry_run_notes, reject_options
from ..shared.results import counted_names
from ..shared.series import OUTPUT, shards_options
from ..shared.shardverb import VerbRun, shard_verb

_EPILOG = """\b
Examples:
  tarkit pick 000017 000018 --from s3://bucket/train-000000.tar -O picked/
  tarkit pick @keys.txt --from 'train-{000000..000099}.tar' -o picked.tar
"""


@shard_verb(
    "pick", epilog=_EPILOG, inputs=None, reader=("key_rule", "allow_pipe"), may_be_empty=False, only_messages=True,
    parallel=(4, "Number of shards to look into, or of reads of a remote shard, at once."),
)  # fmt: skip
@click.argument("wanted", metavar="KEY...", nargs=-1, required=True)
@click.option(
    "--from", "inputs", multiple=True, required=True, metavar="SHARD", help="Shards to look into.  [repeatable]"
)
@click.option("-O", "--outdir", metavar="DIR", help="New folder for the files KEY.FIELD, in place of -o.")
@shards_options(required=False)
def command(run: VerbRun, wanted: tuple[str, ...], output: str | None, outdir: str | None, parallel: int) -> None:
    """Fetch samples by their keys, in the order of the shards.

    Through a fresh index, each sample is one read of its range. Of a shard without one, the headers
    are read first, as by tarkit count; a compressed shard and a stream are read whole. This is
    reported, as are stale indexes, which are not used.

    A key that no shard has is an error, as is one that two samples have. All keys are looked up
    before anything is written, except for those that only a shard that is read whole may have.

    KEY is a key, or @FILE: a file with a key on each line. The folder of -O
    appears whole, at the end; --force replaces one that has files.
    """
    if (outdir is None) == (output is None):
        raise UsageError("say where the samples go: to a shard (-o OUT) or to files in a folder (-O DIR)")
    from tarkit.samples.sample import key_rule
    from tarkit.steps.export import kept_inputs, open_export
    from tarkit.steps.keylists import file_of_keys, listed_keys
    from tarkit.steps.picking import pick_samples

    stale, by_headers, whole, names = list[str](), list[str](), list[str](), list(run.shards())
    if outdir is not None:
        lists = [file_of_keys(word[1:]) for word in wanted if word.startswith("@")]
        names = list(kept_inputs(names, outdir, "folder", lists=lists))
    run.total = None  # few of them are read
    picked = pick_samples(
        listed_keys(wanted), names, rule=key_rule(run.reading["rule"]), parallel=parallel, tally=run.tally,
        stale=stale, unindexed=lambda name, is_whole: (whole if is_whole else by_headers).append(name),
    )  # fmt: skip
    picked = run.selection.select(picked)
    if outdir is None:
        run.write(output or "-", picked, names)
    else:
        reject_options({*OUTPUT} - {"force", "dry_run"}, "goes with a shard, -o OUT")
        with open_export(outdir, "folder", force=run.series["force"], dry_run=run.series["dry_run"]) as write:
            number = sum(1 for _ in map(write, picked))
        run.found = {"samples": number, "folder": redact(outdir)}
        run.notes = [counted(number, "sample"), *dry_run_notes()]
    run.notes += counted_names("stale indexes that were not used", stale)
    run.notes += counted_names("shards without an index, of which the headers were read", by_headers)
    run.notes += counted_names("shards without an index that were read whole", whole)
