"""The stand-in as other programs see it: the real kubectl, and the official client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubecluster import Cluster, Said
from kubejobs import indexed, job, manifest, run_pods, shards

pytestmark = pytest.mark.cluster

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kubectl(cluster: Cluster, kubectl_program: str, tmp_path: Path) -> Kubectl:
    env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)}

    def run(*words: str, given: Any = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [kubectl_program, *words], env=env, input=json.dumps(given), text=True, capture_output=True, check=False
        )

    return run


def test_kubectl_applies_reads_waits_and_deletes(cluster: Cluster, kubectl: Kubectl) -> None:
    made = job("greet", managedBy="tarkit.dev/test")
    assert kubectl("apply", "-f", "-", given=made).stdout == "job.batch/greet created\n"
    assert kubectl("apply", "-f", "-", given=made).stdout == "job.batch/greet unchanged\n"
    taken = kubectl("create", "-f", "-", given=made)
    assert '"STDIN": jobs.batch "greet" already exists' in taken.stderr
    pod = cluster.add_pod("greet", code=0)
    cluster.set_job("greet", "complete", "CompletionsReached", succeeded=1)
    waited = kubectl("wait", "--for=condition=complete", "job/greet", "--timeout=60s")
    assert waited.stdout == "job.batch/greet condition met\n", waited
    assert kubectl("get", "pods").stdout.split()[:8:5] == ["NAME", pod]
    assert "Completed" in kubectl("get", "pods", "-l", "job-name=greet").stdout
    assert kubectl("delete", "job", "greet").stdout.startswith('job.batch "greet" deleted')
    assert 'Error from server (NotFound): jobs.batch "greet" not found' in kubectl("get", "job", "greet").stderr
    cluster.wait_for(lambda: not cluster.items("pods"), "its pods go with it")
    unknown = kubectl("create", "-f", "-", given=job("x", backofLimit=1)).stderr
    assert "strict decoding error: " in unknown and "backofLimit" in unknown


def test_kubectl_reads_logs(cluster: Cluster, kubectl: Kubectl) -> None:
    cluster.apply(job("greet"), job("both"))
    assert cluster.standin
    cluster.add_pod("greet", code=0, log="one\ntwo\n")
    assert kubectl("logs", "job/greet", "-f").stdout == "one\ntwo\n"
    assert kubectl("logs", "-l", "app=greet", "--tail", "1").stdout == "two\n"
    waiting = cluster.add_pod("both", phase="Pending")
    assert 'container "main" in pod' in kubectl("logs", waiting).stderr


def test_kubectl_deletes_a_run_by_its_label(
    cluster: Cluster, kubectl: Kubectl, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    """As the pages and messages say: with all Jobs, retries and lists of shards."""
    (tmp_path / "list.txt").write_text(f"{shards(tmp_path / 'in', 2)}\n")
    made = manifest(kubetpl, "grey", "exit 1", f"@{tmp_path}/list.txt", tmp_path / "out", "--slices", "1")
    cluster.apply(made)
    run_pods(cluster, "grey", tmp_path)
    cluster.apply(kubetpl("retry", "grey").out, job("other"))
    assert len(cluster.items("jobs")) == 3
    lists = len(cluster.items("configmaps"))
    kinds = "job,configmap,service,networkpolicy"
    done = kubectl("delete", kinds, "-l", "tarkit.dev/run=grey", "--cascade=foreground")
    assert lists and done.stdout.count(" deleted") == 2 + lists, done
    assert [each["metadata"]["name"] for each in cluster.items("jobs")] == ["other"]
    assert not cluster.items("configmaps") and not cluster.items("pods")


def test_what_may_not_be_changed(cluster: Cluster) -> None:
    cluster.apply(indexed("fixed", 4))
    with pytest.raises(AssertionError, match=r"422.*field is immutable"):
        cluster.ask("PATCH", "jobs", "fixed", {"spec": {"completions": 5}})
    cluster.ask("PATCH", "jobs", "fixed", {"spec": {"completions": 5, "parallelism": 5}})
    with pytest.raises(AssertionError, match=r"409.*Precondition failed: UID"):
        cluster.delete("jobs", "fixed", preconditions={"uid": "other"})
    with pytest.raises(AssertionError, match=r"400.*field label not supported: status.active"):
        cluster.ask("GET", "jobs", fieldSelector="status.active=1")


def test_the_client_watches_from_a_version_on(cluster: Cluster) -> None:
    from kubernetes import client, watch

    cluster.apply(job("a"))
    version = client.BatchV1Api(cluster.client).list_namespaced_job(cluster.namespace).metadata.resource_version
    cluster.set_job("a", active=1)
    cluster.apply(job("b"))
    cluster.delete("jobs", "a")
    stream = watch.Watch().stream(
        client.BatchV1Api(cluster.client).list_namespaced_job, cluster.namespace, resource_version=version,
        timeout_seconds=1,
    )  # fmt: skip
    seen = [(event["type"], event["object"].metadata.name) for event in stream]
    assert seen == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


def test_a_version_that_is_too_old(cluster: Cluster) -> None:
    cluster.apply(job("a"), job("b"))
    first = cluster.ask("GET", "jobs", limit="1")["metadata"]
    cluster.apply(job("c"))
    cluster.standin.objects.compact()
    with pytest.raises(AssertionError, match=r"410.*too old to display a consistent list"):
        cluster.ask("GET", "jobs", **{"limit": "1", "continue": first["continue"]})
