"""From a generator's name to its documents."""

from __future__ import annotations

import importlib
from types import ModuleType

from tarkit.errors import UsageError, printable
from tarkit.k8s.configuration import GENERATORS
from tarkit.k8s.fieldpath import set_field
from tarkit.k8s.fill import pod_of, with_script
from tarkit.k8s.request import Request
from tarkit.k8s.yamltext import Document

_TEMPLATES = {"jobs": "job"}


def generator_module(name: str) -> ModuleType:
    """The module of a generator: ``documents``, ``ABOUT``, ``EXAMPLE``."""
    return importlib.import_module(f"tarkit.k8s.generators.{name}")


def template_name(generator: str) -> str:
    """The template that a generator begins with; one that is none of ours is a template itself."""
    return _TEMPLATES.get(generator, generator)


def generate(generator: str, request: Request, assignments: tuple[str, ...] = ()) -> list[Document]:
    """The documents of a generator, or a filled template of the user's, with single fields set at last.

    Raises:
        UsageError: what was asked for can not be. As the generators.
    """
    if generator in GENERATORS:
        found: list[Document] = generator_module(generator).documents(request)
    else:
        found = [with_script(each, request.settings) for each in request.template]
        if request.settings.command is not None and all(pod_of(each) is None for each in found):
            raise UsageError(f"--command: nothing in template {printable(generator)} runs one")
    for assignment in assignments:
        for document in _main_ones(found):
            set_field(document, assignment)
    return found


def _main_ones(documents: list[Document]) -> list[Document]:
    """Those that ``--set`` is about: not the lists that go with a Job."""
    jobs = [each for each in documents if each["kind"] == "Job"]
    return jobs or documents
