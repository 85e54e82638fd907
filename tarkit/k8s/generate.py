"""Make the documents of a manifest from a generator's name and its settings."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.extras import MissingExtraError
from tarkit.k8s.fieldpath import set_field
from tarkit.k8s.fieldtypes import check_types
from tarkit.k8s.fill import main_ones, pod_of, without_empties
from tarkit.k8s.lostoutputs import lost_outputs
from tarkit.k8s.podfields import part, replace_params
from tarkit.k8s.quantity import is_milli, whole
from tarkit.k8s.settings import GENERATORS, OWN_PARAMS, TABLE, Generator, Request, Settings, VerbCall
from tarkit.k8s.templates import read_template, template_path
from tarkit.k8s.wellknown import SLICES
from tarkit.k8s.yamltext import Document
from tarkit.names.redaction import exposure

_NEEDS = {"config_map_path": "config_map", "gpu_resource": "gpu"}
"""Settings that have an effect only with another one."""

_SECRET = re.compile(
    r"(?i).*(secret|passw|token|credential|private_?key|api_?key|access_?key(?!_id)|connection_string).*"
)


@dataclasses.dataclass
class Asked:
    """The parts of a request for a manifest.

    Attributes:
        settings: settings from all sources.
        given: settings of the command line alone.
        words: arguments after the flags.
        template: a template file of the user.
        assignments: fields to set after all others.
        verb: the verb of tarkit that the pods run, and its arguments.
    """

    generator: str
    settings: Settings
    given: Mapping[str, Any]
    words: list[str]
    template: str | None = None
    assignments: tuple[str, ...] = ()
    verb: VerbCall | None = None

    def documents(self, report: Callable[[str], None], here: bool = False) -> list[Document]:
        """Return the manifests.

        Args:
            report: called with each warning and note, one sentence each.
            here: the manifests will run on this machine.
        """
        generator = generator_of(self.generator)
        path = self.template or template_path(generator.template or self.generator)
        request = Request(self.settings, read_template(path), self.words, here, self.verb)
        found = [without_empties(each) for each in generator.documents(request)]
        for assignment in self.assignments:
            for document in main_ones(found):
                set_field(document, assignment)
                _check_kept(document, assignment)
        if self.generator not in ("service", "configmap"):
            _refuse_unused(self.generator, self.settings, self.given, found)
        if self.assignments or self.template is not None:
            try:
                check_types(found, strict=True)
            except MissingExtraError as error:
                report(f"note: fields and their types are not checked: {error}")
        # A local run knows more about its volumes, and checks this itself.
        for lost in () if here else (each for document in found for each in lost_outputs(document)):
            if lost.is_certain:
                raise UsageError(lost.sentence)
            report(f"warning: {lost.sentence}")
        amounts = self.settings
        for note in (
            *request.notes,
            *_secrets_in(self.settings, self.verb),
            *thousandths_in(memory=amounts.memory, scratch=amounts.scratch),
        ):
            report(note)
        return found if generator.wrap is None else generator.wrap(request, found)


def generator_of(name: str) -> Generator:
    """Return the generator of this name."""
    module, _, constant = GENERATORS[name].partition(":")
    found: Generator = getattr(importlib.import_module(f"tarkit.k8s.generators.{module}"), constant)
    return found


def _check_kept(document: Document, assignment: str) -> None:
    """Refuse an assignment that makes the manifest invalid, or removes an index of a slice."""
    if not isinstance(document.get("kind"), str) or not document["kind"]:
        raise UsageError(f"--set {printable(assignment)}: the kind of a manifest is a text")
    annotations = part(document, "metadata").get("annotations")
    slices = annotations.get(SLICES) if isinstance(annotations, dict) else None
    if document["kind"] == "Job" and slices is not None and str(part(document, "spec").get("completions")) != slices:
        raise UsageError(
            f"--set {printable(assignment)}: the shards are cut into {slices} slices, and not all would be done; "
            "use --slices for their number"
        )


def _refuse_unused(generator: str, settings: Settings, given: Mapping[str, Any], documents: list[Document]) -> None:
    """Refuse settings that have no effect on this template.

    Args:
        given: settings of the command line. Those of files are not checked, since files serve all
            generators.
    """
    has_job = any(each["kind"] in ("Job", "CronJob") for each in documents)
    has_pod = any(pod_of(each) is not None for each in documents)
    for setting in (TABLE[name] for name in TABLE if name in given and not TABLE[name].applies("configmap")):
        if not has_pod:
            raise UsageError(f"{setting.flag}: nothing in the template runs a pod")
        if not has_job and not setting.applies("pod"):
            raise UsageError(f"{setting.flag}: nothing in the template is a Job")
    for name, needed in _NEEDS.items():
        if name in given and getattr(settings, needed) is None:
            raise UsageError(
                f"{TABLE[name].flag} has no effect without {TABLE[needed].flag}; add it, or leave both out"
            )
    for key in (each.partition("=")[0] for each in given.get("param", ())):
        if generator == "jobs" and key in OWN_PARAMS:
            raise UsageError(f"--param {key}: {{{key}}} stands for an item of --over; use another name")
        if settings.command is None:
            raise UsageError(f"--param {printable(key)} has no effect without --command; add that, or leave it out")
        if replace_params(settings.command, {key: ""}) == settings.command:
            raise UsageError(
                f"--param {printable(key)} has no effect: there is no {{{printable(key)}}} in --command (${{…}} is the "
                "shell's); write it there, or leave it out"
            )


def thousandths_in(**amounts: str | None) -> Iterator[str]:
    """Return warnings about numbers of bytes in thousandths, by the name of their flag."""
    for flag, text in amounts.items():
        if text is not None and is_milli(text):
            number = text.strip()[:-1]
            yield (
                f"warning: --{flag} {printable(text)}: m are thousandths of a byte, so it is rounded up to "
                f"{whole(text)}; did you mean {number}M or {number}Mi?"
            )


def _secrets_in(settings: Settings, verb: VerbCall | None) -> Iterator[str]:
    """Yield warnings about secrets that all readers of the manifest would see.

    The secrets are not shown.
    """
    for name, value in settings.env.items():
        if value and not value.startswith("/") and _SECRET.fullmatch(name):
            yield (
                f"warning: --env {printable(name)}: all who may read the manifest or the Job can read its value; "
                "keep it in a Secret, which --secret mounts, or use --service-account"
            )
    urls = [("--shards", each.removeprefix("@")) for each in (settings.shards if verb is None else ())]
    if verb is not None:
        urls += [("input", each.removeprefix("@")) for specs in verb.inputs for each in specs]
        urls.append(("--work", verb.work or ""))
    urls += [("--outdir", settings.outdir or ""), ("--list-url", settings.list_url or "")]
    for flag, url in urls:
        if wrong := exposure(flag, url):
            yield f"warning: {printable(wrong)}; use --service-account"
