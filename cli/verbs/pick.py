"""``tarkit pick``: fetch samples by their keys."""

from __future__ import annotations

import json
from typing import Any

import click

from tarkit.errors import UsageError, counted
from tarkit.names.redaction import redact

from ..shared.meter import Meter
from ..shared.program import dry_run_notes, refuse_terminal_input, reject_options, say, standard_options, work_options
from ..shared.results import Results, counted_names, met
from ..shared.sections import LongHelp
from ..shared.selection import choosing_options, exit_code_of_selected, selected, selection_of
from ..shared.series import open_shards, shards_options, summarize, write_samples

_NAME = "tarkit pick"
_OF_SHARDS = ("maxcount", "maxsize", "start", "manifest", "mtime", "format", "index")
_EPILOG = """\b
Examples:
  tarkit pick 000017 000018 --from s3://bucket/train-000000.tar -O picked/
  tarkit pick @keys.txt --from 'train-{000000..000099}.tar' -o picked.tar
"""


@click.command("pick", cls=LongHelp, epilog=_EPILOG)
@click.argument("wanted", metavar="KEY...", nargs=-1, required=True)
@click.option(
    "--from", "specs", multiple=True, required=True, metavar="SHARD", help="Shards to look into; may be repeated."
)
@click.option("-O", "--outdir", metavar="DIR", help="New folder for the files KEY.FIELD, in place of -o.")
@shards_options(required=False)
@click.option(
    "-p", "--parallel", type=click.IntRange(1), default=4, show_default=True,
    help="Number of shards to look into, or of reads of a remote shard, at once.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@choosing_options
@work_options("key_rule", "allow_pipe")
@standard_options
def command(
    wanted: tuple[str, ...], specs: tuple[str, ...], outdir: str | None, output: str | None, parallel: int, quiet: bool,
    allow_empty: bool, key_rule: str, allow_pipe: bool, as_json: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Fetch samples by their keys, in the order of the shards.

    Through a fresh index, each sample is one read of its range. Of a shard without one, the headers
    are read first, as by tarkit count; a compressed shard and a stream are read whole. This is
    reported, as are stale indexes, which are not used.

    A key that no shard has is an error, as is one that two samples have. All keys are looked up
    before anything is written, except for those that only a shard that is read whole may have.

    KEY is a key, or @FILE: a file with a key on each line. SHARD is a path, a URL, a spec such as
    train-{0000..0147}.tar, @list.txt, dataset.json (a manifest), or -. The folder of -O appears
    whole, at the end; --force replaces one that has files.
    """
    if (outdir is None) == (output is None):
        raise UsageError("say where the samples go: to a shard (-o OUT) or to files in a folder (-O DIR)")
    refuse_terminal_input(specs)
    from tarkit.formats.tally import Tally
    from tarkit.samples.sample import key_rule as rule_of
    from tarkit.specs.shardspec import expand
    from tarkit.steps.export import kept_inputs, open_export
    from tarkit.steps.keylists import file_of_keys, listed_keys
    from tarkit.steps.picking import pick_samples

    tally, stale, by_headers, whole = Tally(), list[str](), list[str](), list[str]()
    names = list(expand(specs, allow_pipe_in_lists=allow_pipe))
    if outdir is not None:
        lists = [file_of_keys(word[1:]) for word in wanted if word.startswith("@")]
        names = list(kept_inputs(names, outdir, "folder", lists=lists))
    picked = pick_samples(
        listed_keys(wanted), names, rule=rule_of(key_rule), parallel=parallel, tally=tally, stale=stale,
        unindexed=lambda name, is_whole: (whole if is_whole else by_headers).append(name),
    )  # fmt: skip
    with selection_of(options) as selection, Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:
        picked = selection.select(picked)
        if outdir is not None:
            reject_options(_OF_SHARDS, "goes with a shard, -o OUT")
            with open_export(outdir, "folder", force=options["force"], dry_run=options["dry_run"]) as write:
                number = sum(1 for _ in map(write, picked))
            if as_json:
                results.line(json.dumps({"samples": number, "folder": redact(outdir)}))
        else:
            with open_shards(_NAME, output or "-", meter, results, lambda _: names, rule=key_rule, **options) as shards:
                write_samples(shards, picked, meter)
            number = shards.total
            summarize(_NAME, shards, results, quiet=True)
    notes = counted_names("stale indexes that were not used", stale)
    notes += counted_names("shards without an index, of which the headers were read", by_headers)
    notes += counted_names("shards without an index that were read whole", whole)
    code = exit_code_of_selected(selection, tally, allow_empty)
    if code or not quiet:
        say(_NAME, "; ".join([counted(number, "sample"), *dry_run_notes(), *notes, *selected(selection), *met(tally)]))
    return code
