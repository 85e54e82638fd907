"""``kubetpl lint``: what is wrong with manifests, before a server says it."""

from __future__ import annotations

import collections
import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import (
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_USAGE,
    ClusterUnreachableError,
    CommandNotRunnableError,
    printable,
)

from ...shared.program import say, verbose_option, version_option
from ...shared.results import Results, counted
from ..clusteroptions import cluster_options
from ..manifestfile import findings_of, manifest_text, shown

if TYPE_CHECKING:
    from tarkit.k8s.lint.nodes import Finding

_NAME = "kubetpl"
_EPILOG = """\b
Examples:
  kubetpl lint job.yaml
  kubetpl job --template mine.yaml -n grey | kubetpl lint --server
"""
# What kubectl says when no server has judged.
_UNREACHABLE = ("Unable to connect to the server", "The connection to the server", "connection refused", "no such host")


@click.command("lint", epilog=_EPILOG)
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option("--kube-version", metavar="X.Y", help="Of the cluster.  [default: all since 1.33]")
@click.option("--no-schema", is_flag=True, help="Leave out the API's schema: all fields of all kinds.")
@click.option("--server", is_flag=True, help="Ask the cluster too: kubectl apply --dry-run=server.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each finding.")
@cluster_options
@verbose_option
@version_option
def command(
    files: tuple[str, ...], kube_version: str | None, no_schema: bool, server: bool, as_json: bool, verbose: bool,
    **cluster: str | None,
) -> int:  # fmt: skip
    """Report what a server would refuse in manifests, what it takes in silence, and which flag of kubetpl to change.

    An error is what servers refuse; a warning is what they take. The manifests are read as kubectl reads them, and held
    against the published schema of the release with its words and ranges (pip install kubernetes-validate), and against
    rules on Jobs, indexes, names, quantities, volumes, and what the flags of kubetpl can get wrong. That is not a
    second API server: everything else, such as quotas, admission, addresses and schedules, is left to --server.

    A finding is a line on standard output, error or warning. Exit 0 if there is no error, 2 if there is one.
    """
    from tarkit.k8s.lint.nodes import WARNING, Finding
    from tarkit.k8s.yamlreading import Doubt
    from tarkit.k8s.yamltext import load_documents

    kubectl = _kubectl() if server else None
    names = list(files) or ["-"]
    kinds: collections.Counter[str] = collections.Counter()
    errors = 0
    with Results(only_messages=True) as results:
        for name in names:
            text = manifest_text(name)
            doubts: list[Doubt] = []
            documents = load_documents(text, shown(name), doubts)
            kinds.update(str(document["kind"]) for document in documents)
            found = [_fields(Finding(WARNING, printable(each.where), printable(each.sentence))) for each in doubts]
            found += [_fields(each) for each in findings_of(documents, kube_version, not no_schema)]
            if kubectl is not None:
                found += _asked(kubectl, text, cluster)
            for finding in found:
                results.line(_line(name, finding, as_json))
            errors += sum(finding["severity"] == "error" for finding in found)
    what = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    say(_NAME, f"{counted(sum(kinds.values()), 'document')} looked at ({what}), {counted(errors, 'error')}")
    return EXIT_USAGE if errors else EXIT_OK


def _fields(finding: Finding) -> dict[str, Any]:
    kept = ("severity", "where", "sentence", "flag")
    return {**{key: getattr(finding, key) for key in kept}, "text": str(finding)}


def _line(name: str, finding: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps({"file": name, **{key: value for key, value in finding.items() if key != "text"}})
    return f"{name}: {finding['severity']}: {finding['text']}"


def _kubectl() -> str:
    path = shutil.which("kubectl")
    if path is None:
        raise CommandNotRunnableError(
            "--server needs kubectl, and there is none on the PATH; install it, or leave out --server", EXIT_NOT_FOUND
        )
    return path


def _asked(kubectl: str, text: str, cluster: dict[str, str | None]) -> list[dict[str, Any]]:
    """What the server says to the manifests of a file, through kubectl."""
    options = [f"--{name}={value}" for name, value in cluster.items() if value is not None]
    done = subprocess.run(
        [kubectl, "apply", "--dry-run=server", *options, "-f", "-"],
        input=text.encode("utf-8"),
        capture_output=True,
        check=False,
    )
    said = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    if done.returncode and any(_no_server(line) for line in said):
        # What it advises, not to validate, is no use here.
        why = next(line[max(line.find("dial tcp"), 0) :].partition("; ")[0] for line in said if _no_server(line))
        raise ClusterUnreachableError(f"no server has looked at the manifests: {printable(why)}")
    found = []
    for line in said:
        severity = "warning" if line.startswith("Warning:") or not done.returncode else "error"
        found.append(
            {"severity": severity, "where": "server", "sentence": line, "flag": None, "text": f"server: {line}"}
        )
    if done.returncode and not any(each["severity"] == "error" for each in found):
        line = f"kubectl ended with exit code {done.returncode} and said nothing"
        found.append(
            {"severity": "error", "where": "server", "sentence": line, "flag": None, "text": f"server: {line}"}
        )
    return found


def _no_server(line: str) -> bool:
    return any(sign in line for sign in _UNREACHABLE)
