"""``tarproc``: run a command or a Python function over every sample of tar shards."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, MissingInputError, UsageError
from tarkit.redaction import redact
from tarkit.runs.work import options

from .run.pipeline import command_of, open_pool, policy_of, samples_of, writer_options
from .run.progress import Progress, books_line, open_report, report_document
from .shared.meter import counted_shards
from .shared.program import (
    refuse_terminal_input,
    run_program,
    verbose_option,
    version_option,
    work_options,
)
from .shared.sections import LongHelp
from .shared.series import reject_series

NAME = "tarproc"
_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_DESCRIPTOR = re.compile(r"/dev/std(out|err)|/(dev|proc/self)/fd/\d+")
_EPILOG = """\b
Examples:
  tarproc -p 4 -c 'convert sample.jpg sample.png; rm sample.jpg' in.tar -o out.tar
  curl -sf URL | tarproc -c 'ls -l' --count 3
  tarproc --map mapper.py:grey 'train-{0000..0147}.tgz' -o grey.tar

\b
Exit codes: 0 all done; 1 failed, nothing published; 2 usage; 3 finished, but some samples
were set aside; 65 input damaged; 66 input missing; 75 try again; 126, 127 the command can
not be run; 130 interrupted; 143 terminated.
"""


@click.command(
    cls=LongHelp, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.argument("inputs", metavar="[INPUT]...", nargs=-1)
@work_options(*(name for name in options() if name != "verbose"))
@verbose_option
@version_option
def tarproc(**options: Any) -> int:
    """Run a command or a Python function over every sample of tar shards.

    Each sample is a folder with one file for each of its fields: sample.FIELD, and __key__ and
    __source__. The command runs there; the files called sample.* that it leaves are the new
    sample, and what it leaves in __key__ or sample.__key__ is its key. Without OUT, nothing is written.

    A field above 32 MiB, or a sixteenth of --mem if that is more, is not held in memory: it waits in
    $TMPDIR, and needs its size there twice while the command runs. With --map, fields are held in memory.

    What commands print to stdout goes to stdout, and what they print to stderr to stderr, whole for each
    sample and in the order of the samples; all of it goes to stderr if OUT is -.

    INPUT is a path, a URL, a spec such as train-{0000..0147}.tgz or @list.txt, or - (the default).
    """
    inputs = _inputs(options)
    command = command_of(options)
    policy = policy_of(options)
    if options["list_sha256"] is not None and options["slice"] is None:
        raise UsageError("--list-sha256 goes with --slice")
    if options["outdir"] is not None:
        return _many_outputs(options, inputs, command, policy)
    if options["slice"] is not None:
        raise UsageError("--slice goes with -O OUTDIR")
    return _one_output(options, inputs, command, policy)


def _one_output(options: dict[str, Any], inputs: Sequence[str], command: str | None, policy: Any) -> int:
    """All inputs into one output, or into none."""
    started = time.monotonic()
    output = options["output"]
    if output is not None:
        reject_series(output)
    failed_output = _failed_target(options)
    from tarkit.formats.tally import Tally
    from tarkit.runs.counts import lost_anything

    tally = Tally()
    progress = Progress(
        NAME,
        quiet=options["quiet"],
        verbose=options["verbose"],
        to_stderr=output in _STANDARD_OUTPUT,
        only_prints=output is None,
        failed_are_kept=failed_output is not None,
    )
    with progress, open_report(options["report"]) as report:
        error: BaseException | None = None
        try:
            books = _process(options, inputs, command, policy, failed_output, tally, progress)
        except BaseException as problem:
            error = problem
            raise
        finally:
            progress.close()
            if report is not None:
                report.write(
                    report_document(
                        books=progress.books,
                        tally=tally,
                        inputs=inputs,
                        output=output,
                        seconds=time.monotonic() - started,
                        error=error,
                    )
                )
                report.commit()
    if failed_output is not None and not books.failed:
        _remove_stale(failed_output, progress)
    set_aside = failed_output if books.failed else None
    if not options["quiet"] or lost_anything(books, tally):
        progress.say(books_line(books, tally, set_aside))
    return EXIT_SET_ASIDE if lost_anything(books, tally) else EXIT_OK


def _many_outputs(options: dict[str, Any], inputs: list[str], command: str | None, policy: Any) -> int:
    """Each input into an output of its own."""
    from tarkit.mapping.scratch import Scratch

    from .run.outdir import ShardProgress, missing_line, shards_report, shards_to_retry, shards_to_run, totals_line

    if options["output"] is not None:
        raise UsageError("give -o OUT for one output, or -O OUTDIR for one for each input")
    started = time.monotonic()
    progress = ShardProgress(
        NAME,
        quiet=options["quiet"],
        verbose=options["verbose"],
        to_stderr=False,
        only_prints=False,
        failed_are_kept=options["errors"] != "skip",
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(progress)
        report = stack.enter_context(open_report(options["report"]))
        scratch = stack.enter_context(Scratch(path=options["working_dir"]))
        options["scratch"] = scratch.path
        pool = stack.enter_context(open_pool(options, command, scratch.path))

        if options["retry_failed"] is not None:
            totals, run = shards_to_retry(options, pool, progress, policy)
        else:
            totals, run = shards_to_run(options, inputs, pool, progress, policy)
        error: BaseException | None = None
        try:
            run()
        except BaseException as problem:
            error = problem
            raise
        finally:
            progress.close()
            if report is not None:
                seconds = time.monotonic() - started
                report.write(shards_report(totals, inputs, options["outdir"], seconds, error))
                report.commit()
    missing = missing_line(totals)
    if missing is not None:
        progress.say(missing)
    if not options["quiet"] or totals.exit_code():
        progress.say(totals_line(totals))
    return totals.exit_code()


def _process(
    options: dict[str, Any],
    inputs: Sequence[str],
    command: str | None,
    policy: Any,
    failed_output: str | None,
    tally: Any,
    progress: Progress,
) -> Any:
    """The run itself; its books."""
    from tarkit.mapping.scratch import Scratch
    from tarkit.runs.account import Sinks
    from tarkit.runs.stream import run
    from tarkit.specs.shardspec import check_local

    if options["count"] is None:
        check_local(inputs, allow_pipe_in_lists=options["allow_pipe"])
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(Scratch(path=options["working_dir"]))
        options["scratch"] = scratch.path
        pool = stack.enter_context(open_pool(options, command, scratch.path))
        sinks = Sinks(options["output"], failed_output, writer_options(options))
        # After run() has published them, there is nothing left to discard.
        stack.callback(sinks.discard)
        shards, number = counted_shards(inputs, allow_pipe_in_lists=options["allow_pipe"])
        progress.follow(tally, number, options["count"])
        return run(
            samples_of(options, shards, tally),
            pool,
            sinks,
            policy=policy,
            reporter=progress,
            window=options["mem"],
            batch_size=options["batch"] or 1,
        )


def _failed_target(options: dict[str, Any]) -> str | None:
    """Name of the shard for failed samples; None if the output has no place beside it, or nobody wants one."""
    from tarkit.store.url import local_path

    output = options["output"]
    if output is None or output == "-" or options["errors"] == "skip":
        return None
    if output.startswith("pipe:") or _DESCRIPTOR.fullmatch(output):
        return None
    path = local_path(output)
    if path is not None and os.path.exists(path) and not os.path.isfile(path):
        return None
    return f"{output}.failed.tar"


def _inputs(options: dict[str, Any]) -> list[str]:
    """The inputs as they were given, checked against --retry-failed."""
    inputs = list(options["inputs"])
    retry = options["retry_failed"]
    if retry is None:
        inputs = inputs or ["-"]
        refuse_terminal_input(inputs)
        failed = None if options["output"] is None else os.path.abspath(f"{options['output']}.failed.tar")
        if any(os.path.abspath(each) == failed for each in inputs):
            raise UsageError(
                f"{redact(options['output'])}.failed.tar is where failed samples of -o {redact(options['output'])} go; "
                "it can not be an input too"
            )
        return inputs
    if options["outdir"] is not None and os.path.abspath(retry) != os.path.abspath(options["outdir"]):
        raise UsageError(f"with -O, --retry-failed names the same folder: --retry-failed {redact(options['outdir'])}")
    if inputs:
        raise UsageError("--retry-failed takes the place of inputs; give one or the other")
    if options["output"] is not None and os.path.abspath(retry) == os.path.abspath(f"{options['output']}.failed.tar"):
        raise UsageError(
            f"-o {redact(options['output'])} would be replaced by the retried samples alone; give another name, "
            "then join both with tarkit cat"
        )
    return [retry]


def _remove_stale(failed_output: str, progress: Progress) -> None:
    """An earlier run's failed samples beside an output that has none would mislead."""
    from tarkit.store.entries import remove
    from tarkit.store.publish import open_publish
    from tarkit.store.url import display_name, local_path

    path = local_path(failed_output)
    if path is not None:
        # Opening it removes what a run that was killed left of it under a temporary name.
        open_publish(path, compression=None).discard()
    try:
        remove(failed_output)
    except MissingInputError:
        return
    progress.say(f"removed {display_name(failed_output)} of an earlier run: no sample failed now")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_program(tarproc, NAME, argv)


if __name__ == "__main__":
    raise SystemExit(main())
