"""kubetpl status, wait, logs, retry, scale and cancel against a cluster on which tarproc really runs."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cutproxy import CutProxy
from kubecluster import Cluster, Said
from kubejobs import indexed, job
from kubestandin import kubeconfig

from tarkit.k8s.apiobject import timestamp
from tarkit.writer import TarWriter

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent


def shards(folder: Path, count: int, samples: int = 2) -> str:
    """Small shards; the spec that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        with TarWriter(str(folder / f"in-{number}.tar")) as writer:
            for each in range(samples):
                writer.write({"__key__": f"{number}-{each}", "txt": f"{number}"})
    return f"{folder}/in-{{0..{count - 1}}}.tar"


def manifest(kubetpl: Callable[..., Said], name: str, command: str, spec: str, out: Path, *more: str) -> str:
    """What kubetpl indexed prints, for this host as the image."""
    said = kubetpl(
        "indexed", "-n", name, "-I", "host:1", "-c", command, "--shards", spec, "-O", out,
        "-e", f"PATH={BIN}:{os.environ['PATH']}", "-M", "256Mi", "--scratch", "1Gi", "--retries", "0",
        *more,
    )  # fmt: skip
    assert said.code == 0, said.err
    return said.out


def applied(cluster: Cluster, text: str) -> None:
    cluster.kubectl("apply", "-f", "-", input=text, check=True)


UPPER = "tr a-z A-Z < sample.txt > t; mv t sample.txt"


def test_a_run_from_start_to_end(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    spec = shards(tmp_path / "in", 4)
    applied(cluster, manifest(kubetpl, "grey", f"echo seen; {UPPER}", spec, tmp_path / "out", "--slices", "2"))
    waited = kubetpl("wait", "grey", "--timeout", "180", "--progress")
    assert waited.code == 0
    assert waited.out.startswith("grey: complete after ")
    assert "kubetpl wait: grey: complete, 2 of 2 done, 0 running, 0 failed, 0 left\n" in waited.err

    told = kubetpl("status", "grey")
    assert told.code == 0
    assert told.out.splitlines()[1:] == [
        "indexes: 2 of 2 done, 0 running, 0 failed, 0 left",
        f"shards: 4 of 4 done, 0 missing, 0 failed; records in {tmp_path / 'out'}",
        "samples: in 8 = out 8 + filtered 0 + failed 0",
    ]
    document = json.loads(kubetpl("status", "grey", "--json").out)
    assert (document["exit_code"], document["job"]["done"], document["shards"]["done"]) == (0, 2, 4)

    every = kubetpl("logs", "grey", "--grep", "^seen").out.splitlines()
    assert every == ["[0] seen"] * 4 + ["[1] seen"] * 4
    one = kubetpl("logs", "grey", "--shard", "in-3.tar", "--grep", "seen")
    assert (one.code, one.out) == (0, "[1] seen\n" * 4)
    assert kubetpl("logs", "grey", "--failed").code == 66

    nothing = kubetpl("retry", "grey")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "kubetpl retry: nothing to retry: 4 of 4 shards done, none left\n"
    ended = kubetpl("scale", "grey", "-j", "1")
    assert ended.code == 2 and "has ended (complete)" in ended.err
    assert "has ended already (complete)" in kubetpl("cancel", "grey").out
    assert kubetpl("status", "--watch", "grey").code == 0, "--watch takes seconds, or what follows is the name"

    shards(tmp_path / "in", 1, samples=3)
    assert kubetpl("status", "grey").code == 0
    changed = kubetpl("status", "grey", "--check-inputs")
    assert changed.code == 1 and "stale shard in-0.tar: the input changed" in changed.out
    assert "1 shard to retry" in kubetpl("retry", "grey", "--check-inputs").err


def test_a_shard_that_fails_is_found_named_and_retried(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 4)
    good = (tmp_path / "in/in-2.tar").read_bytes()
    (tmp_path / "in/in-2.tar").write_bytes(good[:600])
    text = manifest(kubetpl, "grey", UPPER, spec, tmp_path / "out", "--slices", "2", "--max-failed", "2", "-j", "1")
    applied(cluster, text)
    assert kubetpl("wait", "grey", "--timeout", "180").code == 1

    told = kubetpl("status", "grey")
    assert told.code == 1
    assert "indexes: 1 of 2 done, 0 running, 1 failed, 0 left" in told.out
    assert "shards: 3 of 4 done, 0 missing, 1 failed;" in told.out
    assert "failed shard in-2.tar: " in told.out
    (failure,) = [line for line in told.out.splitlines() if line.startswith("failures:")]
    assert failure.startswith("failures: exit 65 ×1 ")
    assert "on index 1 (shards in-2.tar): input data is corrupt" in failure
    logs = kubetpl("logs", "grey")
    assert logs.code == 0 and "in-2.tar" in logs.out

    (tmp_path / "in/in-2.tar").write_bytes(good)
    printed = kubetpl("retry", "grey", "--memory", "512Mi", "-j", "8")
    assert printed.code == 0 and printed.err == "kubetpl retry: 3 of 4 shards done; 1 shard to retry\n"
    applied(cluster, printed.out)
    retried = cluster.json("job", "grey-r2")
    assert retried["spec"]["completions"] == retried["spec"]["parallelism"] == 1
    assert retried["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "512Mi"
    assert retried["metadata"]["annotations"]["tarkit.dev/retry-of"] == "grey"
    assert kubetpl("wait", "grey-r2", "--timeout", "180").code == 0
    assert sorted(each.name for each in (tmp_path / "out").glob("in-?.tar")) == [f"in-{n}.tar" for n in range(4)]
    again = kubetpl("status", "grey")
    assert again.code == 0, "the records say that all is done, whoever did it"
    assert "but every shard has its done record (retried as grey-r2): exit code 0\n" in again.out
    (failure,) = [line for line in again.out.splitlines() if line.startswith("failures:")]
    assert failure.endswith(" on index 1: done since"), "no advice on what is done"
    first = kubetpl("wait", "grey")
    assert first.code == 0
    assert (
        first.out.startswith("grey: failed after ") and "but every shard has its done record: exit code 0" in first.out
    )
    assert "shards: 4 of 4 done" in first.out
    assert "retried as grey-r2: complete" in again.out
    assert "1 of 1 done" in kubetpl("status", "grey-r2").out
    assert "nothing to retry" in kubetpl("retry", "grey").err


def test_a_retry_is_created_with_apply(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    spec = shards(tmp_path / "in", 3)
    applied(cluster, manifest(kubetpl, "grey", "exit 1", spec, tmp_path / "out", "--slices", "3", "-j", "1"))
    assert kubetpl("wait", "grey", "--timeout", "180").code == 1
    told = kubetpl("status", "grey")
    assert "failures: exit 1 " in told.out and "see kubetpl logs --failed" in told.out
    made = kubetpl("retry", "grey", "--apply", "--slices", "2", "-n", "second")
    assert made.code == 0, made.err
    assert made.out.splitlines()[1:] == ["Job second is created"] and made.out.startswith("ConfigMap second-shards-")
    assert kubetpl("wait", "second", "--timeout", "180").code == 1
    assert cluster.json("job", "second")["spec"]["completions"] == 2
    assert kubetpl("retry", "second", "--missing").code == 0
    third = kubetpl("retry", "second")
    assert "name: second-r2\n" in third.out, "the list of the list is read from the cluster"
    assert "3 shards to retry" in third.err


def test_an_index_that_went_well_in_the_end_has_not_failed(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    applied(cluster, json.dumps(indexed("grey", f"test -e {tmp_path}/seen || {{ touch {tmp_path}/seen; exit 1; }}", 1)))
    assert kubetpl("wait", "grey", "--timeout", "180").code == 0
    assert kubetpl("logs", "grey", "--failed").code == 66
    (failure,) = [line for line in kubetpl("status", "grey").out.splitlines() if line.startswith("failures:")]
    assert failure.startswith("failures: exit 1 ×1 ") and failure.endswith(
        "on index 0: went well when it was tried again"
    )


def test_a_retry_does_not_stand_for_a_job_that_is_gone(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 3)
    (tmp_path / "in/in-1.tar").write_bytes((tmp_path / "in/in-1.tar").read_bytes()[:600])
    text = manifest(kubetpl, "grey", UPPER, spec, tmp_path / "out", "--max-failed", "3")
    (tmp_path / "grey.yaml").write_text(text)
    applied(cluster, text)
    assert kubetpl("wait", "grey", "--timeout", "180").code == 1
    shards(tmp_path / "in", 2)
    assert kubetpl("retry", "grey", "--apply").code == 0
    assert kubetpl("wait", "grey-r2", "--timeout", "180").code == 0
    assert kubetpl("cancel", "grey", "--delete").code == 0
    assert kubetpl("wait", "grey", "--timeout", "180").code == 66
    (tmp_path / "out/in-2.tar").unlink()

    alone = kubetpl("status", "grey")
    assert "note: Job grey is gone, and this is of its retries alone; -f MANIFEST shows all its shards" in alone.out
    for words in (("-f", tmp_path / "grey.yaml"), ("-O", tmp_path / "out", "--shards", spec)):
        told = kubetpl("status", "grey", *words)
        assert told.code == 1, told.out
        assert "no job grey in namespace" in told.out and "its retries: grey-r2" in told.out
        assert "shards: 2 of 3 done" in told.out and "stale shard in-2.tar" in told.out
    refused = kubetpl("retry", "grey")
    assert refused.code == 66 and "no job grey" in refused.err and "-f MANIFEST" in refused.err
    assert "1 shard to retry" in kubetpl("retry", "grey", "-f", tmp_path / "grey.yaml").err


def test_memory_that_does_not_suffice(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    limits = {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}
    # Without cgroups memory is only looked at now and then; tail has it until somebody reads.
    eat = "head -c 200M /dev/zero | tail | sleep 600"
    cluster.apply(indexed("eater", eat, 2, backoffLimitPerIndex=0, container={"resources": limits}))
    assert kubetpl("wait", "eater", "--timeout", "180").code == 1
    told = kubetpl("status", "eater").out
    assert "failures: OOMKilled ×2 on indexes 0,1: retry --memory 128Mi" in told
    whole = kubetpl("retry", "eater", "--memory", "128Mi")
    assert whole.code == 0 and "does not run tarproc" in whole.err
    assert "name: eater-r2\n" in whole.out and "memory: 128Mi" in whole.out
    cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=whole.out, check=True)
    assert kubetpl("retry", "eater", "--failed").code == 2


def test_pods_gone_then_the_job_then_the_answer_is_in_the_records(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    spec = shards(tmp_path / "in", 2)
    (tmp_path / "in/in-1.tar").write_bytes(b"x" * 1000)
    text = manifest(kubetpl, "grey", UPPER, spec, tmp_path / "out", "--slices", "2", "-j", "1")
    (tmp_path / "grey.yaml").write_text(text)
    applied(cluster, text)
    assert kubetpl("wait", "grey", "--timeout", "180").code == 1
    cluster.kubectl("delete", "pods", "--all", check=True)
    told = kubetpl("status", "grey")
    assert "failures: gone ×1" in told.out and "failed shard in-1.tar" in told.out
    logs = kubetpl("logs", "grey")
    assert logs.code == 0 and logs.out.startswith("[1] in-1.tar: failed: ")
    assert "the pods of index 1 are gone" in logs.err
    assert kubetpl("logs", "grey", "--index", "0").out == "[0] in-0.tar: done\n"

    assert "is deleted" in kubetpl("cancel", "grey", "--delete").out
    cluster.wait_for(lambda: kubetpl("status", "grey").code == 66, what="the Job is gone")
    for words in (("-f", tmp_path / "grey.yaml"), ("-O", tmp_path / "out", "--shards", spec)):
        gone = kubetpl("status", "grey", *words)
        assert gone.code == 1
        assert gone.out.startswith("note: no job grey in namespace")
        assert "shards: 1 of 2 done, 0 missing, 1 failed" in gone.out
    retry = kubetpl("retry", "grey", "-f", tmp_path / "grey.yaml")
    assert retry.code == 0 and "name: grey-r2\n" in retry.out
    assert kubetpl("wait", "grey").code == 66


def test_a_retry_whose_list_is_in_a_bucket(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    spec = shards(tmp_path / "in", 5)
    applied(cluster, manifest(kubetpl, "grey", "exit 1", spec, tmp_path / "out", "--slices", "1"))
    assert kubetpl("wait", "grey", "--timeout", "180").code == 1
    # The command of the retry is mended by hand, as with any manifest.
    (tmp_path / "lists").touch()
    retry = kubetpl("retry", "grey", "--slices", "2", "--list-url", f"{tmp_path}/lists/")
    assert retry.code == 1 and "not a directory" in retry.err and not retry.out
    (tmp_path / "lists").unlink()
    retry = kubetpl("retry", "grey", "--slices", "2", "--list-url", f"{tmp_path}/lists/")
    assert retry.code == 0, retry.err
    applied(cluster, retry.out.replace("- exit 1\n", "- 'true'\n"))
    assert kubetpl("wait", "grey-r2", "--timeout", "180").code == 0
    told = kubetpl("status", "grey-r2")
    assert told.code == 0 and "shards: 5 of 5 done" in told.out
    logs = kubetpl("logs", "grey-r2", "--shard", "in-4.tar", "-v")
    assert logs.code == 0, logs.err


def test_set_aside_samples(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    spec = shards(tmp_path / "in", 2)
    applied(cluster, manifest(kubetpl, "grey", "! grep -q 1-0 __key__", spec, tmp_path / "out", "--slices", "1"))
    assert kubetpl("wait", "grey", "--timeout", "180").code == 3
    told = kubetpl("status", "grey")
    assert told.code == 3, told
    assert "set aside: 1 sample of 1 shard" in told.out and "failures: exit 3 ×1" in told.out
    assert "1 sample set aside: tarproc --retry-failed" in kubetpl("retry", "grey").err


def test_scale_and_cancel(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(indexed("slow", "echo begun; sleep 60", 5, parallelism=1))
    cluster.wait_for(lambda: "1 running" in kubetpl("status", "slow").out, what="a running pod")
    running = kubetpl("status", "slow")
    assert running.code == 0 and running.out.startswith("slow: running for ")
    assert kubetpl("retry", "slow").code == 2
    assert "still runs; wait for it (kubetpl wait slow)" in kubetpl("retry", "slow").err
    assert kubetpl("scale", "slow", "-j", "3").out == "slow: parallelism 1 → 3\n"
    cluster.wait_for(lambda: "3 running" in kubetpl("status", "slow").out, what="three running pods")
    late = kubetpl("wait", "slow", "--timeout", "1")
    assert late.code == 75 and "the time is up after 1 s: slow: running, 0 of 5 done" in late.err
    assert kubetpl("scale", "slow", "-j", "6").code == 2
    assert "kubetpl scale slow -j 3 goes on" in kubetpl("scale", "slow", "-j", "0").out
    assert "not running: parallelism is 0 → kubetpl scale -j P" in kubetpl("status", "slow").out
    kubetpl("scale", "slow", "-j", "2")
    cancelled = kubetpl("cancel", "slow")
    assert cancelled.code == 0 and cancelled.out.startswith("slow is suspended")
    told = kubetpl("status", "slow")
    assert told.out.startswith("slow: suspended")
    assert (
        "not running: suspended by kubetpl cancel (20" in told.out
        and ("by standin)" if cluster.is_standin else " by ") in told.out
    )
    assert "slow goes on" in kubetpl("cancel", "slow", "--undo").out
    assert "annotations" not in cluster.json("job", "slow")["metadata"] or not cluster.json("job", "slow")["metadata"][
        "annotations"
    ].get("tarkit.dev/cancelled")
    assert kubetpl("cancel", "slow", "--delete", "--undo").code == 2


def test_wait_of_a_job_without_indexes(cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path) -> None:
    """How it will end is known before its counts are: what is shown are the counts of its end."""
    cluster.apply(job("one", f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"))
    timer = threading.Timer(0.5, (tmp_path / "go").touch)
    timer.start()
    said = kubetpl("wait", "one", "--timeout", "180")
    timer.join()
    assert said.code == 0
    assert re.fullmatch(
        r"one: complete after \d+ s \(CompletionsReached\)\nindexes: 1 of 1 done, 0 running, 0 failed, 0 left\n",
        said.out,
    )
    times = cluster.json("job", "one")["status"]
    took = timestamp(times["completionTime"]) - timestamp(times["startTime"])  # type: ignore[operator]
    assert f"after {took:.0f} s" in said.out


@pytest.mark.parametrize("name", ["ev/status", "ev?dryRun=All", "..", "ev/../ev", "ev%2fstatus", "a,b", "", " ev"])
def test_a_name_is_no_path(cluster: Cluster, kubetpl: Callable[..., Said], name: str) -> None:
    """Whatever stands in place of a name, no Job is deleted, and no other path of the API is asked."""
    cluster.apply(job("ev", "sleep 600"))
    before = len(cluster.standin.router.seen) if cluster.standin is not None else 0
    verbs = (["status"], ["wait"], ["logs"], ["retry"], ["scale", "-j", "1"], ["cancel"], ["cancel", "--delete"])
    for verb, *options in verbs:
        said = kubetpl(verb, name, *options)
        assert (said.code, said.out) == (2, ""), said
        assert "NAME: the name of a Job or run " in said.err and said.err.count("\n") == 1
    if cluster.standin is not None:
        space = f"/{cluster.namespace}/"
        assert not [one for one in list(cluster.standin.router.seen)[before:] if space in one and "/jobs" in one]
    assert "deletionTimestamp" not in cluster.json("job", "ev")["metadata"]


def test_a_namespace_that_does_not_exist(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    for words in (["status", "grey"], ["status", "-l", "a=b"], ["wait", "grey"], ["cancel", "grey"]):
        said = kubetpl(*words, "-N", f"{cluster.namespace}-not")
        assert said.code == 66 and "no such namespace" in said.err, said
        assert "no such namespace" not in kubetpl(*words).err


def test_wait_through_a_deletion(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    cluster.apply(job("slow", "sleep 60"))
    timer = threading.Timer(1.0, lambda: cluster.kubectl("delete", "job", "slow", "--wait=false"))
    timer.start()
    said = kubetpl("wait", "slow", "--timeout", "180")
    timer.join()
    assert said.code == 66 and ("was deleted meanwhile" in said.err or "no job slow" in said.err)


def test_jobs_of_one_run(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    said = kubetpl("jobs", "-n", "part{i}", "-c", "exit {i}", "--over", "{0..2}", "-I", "host:1")
    assert said.code == 0, said.err
    documents = [one for one in said.out.split("---\n")]
    assert len(documents) == 3
    run = said.out.partition("tarkit.dev/run: ")[2].partition("\n")[0]
    applied(cluster, said.out.replace("backoffLimit: ", "backoffLimit: 0 # "))
    cluster.wait_for(lambda: "3 Jobs: 1 complete, 2 failed" in kubetpl("status", run).out, what="all three have ended")
    told = kubetpl("status", "-l", f"tarkit.dev/run={run}")
    assert told.code == 1
    assert told.out.splitlines()[-1] == "3 Jobs: 1 complete, 2 failed"
    assert kubetpl("status", "-l", "no=such").code == 66
    for selector in ("a=b=c", "a in b", "!"):
        bad = kubetpl("status", "-l", selector)
        assert bad.code == 2 and f"-l {selector}: write for example team=vision" in bad.err, bad


@pytest.mark.parametrize(
    ("container", "pod", "expected"),
    [
        ({"image": "registry.example/no-such-image:1"}, {}, r"ErrImagePull|ImagePullBackOff.*→ -I --image"),
        ({"envFrom": [{"configMapRef": {"name": "absent"}}]}, {}, "CreateContainerConfigError: .*absent.* → create"),
        ({"resources": {"requests": {"cpu": "4k"}}}, {}, r"no node takes it: .*Insufficient cpu.* → .*--cpu"),
        ({}, {"nodeSelector": {"disk": "none"}}, r"no node takes it: .*affinity/selector.* → .*--node-selector"),
    ],
)  # fmt: skip
def test_why_nothing_runs(
    cluster: Cluster, kubetpl: Callable[..., Said], container: dict[str, Any], pod: dict[str, Any], expected: str
) -> None:
    cluster.apply(job("stuck", "true", container=container, pod=pod))
    pattern = re.compile(expected)
    said = cluster.wait_for(lambda: pattern.search(kubetpl("status", "stuck").out), what=kubetpl("status", "stuck").out)
    assert said


def test_pod_security_and_quota_are_told(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", cluster.namespace, label, check=True)
    cluster.apply(job("unsafe", "true"))
    pattern = re.compile(r"pods are refused: .*violates PodSecurity.* → --security restricted")
    cluster.wait_for(lambda: pattern.search(kubetpl("status", "unsafe").out), what=kubetpl("status", "unsafe").out)


def test_quota_is_told(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    hard = {"spec": {"hard": {"requests.cpu": "1"}}}
    cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, **hard})
    cluster.apply(job("big", "true", container={"resources": {"requests": {"cpu": "2"}}}))
    pattern = re.compile(
        r"pods are refused: .*exceeded quota: small.* → -C --cpu: a pod alone asks for .*cpu=2, .*1: none ever"
    )
    cluster.wait_for(lambda: pattern.search(kubetpl("status", "big").out), what=kubetpl("status", "big").out)


def test_wait_and_watch_go_on_after_the_server_was_away(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    if cluster.standin is None:
        pytest.skip("THE SERVER OF A REAL CLUSTER IS NOT CUT OFF")
    from tarkit.cli.kubetpl import main

    standin = cluster.standin
    host, _, port = standin.url.rpartition("/")[2].partition(":")
    config = tmp_path / "through-proxy"
    go = tmp_path / "go"
    cluster.apply(job("slow", f"until [ -e {go} ]; do sleep 0.1; done"))

    def watches() -> int:
        return sum(f"/{cluster.namespace}/" in one and "watch" in one for one in list(standin.router.seen))

    def interrupt() -> None:
        cluster.wait_for(lambda: watches() and cluster.peek("jobs")[0]["status"].get("ready"), "the first watch")
        proxy.cut()
        cluster.wait_for(lambda: proxy.refused, "a try that is refused")
        before = watches()
        proxy.mend()
        cluster.wait_for(lambda: watches() > before, "another watch")
        go.touch()

    def enough() -> None:
        cluster.wait_for(lambda: watches() > before + 2, "two looks after the first")
        (tmp_path / "enough").touch()

    with CutProxy((host, int(port))) as proxy:
        config.write_text(kubeconfig(f"http://127.0.0.1:{proxy.port}", cluster.namespace))
        monkeypatch.setenv("KUBECONFIG", str(config))
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        try:
            assert main(["wait", "slow", "--timeout", "180", "--progress"]) == 0
        finally:
            interrupting.join()
        out, err = (each.decode() for each in capfdbinary.readouterr())
        assert proxy.refused and "slow: running" in err
        assert out.startswith("slow: complete")
        cluster.apply(job("more", f"until [ -e {tmp_path}/enough ]; do sleep 0.1; done"))
        before = watches()
        ending = threading.Thread(target=enough)
        ending.start()
        try:
            assert main(["status", "more", "--watch", "0.3"]) == 0
        finally:
            ending.join()
    out = capfdbinary.readouterr().out.decode()
    assert out.count("more: ") > 1 and out.rstrip().splitlines()[-2].startswith("more: complete")


def test_no_cluster_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Each verb says so in one line; status answers from the records, if it knows where they are."""
    pytest.importorskip("kubernetes", reason="NO KUBERNETES CLIENT: pip install kubernetes")
    from tarkit.cli.kubetpl import main

    spec = shards(tmp_path / "in", 1)
    config = tmp_path / "config"
    config.write_text(kubeconfig("http://127.0.0.1:9", "default"))
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert main(["status", "grey"]) == 75
    said = capfdbinary.readouterr().err.decode()
    assert "http://127.0.0.1:9 (context standin) cannot be reached: " in said and "refused" in said
    assert said.rstrip().endswith("-O OUT or -f MANIFEST answers from the done records alone")
    assert main(["status", "grey", "-O", str(tmp_path / "out"), "--shards", spec]) == 1
    assert "shards: 0 of 1 done, 1 missing, 0 failed" in capfdbinary.readouterr().out.decode()
    for words in (
        ["wait", "grey", "--patience", "0"],
        ["logs", "grey"],
        ["scale", "grey", "-j", "1"],
        ["cancel", "grey"],
        ["retry", "grey"],
    ):
        assert main(words) == 75
        assert len(capfdbinary.readouterr().err.splitlines()) == 1
