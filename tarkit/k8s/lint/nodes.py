"""Places in a manifest, and what is found there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tarkit.errors import printable
from tarkit.k8s.names import label_key, label_value

Check = Callable[[str], str | None]
Report = Callable[["Node", str], "Finding"]
ERROR = "error"
WARNING = "warning"
_PLAIN_KEY = re.compile(r"[^.\[\]\"/\s]+")
_FROM_PATH = "from the path"
# The flag of kubetpl that sets the field at a path: the first that matches.
_FLAGS = tuple(
    (re.compile(pattern), flag)
    for pattern, flag in (
        (r"metadata\.(name$|namespace)", r"--\1"),
        (r'metadata\.labels\.(app|"app\.kubernetes\.io/name")|spec\.selector', "--app"),
        (r'metadata\.labels\."kueue\.x-k8s\.io/queue-name"', "--queue"),
        (r"metadata\.labels", "--label"),
        (r"containers\[0\]\.(image|env)\b", r"--\1"),
        (r"containers\[0\]\.(command|args)", "--command"),
        (r"(containers\[0\]|spec)\.ports", "--port"),
        (r"containers\[0\]\.resources\.(?:limits|requests)\.(cpu|memory)", r"--\1"),
        (r"containers\[0\]\.resources\.(limits|requests)\.ephemeral-storage|volumes\[\d+\]\.emptyDir", "--scratch"),
        (r'containers\[0\]\.resources\.(limits|requests)\."', "--gpu"),
        (r"volumes\[\d+\]\.configMap", "--config-map"),
        (r"volumes\[\d+\]\.secret", "--secret"),
        (r"securityContext\.runAsUser", "--run-as"),
        (r"securityContext", "--security"),
        (r"spec\.(hostname\b|subdomain|parallelism)", r"--\1"),
        (r"spec\.restartPolicy", "--restartpolicy"),
        (r"spec\.serviceAccountName", "--service-account"),
        (r"spec\.completions", "--slices"),
        (r"spec\.maxFailedIndexes", "--max-failed"),
        (r"spec\.backoffLimit", "--retries"),
        (r"^spec\.activeDeadlineSeconds", "--deadline"),
        (r"spec\.ttlSecondsAfterFinished", "--ttl"),
        (r"spec\.nodeSelector", "--node-selector"),
        (r"spec\.tolerations", "--toleration"),
        (r"spec\.priorityClassName", "--priority-class"),
        (r"spec\.imagePullSecrets", "--image-pull-secret"),
    )
)


@dataclass(frozen=True)
class Finding:
    """A defect of a manifest.

    severity: ``error``, a server refuses it; or ``warning``, a server takes it. where: a place, such as
    ``job/imgnet spec.template.spec.restartPolicy``. sentence: what is wrong and what would be right, one line.
    flag: the flag of kubetpl that sets it, or None. unusable: a server takes it, but no pod of it could run, its work
    would be lost, or a secret be shown: generators do not print it. ``str()`` is one line with all but the severity."""

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
    """A whole document. label: ``job/imgnet``. kube_version: the cluster's."""

    label: str
    kind: str
    kube_version: str


class Node:
    """A value in a manifest, which may be missing (None) or of any type, and its place.
    The methods that look inside take a value of the wrong type for a missing one: types are the schema's."""

    __slots__ = ("_key", "_parent", "manifest", "value")

    def __init__(self, value: Any, manifest: Manifest, parent: Node | None = None, key: str | int = "") -> None:
        self.value = value
        self.manifest = manifest
        self._parent = parent
        self._key = key

    def at(self, *keys: str) -> Node:
        """The value under these names, each inside the one before."""
        node = self
        for key in keys:
            node = Node(node.get(key), self.manifest, node, key)
        return node

    def members(self) -> list[Node]:
        """The members of a list, of any type."""
        values = self.value if isinstance(self.value, list) else []
        return [Node(value, self.manifest, self, number) for number, value in enumerate(values)]

    def items(self) -> list[Node]:
        """The members of a list that are mappings."""
        return [each for each in self.members() if isinstance(each.value, dict)]

    def fields(self) -> list[tuple[str, Node]]:
        """The entries of a mapping whose names are texts, as all are in JSON."""
        if not isinstance(self.value, dict):
            return []
        return [(key, Node(value, self.manifest, self, key)) for key, value in self.value.items() if type(key) is str]

    def get(self, key: str) -> Any:
        """The value under a name; None if there is none."""
        return self.value.get(key) if isinstance(self.value, dict) else None

    def has(self, key: str) -> bool:
        """Whether there is a value other than null under the name."""
        return self.get(key) is not None

    def is_empty(self) -> bool:
        """Whether it is absent, null, an empty text or list."""
        return self.value in (None, "", [])

    def text(self, key: str) -> str:
        """The text under a name; empty if there is none."""
        value = self.get(key)
        return value if isinstance(value, str) else ""

    def whole(self, key: str) -> int | None:
        """The whole number under a name."""
        value = self.get(key)
        return value if type(value) is int else None

    def root(self) -> Node:
        """The whole document."""
        node = self
        while node._parent is not None:
            node = node._parent
        return node

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
        if flag == _FROM_PATH:
            found = ((pattern.search(path), flag) for pattern, flag in _FLAGS)
            flag = next((match.expand(flag) for match, flag in found if match), None)
        if not sentence.isprintable():
            sentence = "".join(c if c.isprintable() else printable(c) for c in sentence)
        where = f"{self.manifest.label} {path}" if path else self.manifest.label
        return Finding(severity, where, sentence, flag)


def root_of(document: Any, number: int, kube_version: str) -> Node:
    """A document as a place. number: its position, which names a document without a name."""
    root = Node(document, Manifest("", "", kube_version))
    kind, meta = root.text("kind"), root.at("metadata")
    name = meta.text("name") or meta.text("generateName")
    label = f"{kind.lower()}/{name}" if kind and name else f"document-{number}"
    # One word, since a place follows.
    return Node(document, Manifest(printable(label).replace(" ", "_"), kind, kube_version))


def valid(node: Node, check: Check, report: Report = Node.error) -> Iterator[Finding]:
    """The defect that a check finds in a text, if there is one."""
    if isinstance(node.value, str) and node.value and (wrong := check(node.value)):
        yield report(node, wrong)


def form(pattern: str, sentence: str) -> Check:
    """A check of texts that have a form. {0} in the sentence is the text as it is shown, {1} the text itself."""
    return lambda text: None if re.fullmatch(pattern, text, re.DOTALL) else sentence.format(repr(text), text)


def valid_labels(labels: Node) -> Iterator[Finding]:
    """Names and values that no label can have."""
    for key, node in labels.fields():
        if wrong := label_key(key):
            yield node.error(f"not a valid name of a label: {wrong}")
        if isinstance(node.value, str) and (wrong := label_value(node.value)):
            yield node.error(f"not a valid value of a label: {wrong}")


def unique(listed: Node | Iterable[Node], key: str, what: str) -> Iterator[Finding]:
    """Members of a list that have the same text under a name as an earlier one."""
    seen: set[str] = set()
    for each in listed.items() if isinstance(listed, Node) else listed:
        if (text := each.text(key)) and text in seen:
            yield each.at(key).error(f"{text!r} is the {key} of another {what} too; each needs its own")
        seen.add(text)
