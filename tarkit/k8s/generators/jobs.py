"""A Job or a pod that runs a command; and many Jobs in one stream, one for each item of a list."""

from __future__ import annotations

import dataclasses

from tarkit.errors import UsageError, printable
from tarkit.k8s.fill import fill_template
from tarkit.k8s.names import safe_label
from tarkit.k8s.podfields import replace_params
from tarkit.k8s.settings import MANY, OWN_PARAMS, Generator, Request, Settings
from tarkit.k8s.wellknown import RUN
from tarkit.k8s.yamltext import Document
from tarkit.specs.shardspec import expand


def documents(request: Request) -> list[Document]:
    """Return the filled documents of the template for each item of ``--over``.

    All have the same label of the run.
    """
    settings = request.settings
    if settings.over is None:
        raise UsageError("name the items that the Jobs are for: --over '{0000..0147}', or --over @LIST")
    pattern = settings.name if settings.name is not None else MANY
    items = list(expand(settings.over, allow_pipe=False, manifests=False))
    run = safe_label(pattern.replace("{i}", "").replace("{n}", "").strip("-."))
    found: list[Document] = []
    names: dict[str, str] = {}
    for number, item in enumerate(items):
        own = _settings_of(settings, pattern, item, f"{number:0{len(str(len(items) - 1))}d}", run)
        if own.name in names:
            raise UsageError(
                f"--name {printable(pattern)}: {printable(names[own.name])} and {printable(item)} would both be "
                f"called {own.name}; write {{i}} or {{n}} where the names must differ"
            )
        names[str(own.name)] = item
        found += fill_template(dataclasses.replace(request, settings=own))
    return found


def _settings_of(settings: Settings, pattern: str, item: str, number: str, run: str) -> Settings:
    # By --param's own rule: in one pass, so that an item may have braces itself, and no other brace
    # is touched.
    own = dict(zip(OWN_PARAMS, (item, number), strict=True))
    return dataclasses.replace(
        settings,
        name=replace_params(pattern, own),
        param={**settings.param, **own},
        env={name: replace_params(value, own) for name, value in settings.env.items()},
        app=settings.app if settings.app is not None else run,
        label={RUN: run, **settings.label},
    )


JOBS = Generator(
    "kubetpl jobs -n 'job{i}' -I example.com/etl:1 -c 'tarproc … raw-{i}.tar' \\\n"
    "      --over '{0000..0147}' | kubectl apply -f -",
    documents,
    template="job",
)
JOB = Generator(
    "kubetpl job -n job0000 -I example.com/etl:1 -c 'curl -sf URL | tarproc -c \"ls -l\"' | kubectl apply -f -",
    fill_template,
)
POD = Generator("kubetpl pod -n shell -I ubuntu:24.04 -c 'sleep 1h' | kubectl apply -f -", fill_template)
