"""``kubetpl lint``: what is wrong with manifests, before a server reports it."""

from __future__ import annotations

import collections
import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import click

from tarkit.errors import (
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_USAGE,
    ClusterUnreachableError,
    CommandNotRunnableError,
    counted,
    printable,
)

from ...shared.program import say
from ...shared.results import Results
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
# Messages of kubectl when no server was reached.
_UNREACHABLE = ("Unable to connect to the server", "The connection to the server", "connection refused", "no such host")


@click.command("lint", epilog=_EPILOG)
@click.argument("files", metavar="[FILE|-]...", nargs=-1)
@click.option("--kube-version", metavar="X.Y", help="Of the cluster.  [default: all since 1.33]")
@click.option("--no-schema", is_flag=True, help="Leave out the API's schema: all fields of all kinds.")
@click.option("--server", is_flag=True, help="Ask the cluster too: kubectl apply --dry-run=server.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for each finding.")
@cluster_options
def command(
    files: tuple[str, ...], kube_version: str | None, no_schema: bool, server: bool, as_json: bool, verbose: bool,
    **cluster: str | None,
) -> int:  # fmt: skip
    """Report what a server would refuse in manifests, what it takes in silence, and which flag of kubetpl to change.

    An error is what servers refuse; a warning is what they take. The manifests are read as kubectl reads them, and held
    against the published schema of the release with its words and ranges (pip install kubernetes-validate), and against
    rules on Jobs, indexes, names, quantities, volumes, and what the flags of kubetpl can get wrong. That is not a
    second API server: everything else, such as quotas, admission, addresses and schedules, is left to --server.

    A finding is a line on standard output, error or warning. Exit 0 without errors, 2 with at least one.
    """
    from tarkit.k8s.lint.nodes import WARNING, Finding
    from tarkit.k8s.yamlreading import Doubt
    from tarkit.k8s.yamltext import load_documents

    kubectl = shutil.which("kubectl") if server else None
    if server and kubectl is None:
        raise CommandNotRunnableError(
            "--server needs kubectl, and there is none on the PATH; install it, or leave out --server", EXIT_NOT_FOUND
        )
    names = list(files) or ["-"]
    kinds: collections.Counter[str] = collections.Counter()
    errors = 0
    with Results(only_messages=True) as results:
        for name in names:
            text = manifest_text(name)
            doubts: list[Doubt] = []
            documents = load_documents(text, shown(name), doubts)
            kinds.update(str(document["kind"]) for document in documents)
            found = [Finding(WARNING, printable(each.where), printable(each.sentence)) for each in doubts]
            found += findings_of(documents, kube_version, not no_schema)
            if kubectl is not None:
                found += _asked(kubectl, text, cluster)
            for finding in found:
                kept = {key: getattr(finding, key) for key in ("severity", "where", "sentence", "flag")}
                plain = f"{name}: {finding.severity}: {finding}"
                results.line(json.dumps({"file": name, **kept}) if as_json else plain)
            errors += sum(finding.severity == "error" for finding in found)
    what = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    say(_NAME, f"{counted(sum(kinds.values()), 'document')} checked ({what}), {counted(errors, 'error')}")
    return EXIT_USAGE if errors else EXIT_OK


def _asked(kubectl: str, text: str, cluster: dict[str, str | None]) -> list[Finding]:
    """The server's findings about the manifests of a file, through kubectl."""
    from tarkit.k8s.lint.nodes import ERROR, WARNING, Finding

    options = [f"--{name}={value}" for name, value in cluster.items() if value is not None]
    words = [kubectl, "apply", "--dry-run=server", *options, "-f", "-"]
    done = subprocess.run(words, input=text.encode("utf-8"), capture_output=True, check=False)
    lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    unreachable = next((line for line in lines if any(sign in line for sign in _UNREACHABLE)), None)
    if done.returncode and unreachable is not None:
        # Without kubectl's advice not to validate.
        why = unreachable[max(unreachable.find("dial tcp"), 0) :].partition("; ")[0]
        raise ClusterUnreachableError(f"no server has looked at the manifests: {printable(why)}")
    refused = [line for line in lines if done.returncode and not line.startswith("Warning:")]
    if done.returncode and not refused:
        lines.append(f"kubectl ended with exit code {done.returncode} and no message")
        refused = lines[-1:]
    return [Finding(ERROR if line in refused else WARNING, "server", line) for line in lines]
