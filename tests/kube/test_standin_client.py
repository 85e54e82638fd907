"""The official Python client against a cluster: pages, watches, patches, refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubecluster import PATIENCE, Cluster
from kubejobs import indexed, job

kubernetes = pytest.importorskip("kubernetes", reason="NO KUBERNETES CLIENT: pip install kubernetes")
pytestmark = pytest.mark.cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Any]:
    from kubernetes import config

    with config.new_client_from_config(config_file=str(cluster.kubeconfig)) as loaded:  # type: ignore[no-untyped-call]
        yield loaded


def batch(client: Any) -> Any:
    return kubernetes.client.BatchV1Api(client)


def core(client: Any) -> Any:
    return kubernetes.client.CoreV1Api(client)


def test_create_list_patch_and_delete(cluster: Cluster, client: Any) -> None:
    space = cluster.namespace
    made = batch(client).create_namespaced_job(space, job("py", "sleep 600", pod={"terminationGracePeriodSeconds": 0}))
    assert made.metadata.uid and made.spec.backoff_limit == 6
    assert [one.metadata.name for one in batch(client).list_namespaced_job(space).items] == ["py"]
    changed = batch(client).patch_namespaced_job("py", space, {"spec": {"suspend": True}})
    assert changed.spec.suspend is True
    stale = made.to_dict()
    with pytest.raises(kubernetes.client.ApiException) as conflict:
        body = client.sanitize_for_serialization(made)
        body["spec"]["parallelism"] = 2
        batch(client).replace_namespaced_job("py", space, body)
    assert stale["metadata"]["resource_version"] != changed.metadata.resource_version
    answer = json.loads(conflict.value.body)
    assert (conflict.value.status, answer["reason"]) == (409, "Conflict")
    assert answer["message"].startswith(
        'Operation cannot be fulfilled on jobs.batch "py": the object has been modified'
    )
    batch(client).delete_namespaced_job("py", space, propagation_policy="Foreground")
    cluster.wait_for(lambda: not batch(client).list_namespaced_job(space).items, "the Job to go")
    with pytest.raises(kubernetes.client.ApiException) as absent:
        batch(client).read_namespaced_job("py", space)
    answer = json.loads(absent.value.body)
    assert (absent.value.status, answer["reason"], answer["details"]["name"]) == (404, "NotFound", "py")


def test_a_job_deleted_without_a_policy_leaves_its_pods(cluster: Cluster, client: Any) -> None:
    cluster.apply(job("orphans", "true"))
    cluster.kubectl("wait", "--for=condition=complete", "job/orphans", "--timeout=120s", check=True)
    batch(client).delete_namespaced_job("orphans", cluster.namespace)
    left = cluster.wait_for(lambda: core(client).list_namespaced_pod(cluster.namespace).items, "a pod")
    assert [one.metadata.owner_references for one in left] == [None]


def test_lists_come_in_pages(cluster: Cluster, client: Any) -> None:
    for number in range(7):
        labels = {"parity": "even" if number % 2 == 0 else "odd"}
        body = {"metadata": {"name": f"c{number}", "labels": labels}, "data": {"n": str(number)}}
        core(client).create_namespaced_config_map(cluster.namespace, body)
    wanted = {"label_selector": "parity in (even,odd),parity", "limit": 3}
    names, token = [], None
    pages = 0
    while True:
        page = core(client).list_namespaced_config_map(cluster.namespace, **wanted, _continue=token)
        names += [one.metadata.name for one in page.items]
        pages, token = pages + 1, page.metadata._continue
        if not token:
            break
    assert (names, pages) == ([f"c{number}" for number in range(7)], 3)
    odd = core(client).list_namespaced_config_map(cluster.namespace, label_selector="parity!=even,parity")
    assert [one.metadata.name for one in odd.items] == ["c1", "c3", "c5"]
    one = core(client).list_namespaced_config_map(cluster.namespace, field_selector="metadata.name=c4")
    assert [thing.metadata.name for thing in one.items] == ["c4"]
    core(client).delete_collection_namespaced_config_map(cluster.namespace, label_selector="parity=odd")
    rest = core(client).list_namespaced_config_map(cluster.namespace, label_selector="parity")
    assert [thing.metadata.name for thing in rest.items] == ["c0", "c2", "c4", "c6"]


def test_a_watch_tells_a_job_from_beginning_to_end(cluster: Cluster, client: Any) -> None:
    space = cluster.namespace
    version = batch(client).list_namespaced_job(space).metadata.resource_version
    applying = threading.Timer(0.2, lambda: cluster.apply(indexed("seen", "true", 2)))
    applying.start()
    watch, kinds, last = kubernetes.watch.Watch(), [], None
    listing = batch(client).list_namespaced_job
    for event in watch.stream(listing, space, resource_version=version, timeout_seconds=PATIENCE):
        kinds.append(event["type"])
        last = event["object"]
        if any(one.type == "Complete" for one in last.status.conditions or []):
            watch.stop()
    applying.join()
    assert kinds[0] == "ADDED" and set(kinds[1:]) == {"MODIFIED"}
    assert last is not None and last.status.completed_indexes == "0,1"


def test_a_watch_with_a_selector_tells_what_leaves_it(cluster: Cluster, client: Any) -> None:
    body = {"metadata": {"name": "c", "labels": {"in": "yes"}}}
    core(client).create_namespaced_config_map(cluster.namespace, body)
    version = core(client).list_namespaced_config_map(cluster.namespace).metadata.resource_version
    core(client).patch_namespaced_config_map("c", cluster.namespace, {"metadata": {"labels": {"in": "no"}}})
    watch = kubernetes.watch.Watch()
    found = []
    listing = core(client).list_namespaced_config_map
    for event in watch.stream(
        listing, cluster.namespace, label_selector="in=yes", resource_version=version, timeout_seconds=PATIENCE
    ):
        found.append((event["type"], event["object"].metadata.name))
        watch.stop()
    assert found == [("DELETED", "c")]


def test_a_watch_from_a_forgotten_version_is_gone(cluster: Cluster, client: Any) -> None:
    if cluster.standin is None:
        pytest.skip("A REAL CLUSTER FORGETS ITS VERSIONS WHEN IT LIKES")
    version = batch(client).list_namespaced_job(cluster.namespace).metadata.resource_version
    cluster.apply(job("later", "true", suspend=True))
    cluster.standin.store.compact()
    watch = kubernetes.watch.Watch()
    with pytest.raises(kubernetes.client.ApiException) as gone:
        listing = batch(client).list_namespaced_job
        for _ in watch.stream(listing, cluster.namespace, resource_version=version, timeout_seconds=60):
            watch.stop()
    assert gone.value.status == 410


def test_fields_that_can_not_be_selected_are_refused(cluster: Cluster, client: Any) -> None:
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core(client).list_namespaced_pod(cluster.namespace, field_selector="spec.colour=red")
    assert refused.value.status == 400
    assert "field label not supported: spec.colour" in json.loads(refused.value.body)["message"]
