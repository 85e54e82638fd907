"""``kubetpl local``: run a manifest on this machine, by the rules of a cluster."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from tarkit.errors import EXIT_FAILED, EXIT_OK, UsageError, printable
from tarkit.k8s.local.pods import LocalSettings
from tarkit.k8s.local.run import run_documents

from ...shared.program import Seconds, say, standard_options
from ..generator import asked_for
from ..manifestfile import manifest_documents

_say = partial(say, "kubetpl local")
_OF_THIS_MACHINE = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|AWS_\w+|AZURE_\w+|GOOGLE_APPLICATION_CREDENTIALS|GOOGLE_CLOUD_PROJECT|CLOUDSDK_\w+|HF_\w+"
    r"|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(?i:\w+_proxy)"
)
_CREDENTIALS = {
    "AWS_SHARED_CREDENTIALS_FILE": ".aws/credentials", "AWS_CONFIG_FILE": ".aws/config",
    "CLOUDSDK_CONFIG": ".config/gcloud", "AZURE_CONFIG_DIR": ".azure",
    "HF_HOME": ".cache/huggingface",
}  # fmt: skip


@click.command(
    "local",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS] [job|pod|jobs|indexed|shuffle|train …]",
)
@click.option("-f", "--file", metavar="MANIFEST", help="File of YAML or JSON with Jobs and Pods; - is standard input.")
@click.option(
    "-j",
    "--parallelism",
    type=click.IntRange(1),
    help="Number of pods that run at once.  [default: the manifest's, or CPUs]",
)
@click.option("--state", metavar="DIR", help="Folder for logs and claims.  [default: NAME.kubetpl-local]")
@click.option(
    "--retry-delay",
    type=Seconds(),
    default=1.0,
    help="Seconds before the first retry; doubled for each further one.  [default: 1 s]",
)
@click.option("--inherit-env", is_flag=True, help="Pass all variables of this shell to pods, not only those above.")
@click.option("--volume", "volumes", multiple=True, metavar="NAME=DIR", help="Use this folder as the volume NAME.")
@click.option("-q", "--quiet", is_flag=True, help="Print only failures and the result.")
@standard_options
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="")
def command(
    words: tuple[str, ...], file: str | None, parallelism: int | None, state: str | None, retry_delay: float,
    inherit_env: bool, volumes: tuple[str, ...], quiet: bool, verbose: bool,
) -> int:  # fmt: skip
    """Run on this machine the manifest of -f FILE, or of a generator such as indexed -n x ….

    Each pod is a group of processes, with the command, variables, retries, limits for each index,
    exit-code rules and deadline of the manifest. Volumes (emptyDir, hostPath, ConfigMaps and claims
    of the manifest) are folders. Shards that have a done record are skipped, so run it again after
    it was stopped or killed.

    Images, users, limits of memory and disk, and mounts are not supported. Commands run as the
    current user, with the programs of this machine, each pod in a folder of its own. Arguments and
    variables that are a path in a volume (/scratch/x, @/files/x, --list=/files/x) or the address of
    a service of the manifest (NAME:PORT) are changed to their place here; scripts are not changed,
    so use $TMPDIR in them instead of /scratch. A manifest with a field that is not supported here
    is refused with the field's name, unless a generator prints that field.

    Pods see these environment variables of this machine: PATH, HOME (unless the manifest sets it),
    LANG, LC_*, TZ, those of proxies and certificates, and those for access to stores: AWS_*,
    GOOGLE_APPLICATION_CREDENTIALS, CLOUDSDK_*, AZURE_*, HF_*.

    Exit codes: 0 all complete; 1 failed; 2 the manifest cannot be run; 3 all else complete,
    but samples were set aside, or no sample came out.
    """
    documents = _documents(file, words)
    folders = {}
    for each in volumes:
        name, mark, folder = each.partition("=")
        if not (name and mark and os.path.isdir(folder)):
            raise UsageError(f"--volume {printable(each)}: write NAME=DIR, with a folder that exists")
        folders[name] = os.path.abspath(folder)
    env = _environment(os.environ, everything=inherit_env)
    settings = LocalSettings(parallelism, retry_delay, env, folders)
    jobs = run_documents(documents, state, settings, note=(lambda line: None) if quiet else _say, say=_say)
    codes = {job.exit_code for job in jobs} - {EXIT_OK}
    return codes.pop() if len(codes) == 1 else EXIT_FAILED if codes else EXIT_OK


def _documents(file: str | None, words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the manifests of a file, or those of a generator with its options."""
    if bool(words) == (file is not None):
        raise UsageError("give either a manifest with -f, or a generator: kubetpl local indexed -n NAME …")
    if words[:1] == ("train",):
        from .train import train_documents

        return train_documents(list(words[1:]))
    if file is None:
        return asked_for(words).documents(_say, here=True)
    return manifest_documents(file)


def _environment(environ: Mapping[str, str], *, everything: bool) -> dict[str, str]:
    """Return the environment variables of this machine that pods see.

    Manifests set HOME to a scratch folder, so variables point to the credentials in the real one,
    and PATH includes the folder of the tarproc that was installed together with this program.
    """
    found = {name: value for name, value in environ.items() if everything or _OF_THIS_MACHINE.fullmatch(name)}
    if home := environ.get("HOME"):
        found["HOME"] = home
        paths = {name: os.path.join(home, path) for name, path in _CREDENTIALS.items()}
        found = {**{name: path for name, path in paths.items() if os.path.exists(path)}, **found}
    beside = os.path.dirname(os.path.abspath(sys.argv[0] if os.path.exists(sys.argv[0]) else sys.executable))
    return {**found, "PATH": os.pathsep.join((found.get("PATH", os.defpath), beside))}
