"""Objects that are created by kubectl, as it is on this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from tarkit.errors import EXIT_NOT_FOUND, CommandNotRunnableError


def apply_documents(documents: Iterable[Mapping[str, Any]]) -> int:
    """``kubectl apply`` of manifests; its exit code. Raises: CommandNotRunnableError: there is no kubectl."""
    from tarkit.k8s.yamltext import dump_documents

    kubectl = shutil.which("kubectl")
    if kubectl is None:
        reason = (
            "kubectl is not on this machine; install it, or leave --apply out and pipe the manifest to it elsewhere"
        )
        raise CommandNotRunnableError(reason, EXIT_NOT_FOUND)
    text = dump_documents(documents).encode()
    return subprocess.run([kubectl, "apply", "-f", "-"], input=text, check=False).returncode
