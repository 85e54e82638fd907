"""The Jobs of kubetpl train under the one name of their run: status, wait, logs, scale, cancel and retry."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubecluster import Cluster, Said

pytestmark = pytest.mark.cluster

NOW = "tarkit serve: d: epoch 2 of 4, 33 of 80 shards done, 1 dead, 2 workers"
END = ["dead a.tar 0-10 of epoch 1: failed (3 errors, 0 lost workers)", "d: shards: done 79, dead 1; records done 790"]


def begun(cluster: Cluster, kubetpl: Callable[..., Said], go: Path, service_code: int, worker: str = "") -> None:
    """The job that kubetpl train prints, with scripts in the place of what needs names of pods and claims."""
    said = kubetpl("train", "--job_name", "iris", "--image_name", "host:1", "--job_command", "x")
    assert said.code == 0, said.err
    until = f"until [ -e {go} ]; do sleep 0.05; done"
    end = f"echo its data is gone >&2; exit {service_code}"
    scripts = {
        "shards": f"echo '{NOW}' >&2; {until}; printf '%s\\n' '{END[0]}' '{END[1]}'; {end}",
        "worker": f"echo worker $WORKER_ID; {worker or until}",
    }
    made: list[dict[str, Any]] = []
    for document in yaml.safe_load_all(said.out):
        if document["kind"] == "Job":
            pod = document["spec"]["template"]["spec"]
            pod["containers"][0]["command"] = ["sh", "-c", scripts[document["metadata"]["labels"]["role"]]]
            pod["containers"][0]["resources"] = {}
            pod["terminationGracePeriodSeconds"] = 1
            pod["containers"][0].pop("readinessProbe", None)
            for volume in pod.get("volumes", ()):
                volume["emptyDir"] = {}
                volume.pop("persistentVolumeClaim", None)
        if document["kind"] in ("Job", "Service"):
            made.append(document)
    cluster.apply(*made)


def test_a_training_job_is_scaled_and_ends_with_dead_shards(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    begun(cluster, kubetpl, go, 3)
    cluster.wait_for(lambda: "served: d: epoch 2 of 4" in kubetpl("status", "iris").out, "the service's line")
    cluster.wait_for(lambda: "iris-worker: running, 0 of 2 done, 2 running" in kubetpl("status", "iris").out, "workers")
    told = kubetpl("status", "iris")
    assert (told.code, told.out.count("33 of 80 shards done, 1 dead, 2 workers")) == (0, 1)
    assert "33 of 80" in json.dumps(json.loads(kubetpl("status", "iris", "--json").out))
    refused = kubetpl("logs", "iris")
    assert refused.code == 2 and "name one: iris-shards, iris-worker" in refused.err
    said = ["[0] worker 0", "[1] worker 1"]
    cluster.wait_for(lambda: kubetpl("logs", "iris-worker").out.splitlines() == said, "what both have printed")

    assert kubetpl("scale", "iris-worker", "-j", "4").out == "iris-worker: parallelism 2 → 4\n"
    spec = cluster.json("job", "iris-worker")["spec"]
    assert (spec["completions"], spec["parallelism"]) == (4, 4)
    cluster.wait_for(lambda: "of 4 done, 4 running" in kubetpl("status", "iris").out, "four workers")
    assert kubetpl("scale", "iris", "-j", "1").out == "iris-worker: parallelism 4 → 1\n"
    spec = cluster.json("job", "iris-worker")["spec"]
    assert (spec["completions"], spec["parallelism"]) == (1, 1)
    running = kubetpl("retry", "iris-worker")
    assert running.code == 2 and "kubetpl cancel iris --delete" in running.err

    go.touch()
    waited = kubetpl("wait", "iris", "--timeout", "120")
    assert waited.code == 3, waited.out + waited.err
    assert "iris-shards: failed after " in waited.out and "exit code 3" in waited.out
    ended = kubetpl("scale", "iris", "-j", "2")
    assert ended.code == 2 and ended.err.endswith("nothing of it runs any more\n")
    told = kubetpl("status", "iris")
    assert told.code == 3
    assert f"  served: {END[0]}\n  served: {END[1]}\n" in told.out
    again = kubetpl("retry", "iris")
    assert again.code == 2 and "it goes on from its state" in again.err


def test_a_training_job_is_suspended_goes_on_and_is_deleted_with_its_services(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    begun(cluster, kubetpl, go, 0)
    assert "iris: 2 Jobs are suspended" in kubetpl("cancel", "iris").out
    assert "2 suspended" in kubetpl("status", "iris").out
    assert kubetpl("cancel", "iris", "--undo").out == "iris: 2 Jobs go on\n"
    go.touch()
    assert kubetpl("wait", "iris", "--timeout", "120").code == 0
    deleted = kubetpl("cancel", "iris", "--delete")
    assert deleted.code == 0
    assert "Service iris-shards is deleted\n" in deleted.out
    assert "its state stays" in deleted.out and "kubectl delete pvc -l " in deleted.out
    assert not [each for each in cluster.peek("services") if each["metadata"]["name"].startswith("iris")]
    assert kubetpl("status", "iris").code == 66


def test_trainers_that_end_early_leave_the_service_alone(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a number of steps: nothing in the cluster ends the service, which has records left."""
    monkeypatch.setattr("tarkit.cli.kube.verbs.wait._ALONE", 1.0)
    begun(cluster, kubetpl, tmp_path / "go", 0, worker="true")
    waited = kubetpl("wait", "iris", "--timeout", "120")
    assert waited.code == 1 and waited.out.endswith("2 Jobs: 1 complete, 1 running\n"), waited
    assert "its shard service has not: nothing takes the rest of the data" in waited.err
    assert "kubetpl cancel iris --delete ends them" in waited.err


def test_a_service_that_fails_is_a_failed_job(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    """At once: its workers would wait for it for long, and nothing in the cluster ends them."""
    go, end = tmp_path / "go", tmp_path / "end"
    begun(cluster, kubetpl, go, 2, f"until [ -e {end} ]; do sleep 0.05; done")
    cluster.wait_for(lambda: "2 running" in kubetpl("status", "iris").out, "two workers")
    go.touch()
    waited = kubetpl("wait", "iris", "--timeout", "120")
    assert waited.code == 1 and waited.out.endswith("2 Jobs: 1 failed, 1 running\n"), waited
    assert "kubetpl cancel iris --delete ends them, and keeps the state" in waited.err
    told = kubetpl("status", "iris").out
    assert 'exit 2 ×1 "its data is gone": see kubetpl logs iris-shards --failed; kubetpl cancel iris --delete' in told
    assert kubetpl("cancel", "iris", "--delete").code == 0
    assert not cluster.peek("pods")
