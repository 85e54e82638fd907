"""``tarkit dedup``: leave out samples whose content an earlier sample has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import click

from tarkit.errors import EXIT_OK

from ..shared.exchangeverb import index_option, note_result, slice_of_stage, stage_options
from ..shared.program import dry_run_notes, names_in, refuse_mixed_output, work_option
from ..shared.results import counted_names
from ..shared.shardverb import VerbRun, shard_verb

if TYPE_CHECKING:
    from tarkit.exchange.exchange import Result
    from tarkit.exchange.filtering import DedupResult

_EPILOG = """\b
Examples:
  tarkit dedup 'train-{000..147}.tar' -O unique/
  tarkit dedup 'train-*.tar' --by jpg -O unique/ --report gone.jsonl
  tarkit dedup @list.txt --perceptual jpg -O s3://bucket/unique --dry-run
"""


@shard_verb(
    "dedup", epilog=_EPILOG, reader=("key_rule", "allow_pipe"), selects=False, only_messages=True, inputs="SHARD...",
    reads_twice=True,
    parallel=(os.cpu_count() or 1, "Number of processes; the output is the same."),
)  # fmt: skip
@click.option(
    "-O", "--outdir", metavar="DIR", required=True, help="Folder or URL for a shard of the same name for each SHARD."
)
@click.option(
    "--by", callback=names_in, metavar="FIELD,...", help="Fields to compare; content: all.  [default: content]"
)
@click.option("--perceptual", metavar="FIELD", help="Compare the perceptual hash (pHash) of the picture in this field.")
@click.option(
    "--missing", type=click.Choice(["error", "keep"]), default="error", show_default=True,
    help="A sample without the field is a failed sample, or is kept.",
)  # fmt: skip
@click.option("--report", "listing", metavar="FILE", help="List in JSON lines what is left out, and what it equals.")
@index_option
@work_option("max_errors")
@stage_options("scatter", "match", "gather", held="digests")
def command(
    run: VerbRun,
    parallel: int,
    outdir: str,
    by: list[str] | None,
    perceptual: str | None,
    missing: str,
    listing: str | None,
    index: bool,
    max_errors: str,
    work: str | None,
    mem: int,
    force: bool,
    dry_run: bool,
    stage: str | None,
    stage_slice: str | None,
    wait: float,
) -> int:
    """Leave out the samples whose content an earlier sample has.

    The first in the order of the inputs stays. Each SHARD becomes a shard of the same name, and the
    samples that stay keep the bytes of their members. Content is compared by digests of 128 bits:
    that of one field, of several, or of all fields and their names. Keys and headers are not
    compared.

    --perceptual leaves out pictures whose perceptual hash is exactly equal to that of an earlier
    one: mostly the same picture in another size or compression. It is a hash of 64 bits, so
    different pictures can have the same one, as pictures of one colour do: look at --report
    first, with --dry-run. Pictures that cannot be decoded are kept and counted. It needs the
    library imagehash.

    The shards are read twice, and only digests are sorted. Run again after an interruption, the
    same command resumes. A list of --report has a line with key, shard, equals_key, equals_shard
    and digest for each sample that is left out.

    A cluster runs each stage in slices: --stage scatter --slice I/W for all I, then match, which
    compares the digests, then gather, which writes the shards.
    """
    refuse_mixed_output(listing or "", run.as_json)
    number, slices = slice_of_stage(stage, stage_slice)
    from tarkit.exchange.dedupslices import DedupSlice
    from tarkit.exchange.digests import Digests

    def show(stage: str, done: int, total: int) -> None:
        if run.meter.is_due():
            things = {"scatter": "slices read", "match": "parts compared"}.get(stage, "shards written")
            run.meter.show(f"{done} of {total} {things}", done / total if total else None)

    step = Digests(tuple(by or ()), perceptual, missing)
    dedup = DedupSlice(
        step, [*run.shards()], outdir, key_rule=str(run.reading["rule"]), index=index, max_errors=max_errors,
        listing=listing, dry_run=dry_run, work=work, parallel=parallel, mem=mem, force=force, report=show,
    )  # fmt: skip
    dedup.wait = wait
    result: Result
    if stage is None:
        result = dedup.run()
    else:
        result = {"scatter": dedup.scatter, "match": dedup.match, "gather": dedup.gather}[stage](number, slices)
    run.notes += (notes := dry_run_notes())
    note_result(run, result, outdir, "" if notes else "run file" if stage in ("scatter", "match") else "shard")
    if stage is None or stage == "gather":
        _note_kept(run, cast("DedupResult", result))
    # A sample that failed in a scatter is not lost: the gather writes it, and ends with 3.
    return EXIT_OK if stage in ("scatter", "match") else result.counts.exit_code


def _note_kept(run: VerbRun, result: DedupResult) -> None:
    run.notes += [
        f"kept {reason}: {number}, the first {result.first_kept[reason]}"
        for reason, number in sorted(result.kept.items())
    ]
    run.notes += counted_names("shards that are empty now", result.emptied)
    run.found |= {"kept": dict(result.kept), "emptied": result.emptied}
