"""Apply settings to the fields of whole manifests, such as node selection and security."""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.k8s.durations import seconds
from tarkit.k8s.names import safe_label
from tarkit.k8s.podfields import POD_PATHS, dict_of, fill_container, fill_script, listed, main_container, part
from tarkit.k8s.settings import Request, Settings
from tarkit.k8s.wellknown import APP_NAME, QUEUE
from tarkit.k8s.yamltext import Document

_EVICTS = "NoExecute"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", _EVICTS)
_LOST_NODES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DROPPED = [("", "env"), ("", "tolerations")]
_MAPS = ("labels", "annotations", "nodeSelector", "requests", "limits", "data", "binaryData")


def pod_of(document: Document) -> Document | None:
    """Return the part of a manifest with the pod's ``metadata`` and ``spec``, or None."""
    path = POD_PATHS.get(document["kind"])
    return None if path is None else part(document, *path)


def filled(document: Document, settings: Settings) -> Document:
    """Return a copy of the manifest with all settings for objects of any kind."""
    document = copy.deepcopy(document)
    pod = pod_of(document)
    if settings.name is not None:
        part(document, "metadata")["name"] = settings.name
    if settings.namespace is not None:
        part(document, "metadata")["namespace"] = settings.namespace
    for each in [document] if pod is None or pod is document else [document, pod]:
        _fill_labels(each, settings)
    if pod is not None:
        spec = part(pod, "spec")
        fill_container(spec, settings)
        _fill_placement(spec, settings)
        _fill_security(spec, settings)
        if pod is document:
            _fill_tolerations(spec)
        if settings.restartpolicy is not None:
            spec["restartPolicy"] = settings.restartpolicy
    job = part(document, "spec", "jobTemplate") if document["kind"] == "CronJob" else document
    if document["kind"] in ("Job", "CronJob"):
        _fill_job(job, settings)
    if document["kind"] in POD_PATHS and settings.queue is not None:
        # Not "suspend", or a scheduling gate: Kueue's webhook does that.
        part(job, "metadata", "labels")[QUEUE] = settings.queue
    return document


def fill_template(request: Request) -> list[Document]:
    """Return filled copies of the template's documents.

    Their containers run the command as a shell script. The main documents get the name; the other
    documents keep theirs, since documents refer to them.
    """
    template, settings = request.template, request.settings
    main = main_ones(template)
    found = [
        filled(each, settings if any(each is one for one in main) else without_name(settings)) for each in template
    ]
    for pod in filter(None, map(pod_of, found)):
        fill_script(main_container(part(pod, "spec")), settings)
    return found


def main_ones(documents: list[Document]) -> list[Document]:
    """Return the documents that get the command line: Jobs, else other pods, else all."""
    jobs = [each for each in documents if each["kind"] == "Job"]
    return jobs or [each for each in documents if each["kind"] in POD_PATHS] or documents


def without_name(settings: Settings) -> Settings:
    """Return the settings without the name, for an object that keeps its name."""
    return dataclasses.replace(settings, name=None, app=app_of(settings))


def app_of(settings: Settings) -> str | None:
    """Return the value of the label ``app``: the setting made a valid label, or the name."""
    text = settings.app if settings.app is not None else settings.name
    return None if text is None else safe_label(text)


def _fill_labels(document: Document, settings: Settings) -> None:
    app = app_of(settings)
    labels = {} if app is None else {"app": app, APP_NAME: app}
    labels.update(settings.label)
    if labels:
        part(document, "metadata", "labels").update(labels)


def _fill_job(job: Document, settings: Settings) -> None:
    """Fill the fields of a Job.

    Args:
        job: a Job, or the equivalent part of a CronJob.
    """
    spec = part(job, "spec")
    pod = part(spec, "template", "spec")
    if settings.retries is not None:
        per_index = "backoffLimitPerIndex" in spec
        spec["backoffLimitPerIndex" if per_index else "backoffLimit"] = settings.retries
    if settings.deadline is not None:
        spec["activeDeadlineSeconds"] = math.ceil(seconds(settings.deadline, "--deadline"))
    if settings.ttl is not None:
        spec["ttlSecondsAfterFinished"] = math.ceil(seconds(settings.ttl, "--ttl"))
    if settings.restartpolicy == "OnFailure":
        # The API allows neither with containers that are started again in place.
        spec.pop("podFailurePolicy", None)
        spec.pop("podReplacementPolicy", None)
    for constraint in pod.get("topologySpreadConstraints") or []:
        labels = part(dict_of(constraint), "labelSelector", "matchLabels")
        if APP_NAME in labels:
            labels[APP_NAME] = part(spec, "template", "metadata", "labels")[APP_NAME]


def _fill_placement(spec: Document, settings: Settings) -> None:
    """Set node selectors, tolerations, priority, identity, image pull secrets and host name."""
    if settings.accelerator is not None:
        part(spec, "nodeSelector")["cloud.google.com/gke-accelerator"] = settings.accelerator
    if settings.node_selector:
        part(spec, "nodeSelector").update(settings.node_selector)
    for text in settings.toleration:
        _add(listed(spec, "tolerations"), _toleration(text))
    for name in settings.image_pull_secret:
        _add(listed(spec, "imagePullSecrets"), {"name": name})
    for field, value in (
        ("priorityClassName", settings.priority_class),
        ("serviceAccountName", settings.service_account),
        ("hostname", settings.hostname),
        ("subdomain", settings.subdomain),
    ):
        if value is not None:
            spec[field] = value


def _toleration(text: str) -> Document:
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?(?::([A-Za-z]+))?", text)
    if match is None or (match[3] and match[3] not in _EFFECTS):
        raise UsageError(
            f"--toleration {printable(text)}: write KEY, KEY=VALUE or KEY=VALUE:EFFECT, where EFFECT is one of "
            f"{', '.join(_EFFECTS)}"
        )
    found: Document = {"key": match[1], "operator": "Exists" if match[2] is None else "Equal"}
    if match[2]:
        found["value"] = match[2]
    if match[3]:
        found["effect"] = match[3]
    return found


def _fill_tolerations(spec: Document) -> None:
    """Add tolerations to a pod's template.

    A server adds default tolerations to the list of a pod itself, and server-side apply treats the
    list as a whole. So the template has them from the start. Source: Kubernetes' admission plugin
    DefaultTolerationSeconds.
    """
    for key in _LOST_NODES if spec.get("tolerations") else ():
        known = [(each.get("key") or key, each.get("effect") or _EVICTS) for each in spec["tolerations"]]
        if (key, _EVICTS) not in known:
            spec["tolerations"].append({"key": key, "operator": "Exists", "effect": _EVICTS, "tolerationSeconds": 300})


def without_empties(thing: Any, of: str = "") -> Any:
    """Return a manifest without the empty fields that servers drop.

    With them, each further ``kubectl apply`` would find a difference.
    """
    if isinstance(thing, list):
        return [without_empties(each, of) for each in thing]
    if not isinstance(thing, dict):
        return thing
    found = {key: without_empties(each, key) for key, each in thing.items()}
    return {
        key: each
        for key, each in found.items()
        if each not in (None, []) and (each, of) not in _DROPPED and not (each == {} and key in _MAPS)
    }


def _add(items: list[Document], entry: Document) -> None:
    if entry not in items:
        items.append(entry)


def _fill_security(spec: Document, settings: Settings) -> None:
    """Set the pod security standard, and the user of the container.

    Source: Kubernetes' Pod Security Standards. ``restricted`` also has a read-only root, which they
    do not ask for.
    """
    if settings.security == "restricted":
        restrict(spec)
        part(main_container(spec), "securityContext").setdefault("readOnlyRootFilesystem", True)
    elif settings.security is not None:
        for name in ("runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "seccompProfile"):
            part(spec, "securityContext").pop(name, None)
        for container in _containers(spec):
            container.pop("securityContext", None)
        if settings.security == "baseline":
            part(spec, "securityContext")["seccompProfile"] = {"type": "RuntimeDefault"}
    if settings.run_as is not None:
        context = part(spec, "securityContext")
        context.update(runAsUser=settings.run_as, runAsGroup=settings.run_as, fsGroup=settings.run_as)
        if settings.run_as == 0:
            if settings.security in (None, "restricted"):
                raise UsageError("--run-as 0: root is not allowed in restricted pods; add --security baseline")
            context["runAsNonRoot"] = False
    if spec.get("securityContext") == {}:
        del spec["securityContext"]


def _containers(spec: Document) -> list[Document]:
    """Return all containers of a pod; the standards apply to each of them."""
    return [*listed(spec, "containers"), *(listed(spec, "initContainers") if spec.get("initContainers") else [])]


def restrict(spec: Document) -> None:
    """Set what the standard ``restricted`` requires of a pod."""
    context = part(spec, "securityContext")
    context["runAsNonRoot"] = True
    # Root's own number is not allowed.
    context["runAsUser"] = context.get("runAsUser") or 65532
    for name in ("runAsGroup", "fsGroup"):
        context.setdefault(name, 65532)
    context.setdefault("fsGroupChangePolicy", "OnRootMismatch")
    context["seccompProfile"] = {"type": "RuntimeDefault"}
    for container in _containers(spec):
        own = part(container, "securityContext")
        for name in ("privileged", "procMount", "runAsNonRoot", "seccompProfile"):
            own.pop(name, None)
        if own.get("runAsUser") == 0:
            del own["runAsUser"]
        own.update(allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"]})
