"""Places in a manifest, and what is found there."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tarkit.errors import printable
from tarkit.k8s.names import label_key, label_value, version

ERROR = "error"
WARNING = "warning"
_PLAIN_KEY = re.compile(r"[^.\[\]\"/\s]+")
_FROM_PATH = "from the path"
# Which flag of kubetpl sets what is at a path; the first that matches. Paths without "spec.template." and the like.
_FLAGS = (
    (r"metadata\.name$", "--name"),
    (r"metadata\.namespace", "--namespace"),
    (r'metadata\.labels\.(app|"app\.kubernetes\.io/name")', "--app"),
    (r'metadata\.labels\."kueue\.x-k8s\.io/queue-name"', "--queue"),
    (r"metadata\.labels", "--label"),
    (r"containers\[0\]\.image\b", "--image"),
    (r"containers\[0\]\.(command|args)", "--command"),
    (r"containers\[0\]\.env\b", "--env"),
    (r"(containers\[0\]|spec)\.ports", "--port"),
    (r"containers\[0\]\.resources\.(limits|requests)\.cpu", "--cpu"),
    (r"containers\[0\]\.resources\.(limits|requests)\.memory", "--memory"),
    (r"containers\[0\]\.resources\.(limits|requests)\.ephemeral-storage", "--scratch"),
    (r'containers\[0\]\.resources\.(limits|requests)\."', "--gpu"),
    (r"volumes\[\d+\]\.emptyDir", "--scratch"),
    (r"volumes\[\d+\]\.configMap", "--config-map"),
    (r"volumes\[\d+\]\.secret", "--secret"),
    (r"securityContext\.runAsUser", "--run-as"),
    (r"securityContext", "--security"),
    (r"spec\.hostname\b", "--hostname"),
    (r"spec\.subdomain", "--subdomain"),
    (r"spec\.restartPolicy", "--restartpolicy"),
    (r"spec\.serviceAccountName", "--service-account"),
    (r"spec\.completions", "--slices"),
    (r"spec\.parallelism", "--parallelism"),
    (r"spec\.maxFailedIndexes", "--max-failed"),
    (r"spec\.backoffLimit", "--retries"),
    (r"^spec\.activeDeadlineSeconds", "--deadline"),
    (r"spec\.ttlSecondsAfterFinished", "--ttl"),
    (r"spec\.nodeSelector", "--node-selector"),
    (r"spec\.tolerations", "--toleration"),
    (r"spec\.priorityClassName", "--priority-class"),
    (r"spec\.imagePullSecrets", "--image-pull-secret"),
    (r"spec\.selector", "--app"),
)
_FLAG_PATTERNS = tuple((re.compile(pattern), flag) for pattern, flag in _FLAGS)


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a manifest.

    severity: ``error``, a server refuses it; or ``warning``, a server takes it. where: a place, such as
    ``job/imgnet spec.template.spec.restartPolicy``. sentence: what is wrong and what would be right, one line.
    flag: the flag of kubetpl that sets it, or None. unusable: a server takes it, but no pod of it could run, its work
    would be lost, or a secret be shown: generators do not print it. ``str()`` is one line with all but the severity.
    """

    severity: str
    where: str
    sentence: str
    flag: str | None = None
    unusable: bool = False

    def __str__(self) -> str:
        change = f"; change {self.flag}" if self.flag else ""
        return f"{self.where.replace(' ', ': ', 1)}: {self.sentence}{change}"


@dataclass(frozen=True)
class Manifest:
    """What is known of a whole document. label: ``job/imgnet``. version: the cluster's, as numbers."""

    label: str
    kind: str
    version: tuple[int, int]
    version_text: str


class Node:
    """A value in a manifest, which may be missing (None) or of any type, and its place.

    The methods that look inside take what has the wrong type for missing: types are a rule of their own.
    """

    __slots__ = ("_key", "_parent", "manifest", "value")

    def __init__(self, value: Any, manifest: Manifest, parent: Node | None = None, key: str | int = "") -> None:
        self.value = value
        self.manifest = manifest
        self._parent = parent
        self._key = key

    def at(self, *keys: str) -> Node:
        """What is under these names, one inside the other."""
        node = self
        for key in keys:
            value = node.value
            node = Node(value.get(key) if isinstance(value, dict) else None, self.manifest, node, key)
        return node

    def items(self) -> list[Node]:
        """The members of a list that are mappings."""
        if not isinstance(self.value, list):
            return []
        found = enumerate(self.value)
        return [Node(value, self.manifest, self, number) for number, value in found if isinstance(value, dict)]

    def members(self) -> list[Node]:
        """The members of a list, whatever they are."""
        values = self.value if isinstance(self.value, list) else []
        return [Node(value, self.manifest, self, number) for number, value in enumerate(values)]

    def fields(self) -> list[tuple[str, Node]]:
        """The entries of a mapping that have texts as names, which all of JSON have."""
        if not isinstance(self.value, dict):
            return []
        return [(key, Node(value, self.manifest, self, key)) for key, value in self.value.items() if type(key) is str]

    def has(self, key: str) -> bool:
        """Whether there is something but null under the name."""
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def text(self, key: str) -> str:
        """The text under a name; empty if there is none."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return value if isinstance(value, str) else ""

    def whole(self, key: str) -> int | None:
        """The whole number under a name."""
        value = self.value.get(key) if isinstance(self.value, dict) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def root(self) -> Node:
        """The whole document."""
        node = self
        while node._parent is not None:
            node = node._parent
        return node

    def manifest_label(self, key: str) -> Any:
        """A label of the whole document, whatever it is; None if there is none."""
        return self.root().at("metadata", "labels", key).value

    def manifest_annotation(self, key: str) -> Any:
        """An annotation of the whole document, whatever it is; None if there is none."""
        return self.root().at("metadata", "annotations", key).value

    @property
    def path(self) -> str:
        """``spec.template.spec.containers[0].image``."""
        if self._parent is None:
            return ""
        head = self._parent.path
        if isinstance(self._key, int):
            return f"{head}[{self._key}]"
        key = self._key if _PLAIN_KEY.fullmatch(self._key) else f'"{self._key}"'
        return printable(f"{head}.{key}" if head else key)

    def error(self, sentence: str, flag: str | None = _FROM_PATH) -> Finding:
        """An error at this place: a server refuses it. flag: unless given, the one that goes with the path."""
        return self._finding(ERROR, sentence, flag)

    def warning(self, sentence: str, flag: str | None = _FROM_PATH) -> Finding:
        """A warning at this place: a server takes it."""
        return self._finding(WARNING, sentence, flag)

    def unusable(self, sentence: str, flag: str | None = _FROM_PATH) -> Finding:
        """A warning about something that a server takes, and that generators refuse to print."""
        return dataclasses.replace(self._finding(WARNING, sentence, flag), unusable=True)

    def _finding(self, severity: str, sentence: str, flag: str | None) -> Finding:
        path = self.path
        if not sentence.isprintable():
            sentence = "".join(c if c.isprintable() else printable(c) for c in sentence)
        where = f"{self.manifest.label} {path}" if path else self.manifest.label
        return Finding(severity, where, sentence, flag_of(path) if flag == _FROM_PATH else flag)


def root_of(document: Any, number: int, kube_version: str) -> Node:
    """A document as a place. number: which it is, for those without a name."""
    kind = document.get("kind") if isinstance(document, dict) else None
    meta = document.get("metadata") if isinstance(document, dict) else None
    names = [meta.get(key) for key in ("name", "generateName")] if isinstance(meta, dict) else []
    name = next((text for text in names if isinstance(text, str) and text), None)
    kind = kind if isinstance(kind, str) else ""
    label = f"{kind.lower()}/{name}" if kind and name else f"document-{number}"
    # One word, since a place follows.
    return Node(document, Manifest(printable(label).replace(" ", "_"), kind, version(kube_version), kube_version))


def flag_of(path: str) -> str | None:
    """The flag of kubetpl that sets the field at a path; None if there is none for it alone."""
    return next((flag for pattern, flag in _FLAG_PATTERNS if pattern.search(path)), None)


def label_pairs(labels: Node) -> Iterator[Finding]:
    """Names and values that no label can have."""
    for key, node in labels.fields():
        if wrong := label_key(key):
            yield node.error(f"this is no name of a label: {wrong}")
        if isinstance(node.value, str) and (wrong := label_value(node.value)):
            yield node.error(f"this is no value of a label: {wrong}")


def no_such_field(node: Node, known: Iterable[str]) -> Finding:
    """Of a field that an object can not have. known: those that it can."""
    near = difflib.get_close_matches(str(node._key), list(known), 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "leave it out"
    return node.error(f"there is no such field; {hint}", None)


def repeated(names: list[tuple[str, Node]]) -> Iterator[tuple[str, Node]]:
    """Those entries whose name was there before; empty names are left out."""
    seen: set[str] = set()
    for name, node in names:
        if name and name in seen:
            yield name, node
        seen.add(name)
