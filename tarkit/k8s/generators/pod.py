"""A pod that runs a command."""

from __future__ import annotations

from tarkit.k8s.fill import with_scripts
from tarkit.k8s.settings import Request
from tarkit.k8s.yamltext import Document

ABOUT = "A pod, without a Job that starts it again."
EXAMPLE = "kubetpl pod -n shell -I ubuntu:24.04 -c 'sleep 1h' | kubectl apply -f -"


def documents(request: Request) -> list[Document]:
    """The template's documents, filled."""
    return with_scripts(request.template, request.settings)
