"""kubetpl status, wait, logs, retry, scale and cancel of Jobs whose work tarproc really does."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from apiserver import kubeconfig
from cutproxy import CutProxy
from kubecluster import Cluster, Said
from kubejobs import indexed, job, manifest, run_pods, shards

pytestmark = pytest.mark.cluster

UPPER = "tr a-z A-Z < sample.txt > t; mv t sample.txt"


def test_a_run_from_start_to_end(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    spec = shards(tmp_path / "in", 4)
    cluster.apply(manifest(kubetpl, "grey", f"echo seen; {UPPER}", spec, tmp_path / "out", "--slices", "2"))
    assert run_pods(cluster, "grey", tmp_path) == {0: 0, 1: 0}
    waited = kubetpl("wait", "grey", "--timeout", "180", "--progress")
    assert waited.code == 0 and waited.out.startswith("grey: complete after ")
    assert "kubetpl wait: grey: complete, 2 of 2 done, 0 running, 0 failed, 0 left\n" in waited.err
    told = kubetpl("status", "grey")
    assert (told.code, told.out.splitlines()[1:]) == (
        0,
        [
            "indexes: 2 of 2 done, 0 running, 0 failed, 0 left",
            f"shards: 4 of 4 done, 0 missing, 0 failed; records in {tmp_path / 'out'}",
            "samples: in 8 = out 8 + filtered 0 + failed 0",
        ],
    )
    document = json.loads(kubetpl("status", "grey", "--json").out)
    assert (document["exit_code"], document["job"]["done"], document["shards"]["done"]) == (0, 2, 4)
    nothing = kubetpl("retry", "grey")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "kubetpl retry: nothing to retry: 4 of 4 shards done, none left\n"
    ended = kubetpl("scale", "grey", "-j", "1")
    assert ended.code == 2 and "has ended (complete)" in ended.err
    assert "has ended already (complete)" in kubetpl("cancel", "grey").out

    shards(tmp_path / "in", 1, samples=3)
    changed = kubetpl("status", "grey", "--check-inputs")
    assert changed.code == 1 and "stale shard in-0.tar: the input changed" in changed.out
    assert "1 shard to retry" in kubetpl("retry", "grey", "--check-inputs").err


def test_a_shard_that_fails_is_found_named_and_retried(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 4)
    good = (tmp_path / "in/in-2.tar").read_bytes()
    (tmp_path / "in/in-2.tar").write_bytes(good[:600])
    cluster.apply(manifest(kubetpl, "grey", UPPER, spec, tmp_path / "out", "--slices", "2"))
    assert run_pods(cluster, "grey", tmp_path) == {0: 0, 1: 65}
    assert kubetpl("wait", "grey", "--timeout", "180").code == 1
    told = kubetpl("status", "grey")
    assert told.code == 1 and "indexes: 1 of 2 done, 0 running, 1 failed, 0 left" in told.out
    assert "shards: 3 of 4 done, 0 missing, 1 failed;" in told.out and "failed shard in-2.tar: " in told.out
    (failure,) = [line for line in told.out.splitlines() if line.startswith("failures:")]
    assert failure.startswith("failures: exit 65 ×1 ")
    assert " on index 1: input data is corrupt" in failure

    (tmp_path / "in/in-2.tar").write_bytes(good)
    again = kubetpl("retry", "grey", "--memory", "512Mi", "-j", "8")
    cluster.apply(again.out)
    assert again.code == 0 and again.err == "kubetpl retry: 3 of 4 shards done; 1 shard to retry\n"
    retried = cluster.get("jobs", "grey-r2")
    assert retried["spec"]["completions"] == retried["spec"]["parallelism"] == 1
    assert retried["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "512Mi"
    assert retried["metadata"]["annotations"]["tarkit.dev/retry-of"] == "grey"
    assert run_pods(cluster, "grey-r2", tmp_path) == {0: 0}
    assert sorted(each.name for each in (tmp_path / "out").glob("in-?.tar")) == [f"in-{n}.tar" for n in range(4)]

    told = kubetpl("status", "grey")
    assert told.code == 0, "the records say that all is done, whoever did it"
    assert "but every shard has its done record: exit code 0\n" in told.out
    (failure,) = [line for line in told.out.splitlines() if line.startswith("failures:")]
    assert failure.endswith(" on index 1: done since"), "no advice on what is done"
    first = kubetpl("wait", "grey")
    assert first.code == 0 and first.out.startswith("grey: failed after ")
    assert "but every shard has its done record: exit code 0" in first.out and "shards: 4 of 4 done" in first.out
    assert "nothing to retry" in kubetpl("retry", "grey").err


def test_a_retry_of_a_retry_reads_its_list_from_the_cluster(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 3)
    cluster.apply(manifest(kubetpl, "grey", "exit 1", spec, tmp_path / "out", "--slices", "3"))
    assert set(run_pods(cluster, "grey", tmp_path).values()) == {1}
    cluster.apply(kubetpl("retry", "grey", "--slices", "2", "-n", "second").out)
    assert cluster.get("jobs", "second")["spec"]["completions"] == 2
    assert set(run_pods(cluster, "second", tmp_path).values()) == {1}
    third = kubetpl("retry", "second")
    assert "name: second-r2\n" in third.out and "3 shards to retry" in third.err


def test_a_retry_whose_list_is_in_a_bucket(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    spec = shards(tmp_path / "in", 5)
    cluster.apply(manifest(kubetpl, "grey", "exit 1", spec, tmp_path / "out", "--slices", "1"))
    run_pods(cluster, "grey", tmp_path)
    (tmp_path / "lists").touch()
    words = ("retry", "grey", "--slices", "2", "--list-url", f"{tmp_path}/lists/")
    refused = kubetpl(*words)
    assert refused.code == 1 and "not a directory" in refused.err and not refused.out
    (tmp_path / "lists").unlink()
    retry = kubetpl(*words)
    assert retry.code == 0, retry.err
    # The command of the retry is repaired by hand, as with any manifest.
    cluster.apply(retry.out.replace("- exit 1\n", "- 'true'\n"))
    assert run_pods(cluster, "grey-r2", tmp_path) == {0: 0, 1: 0}
    told = kubetpl("status", "grey-r2")
    assert told.code == 0 and "shards: 5 of 5 done" in told.out


def test_pods_gone_then_the_job_then_the_answer_is_in_the_records(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 2)
    (tmp_path / "in/in-1.tar").write_bytes(b"x" * 1000)
    text = manifest(kubetpl, "grey", UPPER, spec, tmp_path / "out", "--slices", "2")
    (tmp_path / "grey.yaml").write_text(text)
    cluster.apply(text)
    run_pods(cluster, "grey", tmp_path)
    for each in cluster.items("pods"):
        cluster.end_pod(each["metadata"]["name"])
    told = kubetpl("status", "grey")
    assert "failures: gone ×1" in told.out and "failed shard in-1.tar" in told.out
    logs = kubetpl("logs", "grey", "--index", "1")
    assert logs.code == 0 and "no pods of index 1, and no logs: they have ended, and were deleted" in logs.err
    assert logs.out.startswith("[1] in-1.tar: failed: ")

    cluster.delete("jobs", "grey")
    assert kubetpl("status", "grey").code == kubetpl("wait", "grey").code == 66
    for words in (("-f", tmp_path / "grey.yaml"), ("-O", tmp_path / "out", "--shards", spec)):
        gone = kubetpl("status", "grey", *words)
        assert gone.code == 1 and gone.out.startswith("note: no job grey in namespace")
        assert "shards: 1 of 2 done, 0 missing, 1 failed" in gone.out
    retry = kubetpl("retry", "grey", "-f", tmp_path / "grey.yaml")
    assert retry.code == 0 and "name: grey-r2\n" in retry.out


def test_a_retry_does_not_stand_for_a_job_that_is_gone(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 3)
    good = (tmp_path / "in/in-1.tar").read_bytes()
    (tmp_path / "in/in-1.tar").write_bytes(good[:600])
    text = manifest(kubetpl, "grey", UPPER, spec, tmp_path / "out", "--slices", "3")
    (tmp_path / "grey.yaml").write_text(text)
    cluster.apply(text)
    run_pods(cluster, "grey", tmp_path)
    (tmp_path / "in/in-1.tar").write_bytes(good)
    cluster.apply(kubetpl("retry", "grey").out)
    run_pods(cluster, "grey-r2", tmp_path)
    cluster.delete("jobs", "grey")
    (tmp_path / "out/in-2.tar").unlink()

    alone = kubetpl("status", "grey")
    assert "note: Job grey is gone, and this is of its retries alone; -f MANIFEST shows all its shards" in alone.out
    for words in (("-f", tmp_path / "grey.yaml"), ("-O", tmp_path / "out", "--shards", spec)):
        told = kubetpl("status", "grey", *words)
        assert told.code == 1 and "no job grey in namespace" in told.out and "its retries: grey-r2" in told.out
        assert "shards: 2 of 3 done" in told.out and "stale shard in-2.tar" in told.out
    refused = kubetpl("retry", "grey")
    assert refused.code == 66 and "no job grey" in refused.err and "-f MANIFEST" in refused.err
    assert "1 shard to retry" in kubetpl("retry", "grey", "-f", tmp_path / "grey.yaml").err


def test_memory_that_does_not_suffice(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("eater", 2, container={"resources": {"limits": {"memory": "64Mi"}}}))
    for index in range(2):
        cluster.add_pod("eater", index, code=137, reason="OOMKilled")
    cluster.end_indexes("eater", {0: 137, 1: 137})
    assert kubetpl("wait", "eater").code == 1
    assert "failures: OOMKilled ×2 on indexes 0,1: retry --memory 128Mi" in kubetpl("status", "eater").out
    whole = kubetpl("retry", "eater", "--memory", "128Mi")
    assert whole.code == 0 and "does not run tarproc" in whole.err
    assert "name: eater-r2\n" in whole.out and "memory: 128Mi" in whole.out
    assert kubetpl("retry", "eater", "--failed").code == 2


def test_an_index_that_went_well_in_the_end_has_not_failed(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("grey", 1))
    cluster.add_pod("grey", 0, code=1)
    cluster.add_pod("grey", 0, code=0)
    cluster.end_indexes("grey", {0: 0})
    assert kubetpl("wait", "grey").code == 0 and kubetpl("logs", "grey", "--failed").code == 66
    (failure,) = [line for line in kubetpl("status", "grey").out.splitlines() if line.startswith("failures:")]
    assert failure == "failures: exit 1 ×1 on index 0: went well when it was tried again"


def test_set_aside_samples(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    spec = shards(tmp_path / "in", 2)
    cluster.apply(manifest(kubetpl, "grey", "! grep -q 1-0 __key__", spec, tmp_path / "out", "--slices", "1"))
    assert run_pods(cluster, "grey", tmp_path) == {0: 3}
    assert kubetpl("wait", "grey").code == 3
    told = kubetpl("status", "grey")
    assert told.code == 3 and "set aside: 1 sample of 1 shard" in told.out and "failures: exit 3 ×1" in told.out
    assert "1 sample set aside: tarproc --retry-failed" in kubetpl("retry", "grey").err


def test_scale_and_cancel(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("slow", 5, parallelism=1))
    cluster.add_pod("slow", 0)
    cluster.set_job("slow", active=1, ready=1)
    running = kubetpl("status", "slow")
    assert running.code == 0 and running.out.startswith("slow: running for ")
    refused = kubetpl("retry", "slow")
    assert refused.code == 2 and "still runs; wait for it (kubetpl wait slow)" in refused.err
    assert kubetpl("scale", "slow", "-j", "3").out == "slow: parallelism 1 → 3\n"
    late = kubetpl("wait", "slow", "--timeout", "0")
    assert late.code == 75 and "the time is up after 0 s: slow: running, 0 of 5 done" in late.err
    assert "kubetpl scale slow -j 3 resumes it" in kubetpl("scale", "slow", "-j", "0").out
    assert "not running: parallelism is 0 → kubetpl scale -j P" in kubetpl("status", "slow").out
    kubetpl("scale", "slow", "-j", "2")
    cancelled = kubetpl("cancel", "slow")
    assert cancelled.code == 0 and cancelled.out.startswith("slow: 1 Job is suspended; 1 pod is stopped")
    told = kubetpl("status", "slow")
    assert told.out.startswith("slow: suspended") and "not running: the Job is suspended" in told.out
    assert "slow: 1 Job goes on" in kubetpl("cancel", "slow", "--undo").out
    assert not cluster.get("jobs", "slow")["spec"]["suspend"]


def test_wait_of_a_job_without_indexes(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """How it will end is known before its counts are: what is shown are the counts of its end."""
    cluster.apply(job("one"))
    first = [{"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached"}]
    cluster.set_job("one", active=1, ready=1, conditions=first)
    late = kubetpl("wait", "one", "--timeout", "0")
    assert late.code == 75 and "one: ending, 0 of 1 done" in late.err
    cluster.set_job("one", "complete", "CompletionsReached", succeeded=1)
    said = kubetpl("wait", "one")
    assert said.code == 0
    pattern = r"one: complete after \d+ s \(CompletionsReached\)\nindexes: 1 of 1 done, 0 running, 0 failed, 0 left\n"
    assert re.fullmatch(pattern, said.out), said.out


@pytest.mark.parametrize("name", ["ev/status", "ev?dryRun=All", "..", "ev/../ev", "ev%2fstatus", "a,b", "", " ev"])
def test_a_name_is_no_path(cluster: Cluster, kubetpl: Callable[..., Said], name: str) -> None:
    """Whatever stands in place of a name, no Job is deleted, and no other path of the API is
    asked."""
    cluster.apply(job("ev"))
    before = len(cluster.asked()) if cluster.server is not None else 0
    verbs = (["status"], ["wait"], ["logs"], ["retry"], ["scale", "-j", "1"], ["cancel"])
    for verb, *options in verbs:
        said = kubetpl(verb, name, *options)
        assert (said.code, said.out) == (2, ""), said
        assert "NAME: the name of a Job or run " in said.err and said.err.count("\n") == 1
    assert cluster.server is None or not cluster.asked()[before:]
    assert "deletionTimestamp" not in cluster.get("jobs", "ev")["metadata"]


def test_a_namespace_that_does_not_exist(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    for words in (["status", "grey"], ["wait", "grey"], ["cancel", "grey"]):
        said = kubetpl(*words, "-N", f"{cluster.namespace}-not")
        assert said.code == 66 and "no such namespace" in said.err, said
        assert "no such namespace" not in kubetpl(*words).err


def test_wait_through_a_deletion(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(job("slow"))
    before = len(cluster.asked("watch")) if cluster.server is not None else 0

    def delete() -> None:
        if cluster.server is not None:
            cluster.wait_for(lambda: len(cluster.asked("watch")) > before, "a watch")
        cluster.delete("jobs", "slow")

    deleting = threading.Thread(target=delete)
    deleting.start()
    said = kubetpl("wait", "slow", "--timeout", "180")
    deleting.join()
    assert said.code == 66 and ("was deleted meanwhile" in said.err or "no job slow" in said.err)


def test_why_nothing_runs(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    """From a pod, and from an event; what is said of each is in ``test_why_nothing_runs_doc``."""
    cluster.apply(job("stuck"), job("refused"))
    message = "0/1 nodes are available: 1 Insufficient cpu."
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    cluster.add_pod("stuck", phase="Pending", conditions=[why])
    cluster.set_job("stuck", active=1)
    cluster.set_job("refused")
    cluster.add_event(cluster.get("jobs", "refused"), "FailedCreate", 'violates PodSecurity "restricted:latest"')
    assert f"not running: no node takes it: {message} → -C --cpu\n" in kubetpl("status", "stuck").out
    told = kubetpl("status", "refused")
    assert "pods are refused: violates PodSecurity" in told.out and "→ --security restricted" in told.out


def test_wait_goes_on_after_the_server_was_away(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cluster.standin
    monkeypatch.setattr("tarkit.k8s.cluster.watching._SHORTEST_PAUSE", 0.1)
    monkeypatch.setattr("tarkit.k8s.cluster.connection._BACKOFF_SECONDS", 0.01)
    cluster.apply(indexed("slow", 2))
    cluster.set_job("slow", active=2, ready=2)

    def interrupt() -> None:
        cluster.wait_for(lambda: cluster.asked("jobs?watch"), "the first watch")
        proxy.cut()
        # The watch and the list that follows it are tried 4 times each before it is reported.
        cluster.wait_for(lambda: proxy.refused > 8, "a look that fails")
        before = len(cluster.asked("jobs?watch"))
        proxy.mend()
        cluster.wait_for(lambda: len(cluster.asked("jobs?watch")) > before, "another watch")
        cluster.set_job("slow", active=1, ready=1, completedIndexes="0", succeeded=1)
        cluster.end_indexes("slow", {0: 0, 1: 0})

    server.seen.clear()
    with CutProxy(server.url) as proxy:
        config = tmp_path / "through-proxy"
        config.write_text(kubeconfig(proxy.url, cluster.namespace))
        monkeypatch.setenv("KUBECONFIG", str(config))
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        try:
            said = kubetpl("wait", "slow", "--timeout", "180", "--progress")
        finally:
            interrupting.join()
    assert said.code == 0 and "slow: complete" in said.out and "slow: running, 0 of 2 done" in said.err, said
    assert said.err.count("asking again") == said.err.count("the cluster answers again") == 1, said.err


def test_no_cluster_answers(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    """Each verb says so in one line; status answers from the records, if it knows
    where they are.
    """
    spec = shards(tmp_path / "in", 1)
    config = tmp_path / "config"
    config.write_text(kubeconfig("http://127.0.0.1:9", "default"))
    away = ("--kubeconfig", config)
    told = kubetpl("status", "grey", *away)
    assert told.code == 75 and "http://127.0.0.1:9 (context standin) cannot be reached: " in told.err
    assert told.err.rstrip().endswith("-O OUT or -f MANIFEST answers from the done records alone")
    records = kubetpl("status", "grey", "-O", tmp_path / "out", "--shards", spec, *away)
    assert records.code == 1 and "shards: 0 of 1 done, 1 missing, 0 failed" in records.out
    for words in (["wait", "grey", "--patience", "0"], ["logs", "grey"], ["scale", "grey", "-j", "1"],
                  ["cancel", "grey"], ["retry", "grey"]):  # fmt: skip
        said = kubetpl(*words, *away)
        assert (said.code, len(said.err.splitlines())) == (75, 1)
