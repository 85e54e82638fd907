"""A Job that runs a command."""

from __future__ import annotations

from tarkit.k8s.fill import with_scripts
from tarkit.k8s.settings import Request
from tarkit.k8s.yamltext import Document

ABOUT = "A Job that runs a shell command in one pod."
EXAMPLE = "kubetpl job -n job0000 -I example.com/etl:1 -c 'curl -sf URL | tarproc -c \"ls -l\"' | kubectl apply -f -"


def documents(request: Request) -> list[Document]:
    """The template's documents, filled."""
    return with_scripts(request.template, request.settings)
