"""What a test gets as `cluster`: a namespace of its own on a stand-in or on a real cluster, and kubectl for it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apideletion
from apierrors import ApiError
from apiresources import NAMESPACES, PODS, RESOURCES
from apiservice import Manner
from kubestandin import Standin, kubeconfig

# Seconds: for a slow and busy machine, and for a real controller, which tries again after 10 s and 20 s.
PATIENCE = 180


@dataclass
class Cluster:
    """`kubeconfig` names a context whose namespace is `namespace`; `is_standin` tells whom one talks to.

    `standin` is the stand-in itself (its store, its controller), None on a real cluster.
    """

    kubeconfig: Path
    namespace: str
    program: str
    home: Path
    standin: Standin | None

    @property
    def is_standin(self) -> bool:
        return self.standin is not None

    @property
    def env(self) -> dict[str, str]:
        """The environment for kubectl and for programs that call it."""
        kept = {key: value for key, value in os.environ.items() if key in ("LANG", "SSL_CERT_FILE")}
        path = f"{Path(self.program).parent}:{os.environ.get('PATH', '')}"
        if self.standin is None:
            # Login plugins of a real cluster may want anything.
            return {**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig)}
        return {**kept, "PATH": path, "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """kubectl, running on; the caller ends it."""
        return subprocess.Popen([self.program, *args], env=self.env, text=True, **options)

    def kubectl(
        self, *args: str, input: str | None = None, check: bool = False, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl to its end; `check` fails with what it said."""
        done = subprocess.run(
            [self.program, *args],
            env=self.env,
            input=input,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def apply(self, *documents: dict[str, Any]) -> None:
        text = "\n---\n".join(json.dumps(one) for one in documents)
        self.kubectl("apply", "-f", "-", input=text, check=True)

    def json(self, *args: str) -> Any:
        """`kubectl get ARGS -o json`, parsed."""
        return json.loads(self.kubectl("get", *args, "-o", "json", check=True).stdout)

    def peek(self, plural: str) -> list[dict[str, Any]]:
        """All objects of a kind, for questions of wait_for: without a process for each time that one asks."""
        if self.standin is None:
            found: list[dict[str, Any]] = self.json(plural)["items"]
            return found
        resource = next(one for one in RESOURCES if one.plural == plural)
        return self.standin.store.items(resource, self.namespace)[0]

    def wait_for(self, question: Callable[[], Any], what: str = "") -> Any:
        """The first true answer; fails after a time."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            answer = question()
            if answer:
                return answer
            time.sleep(0.02 if self.is_standin else 0.5)
        raise AssertionError(f"not within {PATIENCE} s: {what or question}")


class Said(NamedTuple):
    """What a program has said, and its exit code."""

    code: int
    out: str
    err: str


def start_standin(folder: Path, shared: list[Path], **options: Any) -> Standin:
    return Standin(folder, shared, **options)


@contextmanager
def own_namespace(standin: Standin, folder: Path, program: str, home: Path) -> Iterator[Cluster]:
    """A fresh namespace on the stand-in; afterwards its pods are killed and it is gone."""
    name = f"t-{secrets.token_hex(4)}"
    standin.api.create(NAMESPACES, "", {"metadata": {"name": name}})
    config = folder / f"kubeconfig-{name}"
    config.write_text(kubeconfig(standin.url, name))
    try:
        yield Cluster(config, name, program, home, standin)
    finally:
        # The namespace first: from then on Jobs get no new pods.
        with _gone_is_fine():
            apideletion.delete(standin.api, NAMESPACES, "", name, {}, Manner())
        for pod in standin.store.items(PODS, name)[0]:
            with _gone_is_fine():
                options = {"gracePeriodSeconds": 0}
                apideletion.delete(standin.api, PODS, name, pod["metadata"]["name"], options, Manner())
        _wait_until_gone(standin, name)


def _wait_until_gone(standin: Standin, namespace: str) -> None:
    """Nothing of a test may run on into the next one."""
    ends = time.monotonic() + PATIENCE
    while standin.store.find(NAMESPACES, "", namespace):
        left = [pod["metadata"]["name"] for pod in standin.store.items(PODS, namespace)[0]]
        assert time.monotonic() < ends, f"not gone within {PATIENCE} s: {namespace}, {left}, {standin.failures}"
        time.sleep(0.01)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.reason != "NotFound":
            raise


@contextmanager
def real_namespace(folder: Path, program: str, home: Path) -> Iterator[Cluster]:
    """A fresh namespace on the cluster of KUBECONFIG; deleted afterwards, without waiting for it."""
    name = f"tarkit-test-{secrets.token_hex(4)}"
    config = folder / f"kubeconfig-{name}"
    given = subprocess.run(
        [program, "config", "view", "--raw", "--minify", "-o", "json"], capture_output=True, check=True
    )
    described = json.loads(given.stdout)
    for context in described["contexts"]:
        context["context"]["namespace"] = name
    config.write_text(json.dumps(described))
    config.chmod(0o600)
    cluster = Cluster(config, name, program, home, None)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.kubectl("create", "-f", "-", input=json.dumps(namespace), check=True)
    try:
        yield cluster
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false", check=True)
