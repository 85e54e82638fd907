"""``tarkit pai submit|status|stop|logs``: jobs on a cluster of OpenPAI."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarkit.errors import EXIT_OK, MissingInputError, NoSuchObjectError, UsageError

from ..shared.program import say, verbose_option, version_option, write_stdout
from ..shared.results import Results
from .files import accepted_job

if TYPE_CHECKING:
    from tarkit.openpai.api import RestServer

_say = partial(say, "tarkit pai")
F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--cluster", envvar="PAI_CLUSTER", metavar="URL", required=True, show_envvar=True,
        help="Its REST server: https://HOST/rest-server, or http://HOST:9186.",
    ),
    click.option("--user", envvar="PAI_USER", metavar="NAME", required=True, show_envvar=True, help="Whose job it is."),
    click.option(
        "--token-file", metavar="FILE", help="Has the token, which is in PAI_TOKEN else. It is never printed."
    ),
    click.option("--api", type=click.Choice(["1", "2"]), default="2", show_default=True, help="1 on YARN (to 0.17)."),
)  # fmt: skip


def _cluster_options(command: F) -> F:
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def _cluster(cluster: str, user: str, token_file: str | None, api: str) -> RestServer:
    from tarkit.openpai.api import RestServer

    token = os.environ.get("PAI_TOKEN") or None
    if token_file is not None:
        try:
            with open(token_file, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise MissingInputError(f"the token cannot be read: {error}", url=token_file) from None
        if not token:
            raise UsageError(f"--token-file {token_file}: it is empty")
    return RestServer(cluster, user, token, version=int(api))


@click.command(
    "submit",
    epilog="\b\nExample:\n  tarkit pai submit job.yaml --cluster https://pai.example.com/rest-server --user ada",
)
@click.argument("file", metavar="FILE")
@_cluster_options
@verbose_option
@version_option
def submit_command(file: str, cluster: str, user: str, token_file: str | None, api: str, verbose: bool) -> int:
    """Check a job and submit it; prints its name.

    A job JSON goes to --api 1, or is converted for --api 2.
    """
    from tarkit.openpai.convert import converted
    from tarkit.openpai.fanout import job_text

    found, text = accepted_job(file)
    name = found.job.get("jobName" if found.protocol == 1 else "name")
    if api == "1" and found.protocol == 2:
        raise UsageError(f"{file}: API 1 takes job JSON only, and this is job YAML")
    if api == "2" and found.protocol == 1:
        job, notes = converted(found.job, file)
        for note in notes:
            _say(f"{file}: note: {note}")
        name, text = job["name"], job_text(job, 2)
    _cluster(cluster, user, token_file, api).submit(text)
    write_stdout(f"{user}~{name}\n".encode())
    return EXIT_OK


@click.command("status", epilog="\b\nExample:\n  tarkit pai status jpg2ppm_0001 --wait")
@click.argument("name", metavar="JOB")
@_cluster_options
@click.option("--wait", is_flag=True, help="Until it has ended; a line for each change of its state.")
@verbose_option
@version_option
def status_command(
    name: str, cluster: str, user: str, token_file: str | None, api: str, wait: bool, verbose: bool
) -> int:
    """Show the state of a job and of its tasks.

    Exit codes: 0 it has succeeded, or has not ended; 1 it has failed, or was stopped; 66 no such job.
    """
    from tarkit.openpai.api import ENDED

    server = _cluster(cluster, user, token_file, api)
    shown = None
    with Results() as results:
        while True:
            job = server.job(name)
            states = Counter(task.state for task in job.tasks)
            line = f"{job.name}: {job.state}; tasks: {', '.join(f'{word} {n}' for word, n in states.items()) or 'none'}"
            if line != shown:
                results.now(line)
            shown = line
            if not wait or job.state in ENDED:
                break
            time.sleep(5)
        for task in job.tasks:
            if task.exit_code not in (None, 0):
                results.line(f"  {task.role} {task.number}: {task.state}, exit code {task.exit_code}")
    return ENDED.get(job.state, EXIT_OK)


@click.command("stop", epilog="\b\nExample:\n  tarkit pai stop jpg2ppm_0001")
@click.argument("name", metavar="JOB")
@_cluster_options
@verbose_option
@version_option
def stop_command(name: str, cluster: str, user: str, token_file: str | None, api: str, verbose: bool) -> int:
    """Stop a job. What its tasks have published stays."""
    _cluster(cluster, user, token_file, api).stop(name)
    return EXIT_OK


@click.command("logs", epilog="\b\nExample:\n  tarkit pai logs jpg2ppm_0001 map 17")
@click.argument("name", metavar="JOB")
@click.argument("role", required=False)
@click.argument("index", type=int, required=False)
@_cluster_options
@verbose_option
@version_option
def logs_command(
    name: str, role: str | None, index: int | None, cluster: str, user: str, token_file: str | None, api: str,
    verbose: bool,
) -> int:  # fmt: skip
    """Print the logs of the tasks of a job, of a role, or of one task. Of --api 1, where they are."""
    server = _cluster(cluster, user, token_file, api)
    job = server.job(name)
    tasks = [task for task in job.tasks if role in (None, task.role) and index in (None, task.number)]
    if not tasks:
        roles = ", ".join(dict.fromkeys(task.role for task in job.tasks)) or "none yet"
        raise NoSuchObjectError(f"{job.name}: no such task; it has the roles {roles}")
    for task in tasks:
        write_stdout(f"==> {task.role} {task.number} <==\n".encode())
        for text in server.log(job, task):
            write_stdout(text.encode("utf-8", "replace"))
    return EXIT_OK
