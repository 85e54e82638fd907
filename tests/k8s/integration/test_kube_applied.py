"""What kubetpl prints, applied a second time: by kubectl, on a server that drops, adds and rewrites
fields.
"""

from __future__ import annotations

import subprocess

import pytest
from kubecluster import Cluster
from kubetplexamples import GENERATORS
from kubetplrun import kubetpl

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("words", GENERATORS, ids=lambda words: " ".join(words[:8]))
def test_a_manifest_that_is_applied_again_is_unchanged(
    cluster: Cluster, kubectl_program: str, words: list[str]
) -> None:
    """By the same kind of apply, and by the other."""
    if cluster.server is not None:
        pytest.skip("THE STAND-IN KEEPS WHAT IT IS GIVEN: set KUBECONFIG, and run pytest -m cluster")
    text = kubetpl(*words).out.replace("  namespace: default\n", "").encode()

    def apply(*options: str) -> list[str]:
        command = [kubectl_program, "--kubeconfig", str(cluster.kubeconfig), "apply", "-f", "-", *options]
        done = subprocess.run(command, input=text, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().splitlines()

    assert all(line.endswith(" created") for line in apply())
    assert [line for line in apply() if not line.endswith(" unchanged")] == []
    apply("--server-side")  # an error if both claim a field with another value
    assert [line for line in apply() if not line.endswith(" unchanged")] == []
