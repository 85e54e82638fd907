"""``tarkit salvage``: save the whole samples of damaged shards."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, UsageError, counted
from tarkit.names.redaction import redact

from ..shared.meter import Meter
from ..shared.program import refuse_terminal_input, say, standard_options, work_options
from ..shared.results import Results, met
from ..shared.series import open_shards, shards_options

if TYPE_CHECKING:
    from tarkit.steps.salvage import Lost

_NAME = "tarkit salvage"
_EPILOG = """\b
Examples:
  tarkit salvage damaged.tar -o good.tar
  tarkit salvage 'train-{0000..0147}.tar' -O good/

\b
Exit codes: 0 nothing was lost; 3 something was lost, and the rest is written.
"""


@click.command("salvage", epilog=_EPILOG)
@click.argument("inputs", metavar="[SHARD]...", nargs=-1)
@shards_options(required=False)
@click.option("-O", "--outdir", metavar="DIR", help="Folder for one shard for each SHARD, of the same name.")
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@work_options("key_rule", "on_duplicate_field", "on_repeated_key", "allow_pipe")
@standard_options
def command(
    inputs: tuple[str, ...], output: str | None, outdir: str | None, quiet: bool, as_json: bool, key_rule: str,
    on_duplicate_field: str, on_repeated_key: str, allow_pipe: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Copy the whole samples of damaged shards, and report what was lost.

    Reading resumes at the next valid header behind damage. The samples on both sides of a lost
    stretch are dropped, since they may not be whole; where a member is cut, only its own sample. So
    is a sample with a member whose content is not in the shard, such as a hard link. All other
    samples are written unchanged, with new headers.

    Each loss is a line: the shard, the offsets of the stretch in the uncompressed shard, the keys
    of the samples before and behind it that were saved, and the reason. With --json it is {"shard",
    "start", "end", "reason", "samples", "after", "before"}; "samples" is the number of dropped
    samples that are known. With -o -, the lines are on standard error.

    Where no whole sample is found, nothing is written. SHARD is a path, a URL, a spec such as
    train-{0000..0147}.tgz, @list.txt, dataset.json (a manifest), or - (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    if (output is None) == (outdir is None):
        raise UsageError("name an output: -o OUT for one shard or a series, or -O DIR for one shard for each SHARD")
    if as_json and output == "-":
        raise UsageError("--json prints to standard output, where -o - writes the shard")
    from tarkit.formats.tally import Tally
    from tarkit.names.outputnames import plan_outputs
    from tarkit.specs.shardspec import counted_shards
    from tarkit.steps.salvage import salvaged_samples

    tally, lost, total, size, names = Tally(), 0, 0, 0, list[str]()
    policies: Any = {"rule": key_rule, "on_repeated_key": on_repeated_key}
    with Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:
        found, number = counted_shards(
            urls, allow_pipe_in_lists=allow_pipe, outputs=[output] if output else [], must_exist=True
        )
        # Looked up before the first shard is written, which a glob might match.
        known = list(found)

        def report(loss: Lost) -> None:
            nonlocal lost
            lost += 1
            if output == "-":
                meter.say(str(loss))
            else:
                results.line(json.dumps(loss._asdict()) if as_json else str(loss))

        planned = [([url], name) for url, name in plan_outputs(known, outdir)] if outdir else [(known, str(output))]
        for inputs_of_one, name in planned:
            samples = salvaged_samples(
                inputs_of_one, report, on_duplicate_field=on_duplicate_field, tally=tally, **policies
            )
            if (first := next(samples, None)) is None:
                continue
            with open_shards(_NAME, name, meter, results, lambda _: known, **policies, **options) as shards:
                for sample in itertools.chain([first], samples):
                    shards.write(sample)
                    if meter.is_due():
                        part = None if number is None else tally.shards_read() / number
                        meter.show(f"{total + shards.total} samples so far", part)
            total, size = total + shards.total, size + shards.size
            names += [redact(each) for each in shards.shards]
        if as_json:
            results.line(json.dumps({"samples": total, "bytes": size, "shards": names}))
    if not quiet:
        written = f"{counted(total, 'sample')} in {counted(len(names), 'shard')}, {size} bytes of content"
        say(_NAME, "; ".join([written, *met(tally)]))
    return EXIT_SET_ASIDE if lost else EXIT_OK
