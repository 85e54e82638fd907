"""``tarkit cat``: join several shards into one, byte for byte.

With --raw, join any files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tarkit.errors import EXIT_OK, counted

from ..shared.meter import Meter
from ..shared.program import (
    refuse_mixed_output,
    refuse_terminal_input,
    reject_options,
    say,
    standard_options,
    work_option,
)
from ..shared.selection import JOINING, joining_options, report_joined, selection_of

_EPILOG = """\b
Examples:
  tarkit cat 'train-{0000..0009}.tar' -o train.tar.gz
  tarkit cat a.tar b.tar | tarproc -c 'ls'
  tarkit cat a.tar --keys wanted.txt -o wanted.tar
  tarkit cat --raw https://example.com/train-000000.tgz | tar -tzf -
"""
_PIECE = 1 << 20


@click.command("cat", epilog=_EPILOG)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@click.option("-o", "--output", default="-", metavar="OUT", help="Shard to write.  [default: standard output]")
@click.option(
    "--raw", is_flag=True, help="Copy the bytes of any file unchanged: not decompressed, and not checked as a tar."
)
@joining_options
@click.option("-q", "--quiet", is_flag=True, help="Print only losses: no progress, no summary.")
@work_option("allow_pipe")
@standard_options
def command(
    inputs: tuple[str, ...], output: str, raw: bool, key_rule: str, parallel: int | None, allow_pipe: bool,
    quiet: bool, allow_empty: bool, as_json: bool, dry_run: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
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
    .bz2 .xz .lz4). INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt,
    dataset.json (a manifest), or - (the default).

    With --raw the inputs are any files, whose bytes are copied unchanged: neither decompressed nor
    checked as tars. A read that loses its connection resumes at the same byte, and the exit code is
    0 only if every input was read to its verified end: use it in pipelines in place of curl and
    gsutil cat. In bash, "set -o pipefail" makes a pipeline fail with that exit code.
    """
    urls = list(inputs) or ["-"]
    refuse_terminal_input(urls)
    refuse_mixed_output(output, as_json)
    if raw:
        return _raw(urls, output, quiet, allow_pipe)
    from tarkit.formats.tally import Tally
    from tarkit.samples.sample import key_rule as rule_of
    from tarkit.steps.select import select_one

    tally = Tally()
    with selection_of(options) as selection, Meter("tarkit cat", quiet=quiet or output == "-") as meter:
        made = select_one(
            urls, output, selection, rule=rule_of(key_rule), tally=tally, allow_pipe_in_lists=allow_pipe,
            parallel=parallel or 1, dry_run=dry_run, progress=meter.joined(tally), **options,
        )  # fmt: skip
    copied = options["on_damage"] == "error" and not selection.selects
    return report_joined(
        "tarkit cat", made, selection, tally, quiet=quiet, allow_empty=allow_empty, as_json=as_json, dry_run=dry_run,
        skipped="copied, though no part of a sample" if copied else "skipped members",
    )  # fmt: skip


def _raw(urls: Sequence[str], output: str, quiet: bool, allow_pipe: bool) -> int:
    """Pass the bytes on."""
    from tarkit.names.outputnames import reject_pattern
    from tarkit.specs.outputcheck import check_folder, other_than
    from tarkit.specs.shardspec import expand
    from tarkit.store.publish import open_publish
    from tarkit.store.read import open_read

    reject_pattern(output)
    check_folder(output)
    reject_options(JOINING, "does not go with --raw, which does not look into its inputs")
    count = 0
    # The name of the output says how the input is compressed already, so it must not be done again.
    with open_publish(output, compression=None) as sink:
        for url in other_than([output], expand(urls, allow_pipe_in_lists=allow_pipe, outputs=[output])):
            count += 1
            with open_read(url, compression=None) as stream:
                while data := stream.read(_PIECE):
                    sink.write(data)
    if not quiet and output != "-":
        say("tarkit cat", f"{counted(count, 'input')}, {sink.bytes_written} bytes")
    return EXIT_OK
