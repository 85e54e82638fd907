"""kubetpl retry: never beside pods that are at work on the same shards, also of a Job that was
deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kubecluster import Cluster, Said
from kubejobs import indexed, manifest, shards

pytestmark = pytest.mark.cluster

ENDING = [{"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy"}]


@pytest.mark.parametrize("run", [False, True])
def test_pods_of_a_job_that_is_gone_are_not_joined_by_a_retry(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path, run: bool
) -> None:
    made = manifest(kubetpl, "grey", "true", shards(tmp_path / "in", 2), tmp_path / "out")
    words = ["grey", "-f", str(tmp_path / "grey.yaml")]
    if run:
        made = kubetpl("jobs", "-n", "grey{i}", "-c", "true", "--over", "{0..2}", "-I", "host:1").out
        words = ["grey"]
    (tmp_path / "grey.yaml").write_text(made)
    cluster.apply(made)
    gone = "grey0" if run else "grey"
    pod = cluster.add_pod(gone, 0)
    cluster.delete("jobs", gone, "Orphan")
    for each in ("grey1", "grey2") if run else ():
        cluster.set_job(each, "failed")
    said = kubetpl("retry", *words)
    assert (said.code, said.out) == (2, "") and f"of a Job {gone} that was deleted still run" in said.err, said
    cluster.end_pod(pod)
    assert kubetpl("retry", *words).code == 0


def test_a_job_whose_last_pods_are_ending_is_not_retried(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("slow", 2))
    cluster.set_job("slow", active=1, conditions=ENDING)
    assert kubetpl("status", "slow").out.startswith("slow: ending")
    said = kubetpl("retry", "slow")
    assert said.code == 2 and "Job slow still runs; wait for it (kubetpl wait slow)" in said.err
