"""`cluster`: a real one where KUBECONFIG and TARKIT_TEST_CLUSTER=1 (or -m cluster) ask for it, else the stand-in."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kubecluster import Cluster, Said
    from kubestandin import Standin


def _wants_real(config: pytest.Config) -> bool:
    if not os.environ.get("KUBECONFIG"):
        return False
    return os.environ.get("TARKIT_TEST_CLUSTER") == "1" or str(config.getoption("-m")).strip() == "cluster"


@pytest.fixture(scope="session")
def kube_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HOME of kubectl, for its discovery cache."""
    return tmp_path_factory.mktemp("kube-home")


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standin]:
    """One stand-in cluster for the whole run; pods share pytest's temporary folder with the tests."""
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip("NO KUBERNETES-VALIDATE, THE STAND-IN CLUSTER HAS NO SCHEMAS: pip install kubernetes-validate")
    from kubecluster import start_standin

    started = start_standin(tmp_path_factory.mktemp("standin"), [tmp_path_factory.getbasetemp().resolve()])
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, kubectl_program: str, kube_home: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A namespace of its own for one test."""
    from kubecluster import own_namespace, real_namespace

    if _wants_real(request.config):
        with real_namespace(tmp_path, kubectl_program, kube_home) as real:
            yield real
        return
    started: Standin = request.getfixturevalue("standin")
    before = len(started.failures)
    with own_namespace(started, tmp_path, kubectl_program, kube_home) as own:
        yield own
    assert started.failures[before:] == [], "the stand-in itself broke"


@pytest.fixture
def kubetpl(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Said]:
    """``kubetpl(*words)`` in this process; the cluster is that of KUBECONFIG."""
    from kubecluster import Said
    from tarkit.cli.kubetpl import main

    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))

    def run(*words: str | Path) -> Said:
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return run
