"""``tarkit pai check|convert|submit``: check, convert and submit jobs of OpenPAI."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from tarkit.errors import EXIT_DATA, EXIT_OK, DataError, MissingInputError, UsageError

from ..shared.program import say, standard_options, version_option, write_stdout

if TYPE_CHECKING:
    from tarkit.openpai.jobfile import JobFile
    from tarkit.openpai.schema import Problem

_say = partial(say, "tarkit pai")


@click.group(
    "pai",
    epilog="""\b
Examples:
  tarkit pai check job.yaml
  tarkit pai convert job.json > job.yaml
""",
)
@version_option
def command() -> None:
    """Check, convert and submit jobs of OpenPAI: job JSON (version 1) and job YAML (protocol 2)."""


def _accepted(path: str, *, quiet: bool = False) -> JobFile:
    """Return the job in a file (-: standard input) if OpenPAI would accept it.

    Args:
        quiet: print no line for each warning.

    Raises:
        MissingInputError: the file does not exist.
        DataError: the file has no job, or OpenPAI would reject the job; the error has the last
            reason, the others were printed.
    """
    from tarkit.k8s.yamltext import read_bytes
    from tarkit.openpai.check import problems_in, warnings_of
    from tarkit.openpai.jobfile import read_job

    data = sys.stdin.buffer.read() if path == "-" else read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"it is not UTF-8: {error.reason} at byte {error.start}", url=path) from None
    found = read_job(text, path)
    problems = problems_in(found)
    _report(path, problems[:-1])
    if problems:
        raise DataError(str(problems[-1]), url=path)
    _report(path, [] if quiet else warnings_of(found), "warning: ")
    return found


def _report(path: str, problems: Iterable[Problem], kind: str = "") -> None:
    """Print a line for each problem on stderr."""
    for problem in problems:
        _say(f"{path}: {kind}{problem}")


@command.command(
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
def _check(files: tuple[str, ...], quiet: bool, verbose: bool) -> int:
    """Check whether OpenPAI would accept jobs.

    FILE may be -, standard input. Each printed line names a field and its error. Warnings are about
    values that OpenPAI accepts, but that are probably wrong. The existence of images, virtual
    clusters and folders is not checked.

    Exit codes: 0 OpenPAI would accept all jobs; 65 it would refuse one.
    """
    code = EXIT_OK
    for path in files:
        try:
            _accepted(path, quiet=quiet)
        except DataError as error:
            _say(str(error))
            code = EXIT_DATA
    return code


@command.command("convert", epilog="\b\nExample:\n  tarkit pai convert job.json > job.yaml")
@click.argument("file", metavar="FILE")
@click.option("--default-fs", metavar="URL", help="Value of $PAI_DEFAULT_FS_URI, such as hdfs://namenode:9000.")
@standard_options
def _convert(file: str, default_fs: str | None, verbose: bool) -> int:
    """Print a job JSON of version 1 as job YAML of protocol 2.

    Fields that protocol 2 lacks or renames are reported on stderr, a line each.
    """
    write_stdout(_protocol_2(_accepted(file), file, default_fs).text.encode())
    return EXIT_OK


def _protocol_2(found: JobFile, path: str, default_fs: str | None = None) -> JobFile:
    """Return the job as a job of protocol 2."""
    from tarkit.openpai.convert import converted
    from tarkit.openpai.fanout import job_text

    if found.protocol == 2:
        return found
    job, notes = converted(found.job, path, default_fs=default_fs)
    _report(path, notes, "note: ")
    try:
        return found._replace(protocol=2, job=job, text=job_text(job, 2))
    except UsageError as error:
        # Such as a NUL in a command.
        raise DataError(str(error), url=path) from None


@command.command(
    "submit",
    epilog="\b\nExample:\n  tarkit pai submit job.yaml --cluster https://pai.example.com/rest-server --user ada",
)
@click.argument("file", metavar="FILE")
@click.option(
    "--cluster", envvar="PAI_CLUSTER", metavar="URL", required=True, show_envvar=True,
    help="URL of the REST server: https://HOST/rest-server, or http://HOST:9186.",
)  # fmt: skip
@click.option("--user", envvar="PAI_USER", metavar="NAME", required=True, show_envvar=True, help="Owner of the job.")
@click.option("--token-file", metavar="FILE", help="Token file; the token is never printed.  [default: $PAI_TOKEN]")
@click.option(
    "--api",
    type=click.Choice(["1", "2"]),
    default="2",
    show_default=True,
    help="Version of the API: 1 for OpenPAI on YARN (up to 0.17).",
)
@standard_options
def _submit(file: str, cluster: str, user: str, token_file: str | None, api: str, verbose: bool) -> int:
    """Check a job, submit it, and print its name.

    A job JSON is submitted with --api 1, or converted for --api 2.
    """
    from tarkit.openpai.api import submit

    token = os.environ.get("PAI_TOKEN") or None
    if token_file is not None:
        try:
            with open(token_file, encoding="ascii") as stream:
                token = stream.read(1 << 16).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise MissingInputError(f"the token cannot be read: {error}", url=token_file) from None
        if not token:
            raise UsageError(f"--token-file {token_file}: it is empty")
    found, version = _accepted(file), int(api)
    if version == 1 and found.protocol == 2:
        raise UsageError(f"{file}: API 1 takes job JSON only, and this is job YAML")
    found = found if version == 1 else _protocol_2(found, file)
    submit(cluster, user, token, found.text, version=version)
    write_stdout(f"{user}~{found.job['jobName' if version == 1 else 'name']}\n".encode())
    return EXIT_OK
