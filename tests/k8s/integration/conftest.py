"""`cluster`: a real one where KUBECONFIG and TARKIT_TEST_CLUSTER=1 (or -m cluster) ask for it, else
the stand-in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from apiserver import ApiServer
    from kubecluster import Cluster, Said


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """One stand-in for the whole run."""
    from apiserver import ApiServer

    started = ApiServer()
    yield started
    started.stop()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A namespace of its own for one test."""
    pytest.importorskip("kubernetes", reason="NO KUBERNETES CLIENT: pip install kubernetes")
    pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")
    from kubecluster import own_namespace

    given = os.environ.get("KUBECONFIG")
    asked = os.environ.get("TARKIT_TEST_CLUSTER") == "1" or str(request.config.getoption("-m")).strip() == "cluster"
    if given and asked:
        with own_namespace(tmp_path, None, given) as real:
            yield real
        return
    server: ApiServer = request.getfixturevalue("api_server")
    before = len(server.failures)
    with own_namespace(tmp_path, server) as own:
        yield own
    assert server.failures[before:] == [], "the stand-in itself broke"


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
