"""The Jobs of kubetpl jobs under the one name of their run; and what a Job of which nothing runs says of itself."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cutproxy import CutProxy
from kubecluster import Cluster, Said
from kubejobs import indexed, job
from kubestandin import kubeconfig
from tarkit.cli.kube.verbs import wait

from tarkit.k8s.cluster import watching
from tarkit.k8s.cluster.jobstatus import Standstill

pytestmark = pytest.mark.cluster

RUN = "part"


def started(cluster: Cluster, kubetpl: Callable[..., Said], command: str, *more: str, count: int = 3) -> str:
    """The Jobs part0, part1, …, applied; their manifests."""
    over = f"{{0..{count - 1}}}"
    said = kubetpl("jobs", "-n", "part{i}", "-c", command, "--over", over, "-I", "host:1", "--retries", "0", *more)
    assert said.code == 0 and f"tarkit.dev/run: {RUN}\n" in said.out, said.err
    cluster.kubectl("apply", "-f", "-", input=said.out, check=True)
    return said.out


def asked(cluster: Cluster) -> list[str]:
    """What the stand-in was asked about Jobs of this namespace."""
    assert cluster.standin is not None
    return [one for one in list(cluster.standin.router.seen) if f"/{cluster.namespace}/jobs" in one]


def once_looked_at(cluster: Cluster, act: Callable[[], object]) -> threading.Thread:
    """A thread that does something once who waits for the run was told how it stands."""
    before = len(asked(cluster)) if cluster.is_standin else 0

    def looks() -> int:
        return sum("labelSelector" in one for one in asked(cluster)[before:])

    def run() -> None:
        if cluster.is_standin:
            # The second comes once the first was answered.
            cluster.wait_for(lambda: looks() > 1, "two looks")
        else:
            time.sleep(10)
        act()

    return threading.Thread(target=run)


def test_a_run_is_waited_for_and_its_failed_jobs_are_retried(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    started(cluster, kubetpl, f"echo seen {{i}}; if [ {{i}} != 0 ]; then [ -e {mended} ]; fi")
    before = len(asked(cluster)) if cluster.is_standin else 0
    waited = kubetpl("wait", RUN, "--timeout", "180", "--progress")
    assert waited.code == 1
    lines = waited.out.splitlines()
    assert [line.partition(" after ")[0] for line in lines[:2]] == ["part1: failed", "part2: failed"]
    assert lines[2:] == ["3 Jobs: 1 complete, 2 failed"]
    assert waited.err.endswith("kubetpl wait: part: 3 Jobs: 1 complete, 2 failed\n")
    if cluster.is_standin:
        looks = asked(cluster)[before:]
        assert sum("watch" not in one for one in looks) <= 3, "one list, then watches of all of them"
        assert [one for one in looks if "part0" in one or "part1" in one] == []

    assert kubetpl("logs", RUN).out == "==> part1 <==\nseen 1\n==> part2 <==\nseen 2\n"
    for words in (("--follow",), ("--index", "0"), ("-O", str(tmp_path))):
        refused = kubetpl("logs", RUN, *words)
        assert refused.code == 2 and f"part is a run of 3 Jobs, and {words[0]} goes with one" in refused.err
        assert "name one: part0, part1, part2" in refused.err
    scaled = kubetpl("scale", RUN, "-j", "2")
    assert scaled.code == 2 and "part is a run of 3 Jobs" in scaled.err and "kubetpl cancel part stops" in scaled.err
    assert kubetpl("wait", RUN, "-O", str(tmp_path)).code == 2
    assert "did you mean part" in kubetpl("wait", "part9").err
    assert "did you mean part" in kubetpl("cancel", "part9").err

    for words, why in (
        (("-n", "x"), "is a name for one Job; 2 of part"),
        (("-O", "x"), "-O and --shards are about one"),
    ):
        refused = kubetpl("retry", RUN, *words)
        assert refused.code == 2 and why in refused.err and not refused.out
    assert "the Jobs part1, part2 do not run tarproc over slices" in kubetpl("retry", RUN, "--failed").err
    mended.touch()
    printed = kubetpl("retry", RUN)
    assert printed.code == 0 and re.findall(r"^  name: (.*)", printed.out, re.MULTILINE) == ["part1-r2", "part2-r2"]
    again = kubetpl("retry", RUN, "--apply")
    assert (again.code, again.out) == (0, "Job part1-r2 is created\nJob part2-r2 is created\n")
    assert again.err.endswith("which shards are left is not known: all of each\n")
    whole = kubetpl("wait", RUN, "--timeout", "180")
    assert (whole.code, whole.out) == (0, "3 Jobs: 3 complete, 2 retried\n")
    told = kubetpl("status", "part")
    assert (told.code, told.out.splitlines()[-1]) == (0, "3 Jobs: 3 complete, 2 retried")
    assert "of which none has failed; name one, such as part0" in kubetpl("retry", RUN).err


def test_a_run_is_suspended_goes_on_and_is_deleted(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    started(cluster, kubetpl, f"[ {{i}} = 0 ] || until [ -e {go} ]; do sleep 0.1; done")
    late = kubetpl("wait", RUN, "--timeout", "1")
    assert late.code == 75 and late.out == ""
    assert late.err.startswith("kubetpl wait: the time is up after 1 s: part: 3 Jobs: ")
    cluster.wait_for(lambda: "1 complete, 2 running" in kubetpl("status", RUN).out, what="one has ended, two run")
    # Of which the Jobs themselves tell a little later.
    cluster.wait_for(lambda: sum(one["status"].get("ready", 0) for one in cluster.peek("jobs")) == 2, "two are ready")
    assert kubetpl("wait", RUN, "--timeout", "1s").err == (
        "kubetpl wait: the time is up after 1s: part: 3 Jobs: 1 complete, 2 running; left: part1, part2\n"
    )
    assert "part is a run of 3 Jobs, none of which has failed; name one: part0" in kubetpl("logs", RUN).err
    assert kubetpl("logs", RUN, "--failed").code == 66
    assert kubetpl("cancel", RUN).out == (
        "part: 2 Jobs are suspended; 2 pods are stopped; 1 has ended already. To go on: kubetpl cancel part --undo\n"
    )
    assert "1 complete, 2 suspended" in kubetpl("status", RUN).out
    assert kubetpl("cancel", RUN, "--undo").out == "part: 2 Jobs go on; 1 has ended already\n"
    assert kubetpl("cancel", RUN, "--undo").out == "part: no Job was suspended; 1 has ended already\n"
    go.touch()
    assert kubetpl("wait", RUN, "--timeout", "180").out == "3 Jobs: 3 complete\n"
    assert kubetpl("cancel", RUN).out.startswith("part: all 3 Jobs of it have ended already")
    assert kubetpl("cancel", RUN, "--delete").out.startswith("part: 3 Jobs are deleted, with their pods and their logs")
    assert kubetpl("wait", RUN).code == 66


def test_a_job_of_that_very_name_wins(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    started(cluster, kubetpl, "exit 1", count=2)
    cluster.apply(job(RUN, "echo mine"))
    assert kubetpl("wait", RUN, "--timeout", "180").out.startswith("part: complete after ")
    assert kubetpl("logs", RUN).out == "mine\n"
    assert kubetpl("cancel", RUN, "--delete").out.startswith("part is deleted")
    cluster.wait_for(lambda: kubetpl("wait", RUN, "--timeout", "180").code == 1, what="the run's turn")


def test_a_job_of_the_run_is_deleted_meanwhile(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    started(cluster, kubetpl, "[ {i} = 0 ] || sleep 60", count=2)
    deleting = once_looked_at(cluster, lambda: cluster.kubectl("delete", "job", "part1", "--wait=false", check=True))
    deleting.start()
    said = kubetpl("wait", RUN, "--timeout", "180")
    deleting.join()
    assert said.code == 66
    assert said.out == "part1: deleted before it had ended\n1 Job: 1 complete, 1 deleted\n"


def test_a_run_of_which_kueue_decides_is_not_suspended(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    started(cluster, kubetpl, "sleep 60", "-L", "kueue.x-k8s.io/queue-name=etl", "--set", "spec.suspend=true", count=2)
    for words in ((), ("--undo",)):
        refused = kubetpl("cancel", RUN, *words)
        assert refused.code == 2 and "part: 2 Jobs are in the Kueue queue etl, which decides" in refused.err
    assert [one["spec"]["suspend"] for one in cluster.peek("jobs")] == [True, True]
    assert kubetpl("cancel", RUN, "--delete").out.startswith("part: 2 Jobs are deleted")


def test_a_run_is_waited_for_while_the_server_is_away(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes],
    kubetpl: Callable[..., Said],
) -> None:  # fmt: skip
    if cluster.standin is None:
        pytest.skip("THE SERVER OF A REAL CLUSTER IS NOT CUT OFF")
    host, _, port = cluster.standin.url.rpartition("/")[2].partition(":")
    go = tmp_path / "go"
    started(cluster, kubetpl, f"until [ -e {go} ]; do sleep 0.1; done", count=2)
    config = tmp_path / "through-proxy"

    def interrupt() -> None:
        proxy.cut()
        # A connection that broke is tried 4 times before anybody says so.
        cluster.wait_for(lambda: proxy.refused > 4, "a look that was given up")
        proxy.mend()
        go.touch()

    with CutProxy((host, int(port))) as proxy:
        config.write_text(kubeconfig(f"http://127.0.0.1:{proxy.port}", cluster.namespace))
        monkeypatch.setenv("KUBECONFIG", str(config))
        interrupting = once_looked_at(cluster, interrupt)
        interrupting.start()
        try:
            said = kubetpl("wait", RUN, "--timeout", "180")
        finally:
            interrupting.join()
    assert (said.code, said.out) == (0, "2 Jobs: 2 complete\n"), said.err
    assert said.err.count("asking again") == 1 and said.err.count("the cluster answers again\n") == 1


@pytest.mark.parametrize("many", [False, True])
def test_why_nothing_runs_is_said_to_who_waits(
    cluster: Cluster, kubetpl: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    monkeypatch.setattr("tarkit.k8s.cluster.jobstatus.IDLE_SECONDS", 0.5)
    monkeypatch.setattr("tarkit.k8s.cluster.watching._ONE_WATCH", 1.0)
    looks: list[str] = []
    look = Standstill._look

    def counted(standstill: Standstill, job: dict[str, Any]) -> bool:
        looks.append(job["metadata"]["name"])
        return look(standstill, job)

    def clock() -> float:
        """The time is up once it was looked into three times."""
        return time.monotonic() + (1000 if len(looks) == 3 else 0)

    monkeypatch.setattr(Standstill, "_look", counted)
    for module in (wait, watching):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, time=time.time, sleep=time.sleep))
    monkeypatch.setattr("tarkit.k8s.cluster.watching._ONE_LOOK", 1.0)
    if many:
        started(cluster, kubetpl, "true", "--node-selector", "disk=none", count=2)
    else:
        cluster.apply(indexed("part0", "true", 2, pod={"nodeSelector": {"disk": "none"}}))
    cluster.wait_for(lambda: "no node takes it" in kubetpl("status", "part0").out, what="the scheduler's word")
    said = kubetpl("wait", RUN if many else "part0", "--timeout", "500")
    assert said.code == 75 and looks == ["part0"] * 3
    told = [line for line in said.err.splitlines() if "not running" in line]
    assert len(told) == 1, said.err
    assert told[0].startswith("kubetpl wait: part0: not running: no node takes it: ") and "--node-selector" in told[0]
