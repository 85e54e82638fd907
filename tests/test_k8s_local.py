"""Manifests run on this machine, with real processes."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import stands_until, wait_for

from tarkit.errors import CommandNotRunnableError, DataError, StreamError, UsageError
from tarkit.k8s.local import processes
from tarkit.k8s.local.env import LocalNode, host_env
from tarkit.k8s.local.jobrun import JobRun, LocalResult
from tarkit.k8s.local.processes import MARK, can_measure, marked
from tarkit.k8s.local.run import LocalSettings, PodFailure, run_documents
from tarkit.k8s.local.state import StateFolder

CODES = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": "main", "operator": "In", "values": [2, 64, 78, 126, 127]},
        },
        {"action": "FailIndex", "onExitCodes": {"containerName": "main", "operator": "In", "values": [3, 65, 66]}},
    ]
}


class Told:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.failures: list[PodFailure] = []
        self.running = self.most_at_once = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def pod_failed(self, failure: PodFailure) -> None:
        self.failures.append(failure)

    def progress(self, jobs: Sequence[JobRun]) -> None:
        self.running = sum(len(job.ledger.running) for job in jobs)
        self.most_at_once = max(self.most_at_once, self.running)


def container(script: str, **more: Any) -> dict[str, Any]:
    return {"name": "main", "command": ["/bin/sh", "-c", script], **more}


def job(
    script: str, *, pod: dict[str, Any] | None = None, main: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    indexed = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 2}
    template = {"restartPolicy": "Never", "containers": [container(script, **(main or {}))], **(pod or {})}
    spec = {**indexed, "podFailurePolicy": CODES, **spec, "template": {"spec": template}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}


def plain(script: str, *, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"restartPolicy": "Never", "containers": [container(script)], **(pod or {})}
    return {"kind": "Job", "metadata": {"name": "j"}, "spec": {**spec, "template": {"spec": template}}}


def run(documents: list[dict[str, Any]], state: Path, **more: Any) -> tuple[LocalResult, Told]:
    told = more.pop("told", None) or Told()
    how = {name: more.pop(name) for name in ("stop", "clock") if name in more}
    node = LocalNode(cpus=2, env={"PATH": os.environ["PATH"]})
    values = {"retry_delay": 0.02, "parallelism": 4, "node": node, **more}
    result = run_documents(documents, str(state), LocalSettings(**values), told, **how)
    return result, told


def status(result: LocalResult, at: int = 0) -> dict[str, Any]:
    return result.jobs[at].status()


def reason(result: LocalResult) -> str:
    outcome = result.jobs[0].ledger.outcome
    return "" if outcome is None else outcome.reason


def logged(result: LocalResult, name: str) -> str:
    return (Path(result.logs) / name).read_text()


def living(group: int) -> list[str]:
    """The processes of a group that are more than a zombie."""
    ps = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in ps.splitlines()]
    return [row[2] for row in rows if int(row[0]) == group and not row[1].startswith("Z")]


def test_a_hundred_indexes_with_a_poison_a_killed_and_a_flaky_one(tmp_path: Path) -> None:
    script = f"""
    echo "at $JOB_COMPLETION_INDEX"
    case $JOB_COMPLETION_INDEX in
      17) echo poison; exit 65 ;;
      40) kill -KILL $(sh -c 'echo $PPID') ;;
      41) [ -e {tmp_path}/flaky ] || {{ touch {tmp_path}/flaky; exit 1; }} ;;
    esac
    """
    result, told = run([job(script, completions=100, parallelism=50)], tmp_path / "s")
    found = status(result)
    assert found["completedIndexes"] == "0-16,18-39,41-99"
    assert found["failedIndexes"] == "17,40"
    assert (found["succeeded"], found["failed"], found["active"]) == (98, 5, 0)
    assert [each["type"] for each in found["conditions"]] == ["FailureTarget", "Failed"]
    assert found["conditions"][1]["reason"] == "FailedIndexes"
    assert found["conditions"][1]["message"] == "Job has failed indexes"
    ends = sorted((each.index, each.attempt, each.exit_code, each.action) for each in told.failures)
    assert ends == [
        (17, 1, 65, "FailIndex"),
        (40, 1, 137, "Count"),
        (40, 2, 137, "Count"),
        (40, 3, 137, "Count"),
        (41, 1, 1, "Count"),
    ]
    assert next(each for each in told.failures if each.index == 17).message == "at 17\npoison"
    assert result.exit_code == 1
    assert 1 < told.most_at_once <= 4
    assert logged(result, "99-1.log") == "at 99\n"
    assert len(os.listdir(result.logs)) == 103
    assert not os.path.exists(tmp_path / "s" / "pods")


def test_fail_job_ends_all_at_once(tmp_path: Path) -> None:
    # The fifth index begins once the first is known to be done.
    wait = f"until [ -e {tmp_path}/fifth ]; do sleep 0.02; done"
    touch = f"touch {tmp_path}/fifth"
    script = f"case $JOB_COMPLETION_INDEX in 0) exit ;; 3) {wait}; exit 2 ;; 4) {touch} ;; esac; sleep 1000"
    begun = time.monotonic()
    result, told = run([job(script, completions=50, activeDeadlineSeconds=120)], tmp_path / "s")
    assert time.monotonic() - begun < 60
    ledger = result.jobs[0].ledger
    assert reason(result) == "PodFailurePolicy" and ledger.outcome is not None
    assert (
        ledger.outcome.message
        == "Container main for pod default/j-3-1 failed with exit code 2 matching FailJob rule at index 1"
    )
    assert (ledger.done, ledger.failed) == ({0}, set())
    assert [each.index for each in told.failures] == [3]


def test_too_many_failed_indexes(tmp_path: Path) -> None:
    result, _ = run([job("exit 66", completions=50, maxFailedIndexes=3)], tmp_path / "s", parallelism=2)
    assert reason(result) == "MaxFailedIndexesExceeded"
    assert len(result.jobs[0].ledger.failed) == 4 and result.exit_code == 1


@pytest.mark.parametrize(("codes", "expected"), [("exit 3", 3), ("exit $((3 - JOB_COMPLETION_INDEX))", 1), ("true", 0)])
def test_exit_code_three_only_where_samples_were_set_aside(tmp_path: Path, codes: str, expected: int) -> None:
    result, _ = run([job(codes, completions=3, backoffLimitPerIndex=0, podFailurePolicy={})], tmp_path / "s")
    assert result.exit_code == expected


def test_the_deadline_ends_pods_with_term_and_then_kill(tmp_path: Path) -> None:
    up = f"touch {tmp_path}/up-$JOB_COMPLETION_INDEX"
    script = f"trap 'echo term >> {tmp_path}/$JOB_COMPLETION_INDEX' TERM; {up}; while :; do sleep 0.05; done"
    spec: dict[str, Any] = {"activeDeadlineSeconds": 1, "completions": 2}

    def seconds() -> Iterator[float]:
        yield from stands_until(lambda: len(list(tmp_path.glob("up-*"))) == 2, 0.0)
        yield from itertools.repeat(0.99, 10)
        assert not list(tmp_path.glob("[01]"))
        yield from stands_until(lambda: [each.read_text() for each in tmp_path.glob("[01]")] == ["term\n"] * 2, 1.0)
        yield from itertools.repeat(1.99, 10)
        assert told.running == 2
        yield from itertools.repeat(2.0)

    told, clock = Told(), seconds()
    more: dict[str, Any] = {"told": told, "clock": lambda: next(clock)}
    result, _ = run([job(script, pod={"terminationGracePeriodSeconds": 1}, **spec)], tmp_path / "s", **more)
    assert reason(result) == "DeadlineExceeded"
    assert (tmp_path / "0").read_text() == "term\n" == (tmp_path / "1").read_text()


def test_jobs_that_are_not_indexed(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/$HOSTNAME && [ $(ls {tmp_path} | grep -c ^j-) -gt 2 ]"
    result, told = run([plain(script, completions=3, backoffLimit=4)], tmp_path / "s", parallelism=1)
    assert reason(result) == "CompletionsReached" and result.exit_code == 0
    assert (status(result)["succeeded"], status(result)["failed"]) == (3, 2)
    assert "completedIndexes" not in status(result) and len(told.failures) == 2
    assert sorted(each for each in os.listdir(tmp_path) if each != "s") == ["j-0-1", "j-0-2", "j-0-3", "j-1-1", "j-2-1"]
    result, _ = run([plain("exit 1", backoffLimit=1)], tmp_path / "t")
    assert reason(result) == "BackoffLimitExceeded" and status(result)["failed"] == 2


def test_containers_are_restarted_in_their_pod(tmp_path: Path) -> None:
    volume = {"volumes": [{"name": "v", "emptyDir": {}}], "restartPolicy": "OnFailure"}
    main = container("echo x >> $V/x; [ $(wc -l < $V/x) -ge 3 ]")
    main |= {"env": [{"name": "V", "value": "/v"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    result, told = run([plain("", pod={**volume, "containers": [main]})], tmp_path / "s")
    assert result.exit_code == 0
    assert [(each.attempt, each.action) for each in told.failures] == [(1, "Restart"), (1, "Restart")]


@pytest.mark.parametrize("restarts", ["Never", "OnFailure"])
@pytest.mark.parametrize("script", ["sleep 1000", "trap 'exit 0' TERM; sleep 1000 & wait"])
def test_a_pod_that_is_out_of_its_time_has_failed(tmp_path: Path, restarts: str, script: str) -> None:
    spec = {"restartPolicy": restarts, "activeDeadlineSeconds": 1, "containers": [container(script)]}
    result, told = run([{"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}], tmp_path / "s")
    assert [(each.exit_code, each.reason, each.action) for each in told.failures] == [
        (143, "DeadlineExceeded", "Count")
    ]
    assert result.exit_code == 1


def test_a_job_makes_a_new_pod_for_one_that_is_out_of_its_time(tmp_path: Path) -> None:
    script = f"[ -e {tmp_path}/again ] || {{ touch {tmp_path}/again; sleep 1000; }}"
    own = {"restartPolicy": "OnFailure", "activeDeadlineSeconds": 1}
    result, told = run([plain(script, pod=own)], tmp_path / "s")
    assert [(each.attempt, each.reason, each.action) for each in told.failures] == [(1, "DeadlineExceeded", "Count")]
    assert reason(result) == "CompletionsReached"


@pytest.mark.skipif(not can_measure(), reason="NO /proc HERE, THE MEMORY LIMIT IS NOT TESTED")
def test_more_memory_than_the_limit(tmp_path: Path) -> None:
    script = f"{sys.executable} -c 'import time; x = bytearray(200 << 20); time.sleep(1000)'"
    limit = {"resources": {"limits": {"memory": "100Mi"}}}
    result, told = run([job(script, main=limit, completions=1, backoffLimitPerIndex=1)], tmp_path / "s")
    assert [(each.exit_code, each.reason, each.action) for each in told.failures] == [(137, "OOMKilled", "Count")] * 2
    assert status(result)["failedIndexes"] == "0"
    limit = {"resources": {"limits": {"memory": "1Gi"}}}
    result, told = run([job(script.replace("1000", "0.5"), main=limit, completions=1)], tmp_path / "t")
    assert result.exit_code == 0


def test_where_memory_can_not_be_measured_that_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.k8s.local.run.can_measure", lambda: False)
    result, told = run([job("true", main={"resources": {"limits": {"memory": "1"}}})], tmp_path / "s")
    assert result.exit_code == 0
    assert told.notes.count("this system has no /proc, so memory is not limited") == 1


def test_several_jobs_share_the_slots(tmp_path: Path) -> None:
    documents = []
    for number in range(6):
        documents.append(plain(f"echo {number}; [ {number} != 4 ]", backoffLimit=0))
        documents[-1]["metadata"] = {"name": f"job{number}"}
    result, told = run(documents, tmp_path / "s", parallelism=2)
    assert [each.ledger.outcome and each.ledger.outcome.type for each in result.jobs] == [
        "Complete", "Complete", "Complete", "Complete", "Failed", "Complete",
    ]  # fmt: skip
    assert told.most_at_once == 2 and result.exit_code == 1
    assert logged(result, "job5/0-1.log") == "5\n"


def test_volumes_of_one_name_of_two_jobs_have_the_files_of_each(tmp_path: Path) -> None:
    """The second Job got the files of the first one, in silence."""
    documents: list[dict[str, Any]] = []
    for name in ("one", "two"):
        volume = {"volumes": [{"name": "v", "configMap": {"name": name}}]}
        main = {"command": ["cat", "/v/x"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        document = job("", pod=volume, main=main, completions=1)
        config = {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": f"of {name}"}}
        documents += [config, {**document, "metadata": {"name": name}}]
    result, _ = run(documents, tmp_path / "s")
    assert result.exit_code == 0
    assert [logged(result, f"{name}/0-1.log") for name in ("one", "two")] == ["of one", "of two"]


def test_a_pod(tmp_path: Path) -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"restartPolicy": "Never", "containers": [container("hostname; echo $HOSTNAME")]},
    }
    result, _ = run([pod], tmp_path / "s")
    assert result.exit_code == 0 and logged(result, "0-1.log").splitlines()[-1] == "p"


def test_only_some_indexes_and_parallelism_from_the_manifest(tmp_path: Path) -> None:
    result, told = run(
        [job("true", completions=500, parallelism=128)],
        tmp_path / "s",
        indexes={3, 7, 8},
        parallelism=None,
    )
    assert status(result)["completedIndexes"] == "3,7,8" and result.exit_code == 0
    assert told.most_at_once <= 2
    assert any("2 pods at once" in note and "128" in note for note in told.notes)


def test_a_rerun_runs_what_is_not_done(tmp_path: Path) -> None:
    script = f"echo $JOB_COMPLETION_INDEX >> {tmp_path}/ran; [ -e {tmp_path}/mended ] || [ $JOB_COMPLETION_INDEX != 2 ]"
    document = job(script, completions=5, backoffLimitPerIndex=1)
    result, _ = run([document], tmp_path / "s")
    assert (result.exit_code, status(result)["failedIndexes"]) == (1, "2")
    (tmp_path / "mended").touch()
    document["spec"]["parallelism"] = 2
    result, told = run([document], tmp_path / "s")
    assert (result.exit_code, status(result)["completedIndexes"]) == (0, "0-4")
    assert sorted((tmp_path / "ran").read_text().split()) == ["0", "1", "2", "2", "2", "3", "4"]
    assert any("4 of 5 were done before" in note for note in told.notes)
    assert (Path(result.logs) / "2-3.log").exists()
    result, _ = run([document], tmp_path / "s")
    assert result.exit_code == 0 and len((tmp_path / "ran").read_text().split()) == 7
    result, _ = run([document], tmp_path / "s", fresh=True)
    assert result.exit_code == 0 and len((tmp_path / "ran").read_text().split()) == 12
    with pytest.raises(UsageError, match="belongs to another manifest"):
        run([job("other", completions=5)], tmp_path / "s")


def test_a_journal_cut_short_and_a_damaged_one(tmp_path: Path) -> None:
    document = job("true", completions=3)
    run([document], tmp_path / "s")
    journal = tmp_path / "s" / "journal"
    whole = journal.read_bytes()
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [each["event"] for each in lines[1:]].count("end") == 3
    # The last end is torn: that index is run again, and its record is whole.
    journal.write_bytes(whole[:-9])
    result, _ = run([document], tmp_path / "s")
    assert result.exit_code == 0 and len([json.loads(line) for line in journal.read_bytes().splitlines()]) > len(lines)
    assert len(os.listdir(result.logs)) == 4
    journal.write_bytes(whole[:5] + b"\n" + whole)
    with pytest.raises(DataError, match="the journal is damaged, or of another version; begin anew with --fresh"):
        run([document], tmp_path / "s")


def test_folders_that_can_not_hold_the_state(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"holds thesis\.txt, so it is not a state folder"):
        run([job("true")], tmp_path / "mine", fresh=True)
    (tmp_path / "file").touch()
    with pytest.raises(StreamError, match="the state folder cannot be used"):
        run([job("true")], tmp_path / "file")


@pytest.mark.parametrize("seconds", [20, 1000])
def test_the_watchdog_of_a_killed_run_is_waited_for(tmp_path: Path, seconds: int) -> None:
    slept = 0.0

    def sleep(more: float) -> None:
        nonlocal slept
        slept += more
        if slept > seconds:
            fcntl.flock(lock, fcntl.LOCK_UN)

    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Of a process that is no more: Linux has no number as high.
        print((1 << 22) + 1, file=lock, flush=True)
        if seconds > 60:
            with pytest.raises(UsageError, match="another kubetpl local is running"):
                StateFolder(str(tmp_path), "digest", sleep=sleep)
            assert 59 < slept < 61
        else:
            with StateFolder(str(tmp_path), "digest", sleep=sleep):
                assert 20 < slept < 21


def test_stopping_asks_first_and_is_no_failure(tmp_path: Path) -> None:
    trap = f"trap 'echo $JOB_COMPLETION_INDEX >> {tmp_path}/term; exit 1' TERM"
    script = f"{trap}; touch {tmp_path}/up-$JOB_COMPLETION_INDEX; while :; do sleep 0.02; done"
    document = job(script, completions=9, activeDeadlineSeconds=120)
    result, told = run([document], tmp_path / "s", stop=lambda: int(len(list(tmp_path.glob("up-*"))) == 4))
    assert result.interrupted and not told.failures and reason(result) == ""
    assert sorted(set((tmp_path / "term").read_text().split())) == ["0", "1", "2", "3"]


def test_stopping_twice_waits_no_longer(tmp_path: Path) -> None:
    script = f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 0.02; done"
    asked = 0

    def stop() -> int:
        nonlocal asked
        asked += (tmp_path / "up").exists()
        return min(asked, 2)

    begun = time.monotonic()
    result, _ = run([job(script, pod={"terminationGracePeriodSeconds": 1000})], tmp_path / "s", stop=stop)
    assert result.interrupted and time.monotonic() - begun < 100


def test_an_exception_leaves_no_process(tmp_path: Path) -> None:
    def stop() -> int:
        if (tmp_path / "up").exists():
            raise KeyboardInterrupt
        return 0

    # A kubelet makes one dollar of two.
    script = f"echo $$$$ > {tmp_path}/pid; touch {tmp_path}/up; sleep 1000 & wait"
    with pytest.raises(KeyboardInterrupt):
        run([job(script, completions=1)], tmp_path / "s", stop=stop)
    group = int((tmp_path / "pid").read_text())
    wait_for(lambda: not living(group))


def test_what_a_pod_leaves_running_ends_with_it(tmp_path: Path) -> None:
    result, _ = run([job(f"sleep 1000 & echo $$$$ > {tmp_path}/group", completions=1)], tmp_path / "s")
    assert result.exit_code == 0
    group = int((tmp_path / "group").read_text())
    wait_for(lambda: not living(group))


@pytest.mark.skipif(sys.platform != "linux", reason="DAEMONS ARE FOUND IN /proc, WHICH IS LINUX ONLY")
def test_a_daemon_ends_with_its_own_pod(tmp_path: Path) -> None:
    script = f"""
    setsid sleep 600 & daemon=$!
    echo $daemon >> {tmp_path}/daemons
    # The other pod has ended by then, with its daemon, and must not have ended this one.
    case $JOB_COMPLETION_INDEX in
      1) until [ -e {tmp_path}/over ]; do sleep 0.02; done; kill -0 $daemon && touch {tmp_path}/alive ;;
    esac
    """

    class Watching(Told):
        def progress(self, jobs: Sequence[JobRun]) -> None:
            if 0 in jobs[0].ledger.done:
                (tmp_path / "over").touch()

    result, _ = run([job(script, completions=2)], tmp_path / "s", told=Watching())
    assert result.exit_code == 0
    daemons = (tmp_path / "daemons").read_text().split()
    assert len(daemons) == 2 and (tmp_path / "alive").exists()
    wait_for(lambda: not any(living(int(each)) for each in daemons))


@pytest.mark.skipif(sys.platform != "linux", reason="DAEMONS ARE FOUND IN /proc, WHICH IS LINUX ONLY")
def test_a_process_that_becomes_another_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of it the kernel shows no variables of it, as of processes that have none."""

    def show(pid: int, variables: bytes, *, vsize: int = 9, start: int = 0, end: int = 0) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        (tmp_path / str(pid) / "environ").write_bytes(variables)
        fields = ["S", *["1"] * 19, vsize, *["1"] * 26, start, end, "0"]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) {' '.join(map(str, fields))}\n")

    def pause(_: float) -> None:
        pauses.append(len(pauses))
        if len(pauses) == 3:
            show(4, f"A=1\0{MARK}=/pods/x\0".encode(), start=70, end=90)

    pauses: list[int] = []
    show(2, b"", vsize=0)
    show(3, b"", start=70, end=70)
    show(4, b"")
    show(5, f"{MARK}=/pods/y\0".encode(), start=70, end=80)
    monkeypatch.setattr(processes, "_PROC", str(tmp_path))
    monkeypatch.setattr("tarkit.k8s.local.processes.time.sleep", pause)
    assert marked("/pods/x") == [4] and len(pauses) == 3


@pytest.mark.parametrize(
    ("documents", "error", "says"),
    [
        ([{"kind": "Service"}], UsageError, "neither a Job nor a Pod"),
        ([{"kind": "Deployment"}], UsageError, "a Deployment does not run on this machine"),
        ([job("true"), job("true")], UsageError, "two documents have the name j"),
        ([{"kind": "Job", "metadata": {"name": "j"}, "spec": {}}], UsageError, "has no containers"),
        ([{"kind": "Job", "metadata": {"name": "../j"}, "spec": {}}], UsageError, "not a name of a Kubernetes object"),
        ([{"kind": "Job", "metadata": {"name": "j\0"}, "spec": {}}], UsageError, "not a name of a Kubernetes object"),
        ([job("", main={"command": []})], UsageError, "has no command"),
        ([job("", pod={"initContainers": [container("")]})], UsageError, "only pods of one container run here"),
        ([job("", pod={"containers": [container(""), container("")]})], UsageError, "only pods of one container run"),
        (
            [job("", main={"command": ["nosuchprogram"]})],
            CommandNotRunnableError,
            "nosuchprogram is not on this machine",
        ),
        (
            [job("", main={"volumeMounts": [{"name": "v"}]})],
            UsageError,
            "which the pod does not have",
        ),
    ],
)
def test_manifests_that_can_not_be_run(
    tmp_path: Path, documents: list[dict[str, Any]], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        run(documents, tmp_path / "s")


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="parallelism is 0, so a cluster would run nothing"):
        run([job("true", parallelism=0)], tmp_path / "s", parallelism=None)
    other = job("true")
    other["metadata"] = {"name": "k"}
    with pytest.raises(UsageError, match="--index is for one Job"):
        run([job("true"), other], tmp_path / "s", indexes={1})
    # Nothing was run, so the folder is still anybody's.
    assert run([job("true")], tmp_path / "s")[0].exit_code == 0


def test_what_of_this_machine_pods_see(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").touch()
    environ = {
        "PATH": "/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8", "LC_ALL": "C", "AWS_PROFILE": "p", "https_proxy": "x",
        "EDITOR": "vi", "PYTHONPATH": "/p", "MY_TOKEN": "t",
    }  # fmt: skip
    seen = {name: environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "AWS_PROFILE", "https_proxy")}
    seen["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path / ".aws" / "credentials")
    assert host_env(environ) == seen
    assert host_env(environ, everything=True) == {**environ, **seen}
    assert host_env({"AWS_SHARED_CREDENTIALS_FILE": "/mine", "HOME": str(tmp_path)}) == {
        "AWS_SHARED_CREDENTIALS_FILE": "/mine", "HOME": str(tmp_path),
    }  # fmt: skip


def test_jobs_that_wait_for_one_another_begin_again_together(tmp_path: Path) -> None:
    service = plain(f"echo >> {tmp_path}/a")
    worker = plain(f"until test -e {tmp_path}/a; do sleep 0.02; done; sleep 0.2; test -e {tmp_path}/go")
    service["metadata"], worker["metadata"] = {"name": "a"}, {"name": "b"}
    worker["spec"]["backoffLimit"] = 0
    begun = tmp_path / "a"
    for code, times in ((1, 1), (0, 2), (0, 2)):
        assert run([service, worker], tmp_path / "state", together=True)[0].exit_code == code
        assert len(begun.read_text()) == times
        (tmp_path / "go").touch()


@pytest.mark.parametrize("code", [0, 143])
def test_a_service_is_ended_when_its_trainers_have_and_is_to_have_handed_out_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr("tarkit.k8s.local.run._ALONE", 0.2)
    # A shell that is asked to end before its trap is set ends with 143 in any case.
    service = plain(f"trap 'exit {code}' TERM; touch {tmp_path}/up; while :; do sleep 0.02; done")
    worker = plain(f"until [ -e {tmp_path}/up ]; do sleep 0.02; done")
    service["metadata"], worker["metadata"] = {"name": "a"}, {"name": "b"}
    worker["spec"]["template"]["metadata"] = {"labels": {"role": "worker"}}
    result, told = run([service, worker], tmp_path / "state", together=True)
    assert (result.exit_code, result.interrupted) == (int(code > 0), False)
    assert [each for each in told.notes if "trainers" in each] == [
        "the trainers have ended, and the shard service has not: nothing takes the rest of the data"
    ][: result.exit_code]


def test_a_service_sees_that_its_workers_are_gone_before_a_stopped_run_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarkit.k8s.local.run._SEEN", 0.1)
    ends, both = tmp_path / "ends", []
    for name, seconds in (("a", 0), ("b", 0.3)):
        trap = f"trap 'sleep {seconds}; echo {name} >> {ends}; exit 0' TERM"
        both.append(plain(f"{trap}; touch {tmp_path}/{name}; while true; do sleep 0.01; done"))
        both[-1]["metadata"] = {"name": name}

    def stop() -> int:
        return int((tmp_path / "a").exists() and (tmp_path / "b").exists())

    assert run(both, tmp_path / "state", together=True, stop=stop)[0].interrupted
    assert ends.read_text() == "b\na\n"
