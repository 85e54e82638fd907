"""The Jobs of kubetpl jobs under the one name of their run."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from kubecluster import Cluster, Said
from kubejobs import job

pytestmark = pytest.mark.cluster

RUN = "part"


def started(cluster: Cluster, kubetpl: Callable[..., Said], *more: str, count: int = 3) -> None:
    """The Jobs part0, part1, …"""
    over = f"{{0..{count - 1}}}"
    said = kubetpl("jobs", "-n", "part{i}", "-c", "true {i}", "--over", over, "-I", "host:1", "--retries", "0", *more)
    assert said.code == 0 and f"tarkit.dev/run: {RUN}\n" in said.out, said.err
    cluster.apply(said.out)


def while_watched(cluster: Cluster, act: Callable[[], object]) -> threading.Thread:
    """A thread that does something once the verb that is called next watches Jobs."""
    before = len(cluster.asked("jobs?watch"))

    def run() -> None:
        cluster.wait_for(lambda: len(cluster.asked("jobs?watch")) > before, "a watch")
        act()

    return threading.Thread(target=run)


def test_a_run_is_waited_for_and_its_failed_jobs_are_retried(
    cluster: Cluster, kubetpl: Callable[..., Said], tmp_path: Path
) -> None:
    server = cluster.standin
    started(cluster, kubetpl)
    cluster.set_job("part0", "complete", succeeded=1)

    def fail() -> None:
        for number in (1, 2):
            cluster.add_pod(f"part{number}", code=1, log=f"seen {number}\n")
            cluster.set_job(f"part{number}", "failed", "BackoffLimitExceeded", failed=1)
        server.objects.compact()

    failing = while_watched(cluster, fail)
    server.seen.clear()
    failing.start()
    waited = kubetpl("wait", RUN, "--timeout", "180", "--progress")
    failing.join()
    assert waited.code == 1
    jobs = [line for line in waited.out.splitlines() if not line.startswith(" ")]
    assert [line.partition(",")[0] for line in jobs[:2]] == ["part1: failed", "part2: failed"]
    assert jobs[2:] == ["3 Jobs: 1 complete, 2 failed"] and waited.out.count("  failures: exit 1 ") == 2
    assert waited.err.endswith("kubetpl wait: part: 3 Jobs: 1 complete, 2 failed\n")

    refused = kubetpl("logs", RUN)
    assert refused.code == 2 and "a run of 3 Jobs, and logs are those of one; name one: part0, part1" in refused.err
    scaled = kubetpl("scale", RUN, "-j", "2")
    assert scaled.code == 2 and "part is a run of 3 Jobs" in scaled.err and "kubetpl cancel part stops" in scaled.err
    assert kubetpl("wait", RUN, "-O", str(tmp_path)).code == 2
    for words, why in (
        (("-n", "x"), "is a name for one Job; 2 of part"),
        (("-O", "x"), "-O and --shards are about one"),
    ):
        refused = kubetpl("retry", RUN, *words)
        assert refused.code == 2 and why in refused.err and not refused.out
    assert "the Jobs part1, part2 do not run tarproc over slices" in kubetpl("retry", RUN, "--failed").err

    printed = kubetpl("retry", RUN)
    assert printed.code == 0 and re.findall(r"^  name: (.*)", printed.out, re.MULTILINE) == ["part1-r2", "part2-r2"]
    cluster.apply(printed.out)
    for number in (1, 2):
        cluster.set_job(f"part{number}-r2", "complete", succeeded=1)
    whole = kubetpl("wait", RUN, "--timeout", "180")
    assert (whole.code, whole.out) == (0, "3 Jobs: 3 complete, 2 retried\n")
    told = kubetpl("status", "part")
    assert (told.code, told.out.splitlines()[-1]) == (0, "3 Jobs: 3 complete, 2 retried")
    assert "of which none has failed; name one, such as part0" in kubetpl("retry", RUN).err


def test_a_run_is_suspended_and_goes_on(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    started(cluster, kubetpl)
    cluster.set_job("part0", "complete", succeeded=1)
    for name in ("part1", "part2"):
        cluster.add_pod(name)
        cluster.set_job(name, active=1, ready=1)
    assert kubetpl("wait", RUN, "--timeout", "0s").err == (
        "kubetpl wait: the time is up after 0 s: part: 3 Jobs: 1 complete, 2 running\n"
    )
    assert kubetpl("cancel", RUN).out == (
        "part: 2 Jobs are suspended; 2 pods are stopped; 1 of 3 had ended. To go on: kubetpl cancel part --undo\n"
    )
    assert "1 complete, 2 suspended" in kubetpl("status", RUN).out
    assert kubetpl("cancel", RUN, "--undo").out == "part: 2 Jobs go on; 1 of 3 had ended\n"
    assert kubetpl("cancel", RUN, "--undo").out == "part: 0 Jobs go on; 1 of 3 had ended\n"
    for name in ("part1", "part2"):
        cluster.set_job(name, "complete", succeeded=1)
    assert kubetpl("wait", RUN).out == "3 Jobs: 3 complete\n"
    assert kubetpl("cancel", RUN).out.startswith("part has ended already (complete)")


def test_a_job_of_that_very_name_wins(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    started(cluster, kubetpl, count=2)
    cluster.apply(job(RUN))
    cluster.set_job(RUN, "complete", succeeded=1)
    assert kubetpl("wait", RUN).out.startswith("part: complete after ")
    cluster.delete("jobs", RUN)
    assert kubetpl("wait", RUN, "--timeout", "0").err.endswith("part: 2 Jobs: 2 waiting\n")


def test_a_job_of_the_run_is_deleted_meanwhile(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    started(cluster, kubetpl, count=2)
    cluster.set_job("part0", "complete", succeeded=1)
    deleting = while_watched(cluster, lambda: cluster.delete("jobs", "part1"))
    deleting.start()
    said = kubetpl("wait", RUN, "--timeout", "180")
    deleting.join()
    assert (said.code, said.out) == (66, "part1: deleted before it had ended\n1 Job: 1 complete, 1 deleted\n")


def test_a_run_of_which_kueue_decides_is_not_suspended(cluster: Cluster, kubetpl: Callable[..., Said]) -> None:
    started(cluster, kubetpl, "-L", "kueue.x-k8s.io/queue-name=etl", "--set", "spec.suspend=true", count=2)
    for words in ((), ("--undo",)):
        refused = kubetpl("cancel", RUN, *words)
        assert refused.code == 2 and "part: 2 Jobs are in the Kueue queue etl, which decides" in refused.err
    assert [one["spec"]["suspend"] for one in cluster.items("jobs")] == [True, True]


def test_one_line_says_to_who_waits_that_nothing_runs(
    cluster: Cluster, kubetpl: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarkit.cli.kube.verbs.wait._IDLE", 0.1)
    monkeypatch.setattr("tarkit.k8s.cluster.watching._ONE_WATCH", 0.5)
    cluster.apply(job("stuck"))
    before = len(cluster.asked("jobs?watch"))

    def end() -> None:
        cluster.wait_for(lambda: len(cluster.asked("jobs?watch")) > before + 2, "three looks")
        cluster.set_job("stuck", "complete", succeeded=1)

    ending = threading.Thread(target=end)
    ending.start()
    said = kubetpl("wait", "stuck", "--timeout", "180")
    ending.join()
    assert said.code == 0 and said.err == "kubetpl wait: no pod of stuck runs; kubetpl status stuck says why\n"
