"""A headless service for the pods of an app."""

from __future__ import annotations

import dataclasses

from tarkit.errors import UsageError
from tarkit.k8s.fill import app_of, filled
from tarkit.k8s.podfields import part, port_number
from tarkit.k8s.settings import Generator, Request
from tarkit.k8s.yamltext import Document


def documents(request: Request) -> list[Document]:
    """The template's documents, with the app's name, its label in the selector, and an entry for each port."""
    settings = request.settings
    app = app_of(settings)
    if app is None:
        raise UsageError("name the app whose pods it is for: --app")
    if not settings.port:
        raise UsageError("name at least one port: --port")
    ports = list(dict.fromkeys(port_number(port) for port in settings.port))
    found = []
    for template in request.template:
        document = filled(template, dataclasses.replace(settings, name=settings.name or app))
        spec = part(document, "spec")
        spec["selector"] = {"app": app}
        spec["ports"] = [
            # The API wants names as soon as there are two.
            {**({"name": f"port-{port}"} if len(ports) > 1 else {}), "port": port, "targetPort": port}
            for port in ports
        ]
        found.append(document)
    return found


SERVICE = Generator(
    "A service by which the pods of an app are found.",
    "kubetpl service -a bigdata19 -P 7880 | kubectl apply -f -",
    documents,
)
