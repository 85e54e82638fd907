"""``tarkit index``: a text file beside each shard, with the place of each sample."""

from __future__ import annotations

import click

from tarkit.errors import counted, exit_code_of_all

from ..shared.meter import Meter
from ..shared.program import say, verbose_option, version_option, work_option
from ..shared.results import met

_EPILOG = """\b
Examples:
  tarkit index 'train-{0000..0147}.tar' -p 4
  tarkit index s3://bucket/train-0000.tar --force
  tarkit index 'train-*.tar' --check
"""


@click.command("index", epilog=_EPILOG)
@click.argument("specs", metavar="SHARD...", nargs=-1, required=True)
@click.option("-p", "--parallel", type=click.IntRange(1), default=4, show_default=True, help="Shards at a time.")
@click.option("-f", "--force", is_flag=True, help="Make indexes anew that are there and fresh.")
@click.option("--check", is_flag=True, help="Write nothing; compare each index with its shard, which is read.")
@work_option("key_rule")
@click.option("-q", "--quiet", is_flag=True, help="No progress, no summary; only what failed.")
@verbose_option
@version_option
def command(
    specs: tuple[str, ...], parallel: int, force: bool, check: bool, key_rule: str, quiet: bool, verbose: bool
) -> int:
    """Write an index beside each shard: NAME.idx for NAME.tar.

    With it, readers fetch only the samples that are asked for, and count without reading the shard. It is
    the text that wds2idx of NVIDIA DALI writes, version v1.2. A shard is read once, and all of it is
    checked: damage is an error, and no index is written then.

    An index that is there and fits the end of its shard, and is not older, is left as it is; a stale one
    is made anew. A shard that fails does not stop the others.

    A compressed shard has no index, nor has one with blanks in the names of its samples.

    SHARD is a path, a URL, or a spec such as train-{0000..0147}.tar or @list.txt.
    """
    from tarkit.formats.tally import Tally
    from tarkit.specs.shardspec import expand
    from tarkit.toolbox.indexing import FRESH, MADE, RENEWED, index_all

    numbers = {MADE: 0, RENEWED: 0, FRESH: 0, "failed": 0}
    codes: set[int] = set()
    tally, samples = Tally(), 0
    with Meter("tarkit index", quiet=quiet) as meter:
        urls = expand(specs, allow_pipe=False)
        for outcome in index_all(urls, parallel=parallel, force=force, check=check, rule=key_rule):
            numbers["failed" if outcome.error is not None else outcome.state] += 1
            samples += outcome.samples
            for reason, number in outcome.tally.skipped.items():
                tally.skipped[reason] = tally.skipped.get(reason, 0) + number
            if outcome.error is not None:
                codes.add(outcome.error.exit_code)
                meter.say(str(outcome.error))
            if meter.is_due():
                meter.show(f"{counted(sum(numbers.values()), 'shard')} so far", None)
    if not quiet:
        shown = [f"{word} {number}" for word, number in numbers.items() if number or not (check or word == "failed")]
        what = counted(sum(numbers.values()), "shard")
        say("tarkit index", "; ".join([f"{what}: {', '.join(shown)}", counted(samples, "sample"), *met(tally)]))
    return exit_code_of_all(codes)
