"""``tarproc``: run a command or a Python function over every sample of tar shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import click

from tarkit.runs.work import PROGRAM, Work, options

from .shared.program import refuse_terminal_input, run_program, standard_options, work_options
from .shared.sections import LongHelp

NAME = PROGRAM
_EPILOG = """\b
Examples:
  tarproc -p 4 -c 'convert sample.jpg sample.png; rm sample.jpg' in.tar -o out.tar
  tarproc --filter 'grep -qx 1 sample.cls' in.tar -o out.tar
  curl -sf URL | tarproc -c 'ls -l' --count 3
  tarproc --try 3 -c 'convert sample.jpg sample.png' in.tar
  tarproc --map mapper.py:grey 'train-{0000..0147}.tgz' -o grey.tar

\b
Exit codes: 0 all done; 1 failed, nothing published; 2 usage; 3 finished, but some samples
were set aside, or none came out; 65 input damaged; 66 input missing; 75 try again; 126, 127 the command
cannot be run; 130 interrupted; 143 terminated.
"""


@click.command(
    cls=LongHelp, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@work_options(*(name for name in options() if name != "verbose"))
@click.option(
    "--try",
    "trial",
    type=click.IntRange(1),
    metavar="N",
    help="Run only the first N samples, keep each in a folder that is printed, and publish nothing.",
)
@standard_options
def tarproc(trial: int | None, **options: Any) -> int:
    """Run a command or a Python function over every sample of tar shards.

    tarproc writes the fields of each sample as files sample.FIELD into a folder of its own, with
    __key__ and __source__, and runs the command there. The files sample.* that exist after the
    command are the new sample; its key is read from __key__ or sample.__key__. If any part of the
    command fails (bash -eo pipefail), the sample fails. Without OUT, nothing is written.

    A field above 32 MiB, or above a sixteenth of --mem if that is more, is kept in a file in
    $TMPDIR, or in --working-dir, and needs twice its size there while the command runs. With
    --map, all fields are held in memory.

    The output of commands is printed whole for each sample, in the order of the samples: stdout to
    stdout and stderr to stderr; if OUT is -, all of it to stderr.

    With --try N, the first N samples become folders NUMBER-KEY in a new folder below $TMPDIR, which
    stays: with the files of the new sample, and __log__, the output of its command. A failed sample
    is in NUMBER-KEY-failed, with __error__. All outputs are ignored.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz, @list.txt, dataset.json (a
    manifest), or - (the default).
    """
    work = Work(**options)
    if not work.inputs and work.retry_failed is None:
        work = replace(work, inputs=("-",))
    refuse_terminal_input(work.inputs)
    # Not before: for the help, none of it is needed.
    from tarkit.runs.process import EmptyResultError, ShardsFailedError, process
    from tarkit.runs.trial import run_trial, trial_of

    from .rundisplay import RunDisplay, open_report, report_document
    from .shared.results import counts_line, missing_line

    run: Callable[..., object] = process
    if trial is not None:
        run, work = run_trial, trial_of(work, trial)
    begin = time.monotonic()
    with closing(RunDisplay(NAME, work)) as display, open_report(work.report, work.inputs) as report:
        error: BaseException | None = None
        empty: str | None = None
        try:
            # Each was shown as it failed, and the counts have them all.
            with suppress(ShardsFailedError):
                run(replace(work, report=None), reporter=display)
        except EmptyResultError as problem:
            # The report has it as its exit code: what was to be published is.
            empty = str(problem)
        except BaseException as problem:
            error = problem
            raise
        finally:
            display.close()
            if trial is not None:
                display.say(f"the samples of this trial are in {work.output}; nothing was published")
            if report is not None:
                report.write(report_document(work, display.counts, time.monotonic() - begin, error))
                report.commit()
    counts = display.counts
    if missing := missing_line(counts):
        display.say(missing)
    if empty:
        display.say(empty)
    if not work.quiet or counts.exit_code:
        display.say(counts_line(counts, work))
    return counts.exit_code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program, and return its exit code."""
    return run_program(tarproc, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
