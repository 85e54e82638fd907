"""``tarkit reduce``: make one sample of each group of samples."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, printable

from ..shared.exchangeverb import ExchangeVerb, exchange_verb
from ..shared.program import work_option, write_message

if TYPE_CHECKING:
    from tarkit.mapping.output import Printed
    from tarkit.mapping.parallel import Failure
    from tarkit.runs.engine import Reporter

    from ..shared.meter import Meter

_EPILOG = """\b
Examples:
  tarkit reduce 'frames-{000..147}.tar' -O videos/ --by folder -p 8 -c 'convert 0*/sample.png sample.gif'
  tarkit reduce frames.tar -O videos/ --by 'key:^(.*)_[0-9]+$' -c 'cat 0*/sample.txt > sample.txt'
  tarkit reduce @list.txt -O users/ --by json.user.id --map profile.py:merge --maxsize 1G

\b
  # profile.py
  def merge(user, samples):
      return {"txt": b"".join(sample["txt"] for sample in samples)}
"""
_MOST_LINES = 10


@exchange_verb("reduce", epilog=_EPILOG)
@click.option(
    "--by", required=True, metavar="VALUE",
    help="Group by folder (that of the key), key:REGEX (the part of the key that the group in parentheses matches), "
    "FIELD, json.user.id (a value in a JSON field), another value as in tarkit sort --by, or FILE.py:function or "
    "module:function.",
)  # fmt: skip
@work_option("command", help="Shell command to run in the folder of each group.")
@work_option(
    "function", help="Python function of the group's name and an iterator of its samples: module:name or file.py:name."
)
@work_option("shell")
@work_option("shell_flags")
@work_option("timeout", help="Fail a group whose command runs longer.  [default: no limit]")
@work_option("allow_empty", help="Do not exit with 3 if no group has a result.")
def command(exchange: ExchangeVerb, by: str, **options: Any) -> int | None:
    """Make one sample of each group of samples, by a command or a Python function.

    The key of the new sample is the value of --by, as text; groups are sorted by it.

    With -c, the samples of a group lie in one folder, each in a folder of its own, 000000/,
    000001/, and so on in input order, with sample.FIELD, __key__ and __source__. The command runs
    in the folder of the group. The files sample.* that it leaves there are the new sample, and
    __key__ its key. If there are none, the group has no result, which is counted. -p commands run
    at once. A group needs twice its size in $TMPDIR, and up to four groups for each command wait
    there.

    With --map, the function is called with the name of the group, and an iterator of its samples in
    input order: dicts with bytes for each field, and __key__. It returns a sample, None, or several
    samples. -p functions run at once if there are as many outputs. A group above a quarter of the
    memory of its process waits in a file in $TMPDIR.

    If the command or function fails, all samples of the group are failed samples; --max-errors
    counts groups. Shards are cut by the samples that come in, and never within a group. With
    --rekey, keys have the number of their shard for --by, too: --on-repeated-key allow lets equal
    keys of several shards be in one group.

    If no sample comes out, the exit code is 3.
    """
    from tarkit.exchange.reduce import Reduce

    reporter = _reporter(exchange.run.meter)
    code = exchange.do(Reduce(by, reporter=reporter, **options), exchange.names(exchange.run.inputs))
    if exchange.options["dry_run"] or exchange.options["stage"] or exchange.run.allow_empty:
        return code
    # As of a command of tarproc: one that leaves nothing of all samples is rarely meant so.
    samples = exchange.run.found["samples"]
    return code or (EXIT_SET_ASIDE if samples["in"] and not samples["out"] else EXIT_OK)


def _reporter(meter: Meter) -> Reporter:
    """Return a reporter that shows what commands print, failures, and files that are left."""
    from tarkit.runs.engine import Reporter

    class Display(Reporter):
        failures = strays = 0

        def printed(self, key: str, printed: Printed) -> None:
            if printed.size:
                with meter.hidden():
                    for output in (printed.stdout, printed.stderr):
                        output.show(partial(write_message, 2))

        def failed(self, key: str, failure: Failure, printed: Printed) -> None:
            self.failures += 1
            if self.failures <= _MOST_LINES:
                meter.say(f"group {failure.line(key, None if printed.size else printed)}")
            elif self.failures == _MOST_LINES + 1:
                meter.say("further failures are not shown; the failed samples have the reasons")

        def stray(self, key: str, names: list[str]) -> None:
            self.strays += 1
            if self.strays <= _MOST_LINES:
                shown = ", ".join(map(printable, names[:3])) + (", …" if len(names) > 3 else "")
                meter.say(f"group {printable(key)}: left in its folder, but not part of the output: {shown}")

    return Display()
