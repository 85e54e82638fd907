"""status, wait and retry of the Jobs of a verb with stages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kubecluster import Cluster, Said
from kubejobs import indexed, run_pods, shards

from tarkit.k8s.yamltext import load_documents

pytestmark = pytest.mark.cluster

Kubetpl = Callable[..., Said]


@pytest.fixture
def manifest(kubetpl: Kubetpl, tmp_path: Path) -> Path:
    """Two Jobs, of three and two pods, which do not wait."""
    spec = shards(tmp_path / "in", 3)
    words = ("-n", "x", "-I", "host:1", "-O", tmp_path / "out", "--work", tmp_path / "work", "--wait", "0")
    said = kubetpl("shuffle", spec, *words, "--shards", "2", "-j", "1", "--retries", "0")
    assert said.code == 0, said.err
    path = tmp_path / "x.yaml"
    path.write_text(said.out)
    return path


def numbers(said: Said) -> dict[str, tuple[str, int | None]]:
    """The state of each Job, and the number of its done outputs."""
    jobs = json.loads(said.out)["jobs"]
    return {each["name"]: (each["job"]["state"], (each["shards"] or {}).get("done")) for each in jobs}


def test_both_stages_are_one_run(cluster: Cluster, kubetpl: Kubetpl, manifest: Path, tmp_path: Path) -> None:
    cluster.apply(manifest.read_text())
    said = kubetpl("status", "x", "--json")
    assert (said.code, numbers(said)) == (0, {"x-gather": ("waiting", None), "x-scatter": ("waiting", None)})
    assert run_pods(cluster, "x-scatter", tmp_path) == {0: 0, 1: 0, 2: 0}
    said = kubetpl("status", "x", "--json")
    assert (said.code, numbers(said)) == (0, {"x-gather": ("waiting", None), "x-scatter": ("complete", 3)})
    assert kubetpl("wait", "x", "--timeout", "1").code == 75
    assert kubetpl("wait", "x-scatter", "--timeout", "9").code == 0
    assert run_pods(cluster, "x-gather", tmp_path) == {0: 0, 1: 0}
    said = kubetpl("status", "x", "--json")
    # The run files are gone.
    assert (said.code, numbers(said)) == (0, {"x-gather": ("complete", 2), "x-scatter": ("complete", None)})
    said = kubetpl("wait", "x", "--timeout", "9")
    assert said.code == 0 and "2 Jobs: 2 complete" in said.out
    # After the Jobs are gone, the outputs are those of the last stage.
    cluster.delete("jobs", "x-scatter")
    cluster.delete("jobs", "x-gather")
    said = kubetpl("status", "x", "-f", manifest)
    assert said.code == 0 and "shards: 2 done, 0 missing, 0 failed" in said.out, said


def test_a_gather_that_was_too_early(cluster: Cluster, kubetpl: Kubetpl, manifest: Path, tmp_path: Path) -> None:
    cluster.apply(manifest.read_text())
    assert run_pods(cluster, "x-gather", tmp_path) == {0: 75, 1: 75}
    said = kubetpl("status", "x-gather")
    assert said.code == 1
    assert "exit 75" in said.out and "slice 0 of the scatter has not made the plan yet" in said.out
    assert "the stage before was not complete in time (--wait): kubetpl retry" in said.out
    # It is tried again under a new name, which counts instead.
    assert run_pods(cluster, "x-scatter", tmp_path) == {0: 0, 1: 0, 2: 0}
    said = kubetpl("retry", "x")
    assert said.code == 0 and "x-gather: all slices are in the retry; those that are done end at once" in said.err
    cluster.apply(said.out)
    assert run_pods(cluster, "x-gather-r2", tmp_path) == {0: 0, 1: 0}
    said = kubetpl("status", "x", "--json")
    assert (said.code, set(numbers(said))) == (0, {"x-gather-r2", "x-scatter"})


def test_a_scatter_that_failed(cluster: Cluster, kubetpl: Kubetpl, manifest: Path, tmp_path: Path) -> None:
    """Gather waits for it in vain, so wait does not; the retry is that of scatter alone."""
    cluster.apply(manifest.read_text())
    cluster.end_indexes("x-scatter", {0: 0, 1: 75, 2: 75})
    cluster.set_job("x-gather", active=1)
    said = kubetpl("wait", "x", "--timeout", "20")
    assert said.code == 1
    assert "the stages after x-scatter wait for it: kubetpl retry x | kubectl apply -f -" in said.err
    for word in ("--failed", "--slices=2"):
        said = kubetpl("retry", "x", word)
        assert said.code == 2 and "so only a retry as a whole can be had" in said.err
    said = kubetpl("retry", "x", "-M", "9Gi")
    assert said.code == 0, said.err
    (made,) = load_documents(said.out, "retry")
    assert made["metadata"]["name"] == "x-scatter-r2"
    before = cluster.get("jobs", "x-scatter")["spec"]["template"]["spec"]["containers"][0]
    after = made["spec"]["template"]["spec"]["containers"][0]
    assert (after["args"], after["resources"]["limits"]["memory"]) == (before["args"], "9Gi")
    cluster.apply(said.out)
    assert run_pods(cluster, "x-scatter-r2", tmp_path) == {0: 0, 1: 0, 2: 0}
    assert run_pods(cluster, "x-gather", tmp_path) == {0: 0, 1: 0}
    assert kubetpl("wait", "x", "--timeout", "9").code == 0


def test_jobs_of_a_jobset(cluster: Cluster, kubetpl: Kubetpl) -> None:
    """The second is made when the first is complete; a retry is one of the JobSet."""
    job = indexed("x-scatter-0", 2)
    job["metadata"] |= {
        "labels": {"tarkit.dev/run": "x", "jobset.sigs.k8s.io/jobset-name": "x"},
        "annotations": {"tarkit.dev/stage": "scatter", "tarkit.dev/next-stage": "gather"},
    }
    cluster.apply(job)
    cluster.set_job("x-scatter-0", active=1)
    for word, value in (("--undo", "false"), ("-v", "true")):
        said = kubetpl("cancel", "x", word)
        assert (
            said.code == 2
            and f"""kubectl patch jobset x --type merge -p '{{"spec":{{"suspend":{value}}}}}'""" in said.err
        )
    cluster.end_indexes("x-scatter-0", {0: 0, 1: 0})
    assert kubetpl("wait", "x", "--timeout", "1").code == 75
    cluster.end_indexes("x-scatter-0", {0: 0, 1: 65})
    said = kubetpl("wait", "x", "--timeout", "9")
    assert said.code == 1
    said = kubetpl("retry", "x")
    assert said.code == 2 and "is of a JobSet: kubectl delete jobset x --cascade=foreground, then apply" in said.err
