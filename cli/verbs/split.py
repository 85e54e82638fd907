"""``tarkit split``: write samples to a numbered series of shards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import UsageError

from ..shared.meter import Meter
from ..shared.program import reader_options, refuse_terminal_input, reject_options, standard_options
from ..shared.results import Results, met
from ..shared.sections import LongHelp
from ..shared.selection import choosing_options, exit_code_of_selected, selected, selection_of
from ..shared.series import open_shards, shards_options, summarize, write_samples

if TYPE_CHECKING:
    from tarkit.steps.shardsoutput import ShardsOutput

_NAME = "tarkit split"
_EPILOG = """\b
Examples:
  tarkit split big.tar -o 'part-%06d.tar.gz' --maxcount 1000
  tarkit split 'raw-*.tar' -o 'train-%03d.tar' --shards 16 --drop-fields txt
  tarkit split - -o 's3://bucket/part-%06d.tar' --maxsize 1G
"""


@click.command("split", cls=LongHelp, epilog=_EPILOG)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@shards_options(output="Shards to write, such as out-%06d.tar.", metavar="PATTERN")
@click.option("--shards", "shard_count", type=click.IntRange(1), metavar="N", help="Write N shards of equal length.")
@choosing_options
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@reader_options
@standard_options
def command(
    inputs: tuple[str, ...], output: str, shard_count: int | None, allow_empty: bool, quiet: bool, key_rule: str,
    on_duplicate_field: str, on_repeated_key: str, on_damage: str, allow_pipe: bool, as_json: bool, verbose: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Cut shards into a numbered series of shards.

    Samples stay whole and in order. A shard is full when the next sample would exceed --maxcount or
    --maxsize; a sample that is larger than --maxsize gets a shard of its own. The names of the
    shards are printed, one a line, as they are published. Members get new headers, as tarproc
    writes them.

    With --shards, the samples are counted first, and the lengths of the shards differ by at most
    one; it is not for standard input. Samples, fields and keys can be selected as with tarkit
    select.

    Fields above 32 MiB are kept in $TMPDIR until their sample is complete, except those of local
    shards that are not compressed.

    Existing shards of the same pattern, numbered from --start on, are an error, since those of a
    longer run would remain. --force replaces them, and removes the remaining ones at the end; no
    INPUT may be one of them. Only INPUT is protected: --force may
    replace a shard that another program in the pipeline is reading.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or - (the default).
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    from tarkit.formats.tally import Tally
    from tarkit.formats.tar.large import KeepInFiles
    from tarkit.names.outputnames import shard_name
    from tarkit.samples.read import read_samples
    from tarkit.specs.shardspec import counted_shards, fixed_names
    from tarkit.steps.select import count_selected

    if output == "-" or output.startswith("pipe:"):
        raise UsageError(
            "-o takes a name with a number, such as out-%06d.tar; a series of shards does not go into a pipe"
        )
    shard_name(output, 0)
    if shard_count is not None:
        reject_options(["maxcount", "maxsize"], "and --shards exclude each other")
        options["maxcount"] = options["maxsize"] = sys.maxsize
    tally = Tally()
    policies: dict[str, Any] = {
        "rule": key_rule, "on_duplicate_field": on_duplicate_field, "on_repeated_key": on_repeated_key,
        "on_damage": on_damage,
    }  # fmt: skip
    with selection_of(options) as selection, Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results:
        found, number = counted_shards(urls, allow_pipe_in_lists=allow_pipe)
        known: list[str] = []

        def inputs_of_series(_: ShardsOutput) -> list[str]:
            # Looked up before the first shard is written, which a glob might match, and with
            # --force replace; or to be read twice.
            known.extend(found if options["force"] or shard_count or None in map(fixed_names, urls) else ())
            return known

        with open_shards(
            _NAME, output, meter, results, inputs_of_series,
            rule=key_rule, on_repeated_key=on_repeated_key, **options,
        ) as shards:  # fmt: skip
            samples = selection.select(
                read_samples(
                    known or found,
                    literal=True,
                    split=True,
                    tally=tally,
                    large=KeepInFiles(),
                    in_place=True,
                    **policies,
                )
            )
            if shard_count is not None:
                shards.cut_evenly(count_selected(known, selection, **policies), shard_count)
            write_samples(shards, samples, meter, lambda: None if number is None else tally.shards_read() / number)
        code = exit_code_of_selected(selection, tally, allow_empty)
        summarize(_NAME, shards, results, notes=[*selected(selection), *met(tally)], quiet=quiet and not code)
    return code
