"""``tarkit pai submit|status|stop|logs``: jobs on a cluster of OpenPAI."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, ClusterUnreachableError, MissingInputError, NoSuchObjectError, UsageError

from ..shared.program import option_group, say, standard_options, write_stdout
from ..shared.results import Results
from .files import accepted_job, protocol_2

if TYPE_CHECKING:
    from tarkit.openpai.api import RestServer

_say = partial(say, "tarkit pai")
_PAUSE = 5.0
_PATIENCE = 300.0
"""Seconds between two looks, and for which the server may not answer."""

_cluster_options = option_group(
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


def _on_cluster(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options of a cluster, and its server as the first argument."""

    @wraps(function)
    def call(cluster: str, user: str, token_file: str | None, api: str, verbose: bool, **options: Any) -> int:
        from tarkit.openpai.api import RestServer

        token = os.environ.get("PAI_TOKEN") or None
        if token_file is not None:
            try:
                with open(token_file, encoding="ascii") as file:
                    token = file.read(1 << 16).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise MissingInputError(f"the token cannot be read: {error}", url=token_file) from None
            if not token:
                raise UsageError(f"--token-file {token_file}: it is empty")
        return function(RestServer(cluster, user, token, version=int(api)), **options)

    return _cluster_options(standard_options(call))


@click.command(
    "submit",
    epilog="\b\nExample:\n  tarkit pai submit job.yaml --cluster https://pai.example.com/rest-server --user ada",
)
@click.argument("file", metavar="FILE")
@_on_cluster
def submit_command(server: RestServer, file: str) -> int:
    """Check a job and submit it; prints its name.

    A job JSON goes to --api 1, or is converted for --api 2.
    """
    found = accepted_job(file)
    if server.version == 1 and found.protocol == 2:
        raise UsageError(f"{file}: API 1 takes job JSON only, and this is job YAML")
    found = found if server.version == 1 else protocol_2(found, file)
    server.submit(found.text)
    name = found.job["jobName" if server.version == 1 else "name"]
    write_stdout(f"{server.user}~{name}\n".encode())
    return EXIT_OK


@click.command("status", epilog="\b\nExample:\n  tarkit pai status jpg2ppm_0001 --wait")
@click.argument("name", metavar="JOB")
@click.option("--wait", is_flag=True, help="Until it has ended; a line for each change of its state.")
@_on_cluster
def status_command(server: RestServer, name: str, wait: bool) -> int:
    """Show the state of a job and of its tasks.

    Exit codes: 0 it has succeeded, or has not ended; 1 it has failed, or was stopped; 66 no such job; 75 the
    server does not answer, with --wait for 5 minutes.
    """
    from tarkit.openpai.api import ENDED

    shown, answered = None, time.monotonic()
    with Results() as results:
        while True:
            try:
                job = server.job(name)
            except ClusterUnreachableError as error:
                if not wait or time.monotonic() - answered > _PATIENCE:
                    raise
                if shown != "":
                    _say(f"{error}; asking again for {_PATIENCE / 60:g} minutes")
                shown = ""
                time.sleep(_PAUSE)
                continue
            answered = time.monotonic()
            states = Counter(task.state for task in job.tasks)
            line = f"{job.name}: {job.state}; tasks: {', '.join(f'{word} {n}' for word, n in states.items()) or 'none'}"
            if line != shown:
                results.now(line)
            shown = line
            if not wait or job.state in ENDED:
                break
            time.sleep(_PAUSE)
        for task in job.tasks:
            if task.exit_code not in (None, 0):
                results.line(f"  {task.role} {task.number}: {task.state}, exit code {task.exit_code}")
    return ENDED.get(job.state, EXIT_OK)


@click.command("stop", epilog="\b\nExample:\n  tarkit pai stop jpg2ppm_0001")
@click.argument("name", metavar="JOB")
@_on_cluster
def stop_command(server: RestServer, name: str) -> int:
    """Stop a job. What its tasks have published stays."""
    server.stop(name)
    return EXIT_OK


@click.command("logs", epilog="\b\nExample:\n  tarkit pai logs jpg2ppm_0001 map 17")
@click.argument("name", metavar="JOB")
@click.argument("role", required=False)
@click.argument("index", type=int, required=False)
@_on_cluster
def logs_command(server: RestServer, name: str, role: str | None, index: int | None) -> int:
    """Print the logs of the tasks of a job, of a role, or of one task. Of --api 1, where they are.

    Exit codes: 66 no such job or task, or a task has no log: the logs of the others are printed.
    """
    job = server.job(name)
    tasks = [task for task in job.tasks if role in (None, task.role) and index in (None, task.number)]
    if not tasks:
        roles = ", ".join(dict.fromkeys(task.role for task in job.tasks)) or "none yet"
        raise NoSuchObjectError(f"{job.name}: no such task; it has the roles {roles}")
    code = EXIT_OK
    for task in tasks:
        write_stdout(f"==> {task.role} {task.number} <==\n".encode())
        try:
            for text in server.log(job, task):
                write_stdout(text.encode("utf-8", "replace"))
        except NoSuchObjectError as error:  # such as of a task that waits: the others have theirs
            _say(str(error))
            code = error.exit_code
    return code
