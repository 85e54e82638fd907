"""``tarkit pai check|convert``: what is done with the file of a job alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from tarkit.errors import EXIT_DATA, EXIT_OK, DataError, UsageError

from ..shared.program import say, standard_options, write_stdout

if TYPE_CHECKING:
    from tarkit.openpai.jobfile import JobFile
    from tarkit.openpai.schema import Problem

_say = partial(say, "tarkit pai")


def job_file(path: str) -> JobFile:
    """The job in a file (-: standard input).

    Raises: MissingInputError: no such file. DataError: it is not a job.
    """
    from tarkit.k8s.yamltext import read_bytes
    from tarkit.openpai.jobfile import read_job

    data = sys.stdin.buffer.read() if path == "-" else read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"it is not UTF-8: {error.reason} at byte {error.start}", url=path) from None
    return read_job(text, path)


def report(path: str, problems: Iterable[Problem], kind: str = "") -> bool:
    """A line for each of them on stderr; whether there was one."""
    found = list(problems)
    for problem in found:
        _say(f"{path}: {kind}{problem}")
    return bool(found)


def accepted_job(path: str) -> JobFile:
    """The job in a file, which OpenPAI would accept. Raises: DataError: it would not."""
    from tarkit.openpai.check import problems_in, warnings_of

    found = job_file(path)
    problems = problems_in(found)
    if problems:
        report(path, problems[:-1])
        raise DataError(str(problems[-1]), url=path)
    report(path, warnings_of(found), "warning: ")
    return found


@click.command(
    "check",
    epilog="""\b
Examples:
  tarkit pai check job.yaml
  tarkit pai check old/*.json
  kubetpl pai -n grey … | tarkit pai check -
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-q", "--quiet", is_flag=True, help="Only what OpenPAI would refuse; no warnings.")
@standard_options
def check_command(files: tuple[str, ...], quiet: bool, verbose: bool) -> int:
    """Say whether OpenPAI would accept jobs.

    FILE may be -, standard input. Each line names a field and what is wrong with it. Warnings are about what
    OpenPAI accepts, though it is hardly meant. Whether an image, a virtual cluster or a folder exists is not looked up.

    Exit codes: 0 OpenPAI would accept all of them; 65 it would refuse one.
    """
    from tarkit.openpai.check import problems_in, warnings_of

    code = EXIT_OK
    for path in files:
        try:
            job = job_file(path)
        except DataError as error:
            _say(str(error))
            code = EXIT_DATA
            continue
        if report(path, problems_in(job)):
            code = EXIT_DATA
        elif not quiet:
            report(path, warnings_of(job), "warning: ")
    return code


@click.command("convert", epilog="\b\nExample:\n  tarkit pai convert job.json > job.yaml")
@click.argument("file", metavar="FILE")
@click.option("--default-fs", metavar="URL", help="What $PAI_DEFAULT_FS_URI stands for, such as hdfs://namenode:9000.")
@standard_options
def convert_command(file: str, default_fs: str | None, verbose: bool) -> int:
    """Print a job JSON of version 1 as job YAML of protocol 2.

    What protocol 2 does not have, and what is called otherwise there, is reported line by line on stderr.
    """
    write_stdout(protocol_2(accepted_job(file), file, default_fs).text.encode())
    return EXIT_OK


def protocol_2(found: JobFile, path: str, default_fs: str | None = None) -> JobFile:
    """The job as one of protocol 2."""
    from tarkit.openpai.convert import converted
    from tarkit.openpai.fanout import job_text

    if found.protocol == 2:
        return found
    job, notes = converted(found.job, path, default_fs=default_fs)
    report(path, notes, "note: ")
    try:
        return found._replace(protocol=2, job=job, text=job_text(job, 2))
    except UsageError as error:
        # Such as a NUL in a command.
        raise DataError(str(error), url=path) from None
