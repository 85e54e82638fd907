"""Manifests run on this machine, with real processes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from localjobs import job, living, plain
from waiting import wait_for

from tarkit.errors import CommandNotRunnableError, UsageError
from tarkit.k8s.indexset import format_indexes
from tarkit.k8s.local import run as running
from tarkit.k8s.local.pods import LocalSettings
from tarkit.k8s.local.policy import JobLedger
from tarkit.k8s.local.processes import MARK, LocalPod, Process, Watchdog
from tarkit.k8s.local.state import ask_to_scale, locked_folder


class Run:
    """A run of documents with this state folder: its Jobs, what was noted, and the pods that
    failed.
    """

    def __init__(self, folder: Path, *documents: dict[str, Any], **more: Any) -> None:
        self.notes: list[str] = []
        self.failures: list[str] = []
        self.logs = folder / "logs"
        self.jobs: list[JobLedger] = []
        settings = {"retry_delay": 0.02, "parallelism": 4, "env": {"PATH": os.environ["PATH"]}, **more}
        self.jobs = running.run_documents(
            documents, str(folder), LocalSettings(**settings), note=self.notes.append, say=self.say
        )
        assert not (folder / "pods").exists()

    def say(self, line: str) -> None:
        if ": exit code" in line:
            self.failed(line)

    def failed(self, line: str) -> None:
        self.failures.append(line)

    @property
    def reason(self) -> str:
        assert self.jobs[0].outcome is not None
        return self.jobs[0].outcome.reason


def test_indexes_with_a_poison_a_killed_and_a_flaky_one(tmp_path: Path) -> None:
    script = f"""
    echo "at $JOB_COMPLETION_INDEX"
    case $JOB_COMPLETION_INDEX in
      7) echo poison; exit 65 ;;
      10) kill -KILL $(sh -c 'echo $PPID') ;;
      11) [ -e {tmp_path}/flaky ] || {{ touch {tmp_path}/flaky; exit 1; }} ;;
    esac
    """
    done = Run(tmp_path / "s", job(script, completions=20, parallelism=20))
    (found,) = done.jobs
    assert (found.done, found.failed, found.failures) == (set(range(20)) - {7, 10}, {7, 10}, 5)
    assert (done.reason, found.exit_code) == ("FailedIndexes", 1)
    assert sorted(done.failures) == [
        *(f"j-10-{attempt}: exit code 137 (Count): at 10" for attempt in (1, 2, 3)),
        "j-11-1: exit code 1 (Count): at 11",
        "j-7-1: exit code 65 (FailIndex): poison",
    ]
    assert (done.logs / "j" / "19-1.log").read_text() == "at 19\n"
    assert len(os.listdir(done.logs / "j")) == 23


def test_fail_job_ends_all_at_once(tmp_path: Path) -> None:
    # The fifth index begins once the first is known to be done.
    wait = f"until [ -e {tmp_path}/fifth ]; do sleep 0.02; done"
    touch = f"touch {tmp_path}/fifth"
    script = f"case $JOB_COMPLETION_INDEX in 0) exit ;; 3) {wait}; exit 2 ;; 4) {touch} ;; esac; sleep 1000"
    done = Run(tmp_path / "s", job(script, completions=50, activeDeadlineSeconds=120))
    assert done.reason == "PodFailurePolicy"
    assert (done.jobs[0].done, done.jobs[0].failed, len(done.failures)) == ({0}, set(), 1)


AT = "case $JOB_COMPLETION_INDEX in {} esac"
FAILED = "Container main for pod default/j-3-1 failed with exit code 2 matching FailJob rule at index 0"


@pytest.mark.parametrize(
    ("document", "completed", "failed", "reason", "message"),
    [
        (job("true"), "0-3", "", "CompletionsReached", "Reached expected number of succeeded pods"),
        (
            job(AT.format("1) exit 65;; 4) exit 1;; 5) kill -9 0;;"), completions=8),
            "0,2,3,6,7", "1,4,5", "FailedIndexes", "Job has failed indexes",
        ),
        (
            job("exit 3", completions=6, parallelism=1, maxFailedIndexes=2),
            "", "0-2", "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes",
        ),
        (job(AT.format("3) exit 2;; *) sleep 1000;;")), "", "", "PodFailurePolicy", FAILED),
        (
            job("sleep 1000", activeDeadlineSeconds=1),
            "", "", "DeadlineExceeded", "Job was active longer than specified deadline",
        ),
        (
            plain("exit 4", backoffLimit=2),
            "", "", "BackoffLimitExceeded", "Job has reached the specified backoff limit",
        ),
        (
            plain("true", completions=3, parallelism=2),
            "0-2", "", "CompletionsReached", "Reached expected number of succeeded pods",
        ),
    ],
)  # fmt: skip
def test_a_job_ends_as_a_job_controller_ends_it(
    tmp_path: Path, document: dict[str, Any], completed: str, failed: str, reason: str, message: str
) -> None:
    (found,) = Run(tmp_path / "s", document, parallelism=document["spec"].get("parallelism", 1)).jobs
    assert (format_indexes(found.done), format_indexes(found.failed)) == (completed, failed)
    assert found.outcome == ("Complete" if reason == "CompletionsReached" else "Failed", reason, message)


def test_a_pod_is_killed_after_its_time_of_grace(tmp_path: Path) -> None:
    script = f"trap 'echo term >> {tmp_path}/term' TERM; touch {tmp_path}/up; while :; do sleep 0.02; done"
    env = {"PATH": os.environ["PATH"], MARK: str(tmp_path / "pods" / "p" / "work")}
    with open(tmp_path / "lock", "w") as lock:
        watchdog = Watchdog(lock.fileno(), str(tmp_path / "pods"))
        process = Process(["/bin/sh", "-c", script], env, str(tmp_path), 5.0)
        pod = LocalPod("p", process, str(tmp_path / "log"), watchdog, 0.0)
        wait_for((tmp_path / "up").exists)
        pod.terminate(10.0)
        # The shell opens it before it writes.
        wait_for(lambda: (tmp_path / "term").exists() and (tmp_path / "term").read_text() != "")
        assert pod.poll(14.9) is None
        pod.terminate(14.9)  # changes nothing
        wait_for(lambda: pod.poll(15.0) == 137)
        watchdog.close()
    assert (tmp_path / "term").read_text() == "term\n"


def test_a_pod(tmp_path: Path) -> None:
    for policy, code in (("Never", 1), ("OnFailure", 0)):
        script = f"echo $HOSTNAME; rmdir {tmp_path}/x && exit 1; exit 0"
        (tmp_path / "x").mkdir()
        spec = plain(script, pod={"restartPolicy": policy})["spec"]["template"]["spec"]
        done = Run(tmp_path / policy, {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
        assert (done.jobs[0].exit_code, len(done.failures)) == (code, 1)
        assert (done.logs / "p" / "0-1.log").read_text() == "p\n"


def test_a_retry_is_a_new_pod_and_a_restart_is_in_its_pod(tmp_path: Path) -> None:
    mounts = {"env": [{"name": "V", "value": "/v"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    for policy, attempts, counts in (("Never", 3, "1\n1\n1\n"), ("OnFailure", 3, "1\n2\n3\n")):
        script = f"echo >> $V/x; wc -l < $V/x >> {tmp_path}/{policy}; [ $(wc -l < {tmp_path}/{policy}) -ge 3 ]"
        document = plain(script, pod={"volumes": [{"name": "v", "emptyDir": {}}], "restartPolicy": policy})
        container = document["spec"]["template"]["spec"]["containers"][0]
        container.update(mounts, command=["/bin/sh", "-c", script])
        done = Run(tmp_path / f"state-{policy}", document)
        assert (done.reason, len(done.failures)) == ("CompletionsReached", attempts - 1)
        assert (tmp_path / policy).read_text() == counts


def test_several_jobs_share_the_slots_and_each_has_its_own_files(tmp_path: Path) -> None:
    """The second Job got the files of the first one, in silence, where their volumes have one
    name."""
    documents: list[dict[str, Any]] = []
    for name, code in (("one", 0), ("two", 4), ("three", 0)):
        script = f"mkdir {tmp_path}/alone && cat $V/x && rmdir {tmp_path}/alone; exit {code}"
        document = plain(script, name=name, backoffLimit=0)
        spec = document["spec"]["template"]["spec"]
        spec["volumes"] = [{"name": "v", "configMap": {"name": name}}]
        mounts = [{"name": "v", "mountPath": "/v"}]
        spec["containers"][0].update(volumeMounts=mounts, env=[{"name": "V", "value": "/v"}])
        documents += [{"kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": f"of {name}"}}, document]
    done = Run(tmp_path / "s", *documents, parallelism=1)
    assert [each.exit_code for each in done.jobs] == [0, 1, 0]
    assert [(done.logs / name / "0-1.log").read_text() for name in ("one", "two", "three")] == [
        "of one", "of two", "of three",
    ]  # fmt: skip


def test_no_more_pods_at_once_than_cpus_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_cpus", lambda: 2)
    done = Run(tmp_path / "s", job("true", completions=5, parallelism=128), parallelism=None)
    assert any("2 pods at once" in note and "128" in note for note in done.notes)
    Run(tmp_path / "s", job("true"))
    assert (done.logs / "j" / "0-2.log").exists(), "logs of an earlier run stay"


def test_an_exception_ends_all_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a signal, which is raised as one."""

    def interrupt(_: Run, line: str) -> None:
        raise KeyboardInterrupt(line)

    monkeypatch.setattr(Run, "failed", interrupt)
    # A kubelet makes one dollar of two.
    begin = f"trap 'echo >> {tmp_path}/term; exit' TERM; echo $$$$ > {tmp_path}/group; sleep 1000 & wait"
    wait = f"until [ -s {tmp_path}/group ]; do sleep 0.02; done; exit 1"
    with pytest.raises(KeyboardInterrupt):
        Run(tmp_path / "s", job(f"[ $JOB_COMPLETION_INDEX = 0 ] || {{ {wait}; }}; {begin}", completions=2))
    assert (tmp_path / "term").exists()
    group = (tmp_path / "group").read_text().strip()
    wait_for(lambda: not living(group))


@pytest.mark.skipif(sys.platform != "linux", reason="DAEMONS ARE FOUND IN /proc, WHICH IS LINUX ONLY")
def test_what_a_pod_leaves_running_ends_with_it_alone(tmp_path: Path) -> None:
    script = f"""
    sleep 1000 &
    setsid sleep 1000 & daemon=$!
    echo $$$$ $daemon >> {tmp_path}/groups
    # The other pod has ended by then, with its daemon, and must not have ended this one.
    case $JOB_COMPLETION_INDEX in
      0) exit 1 ;;
      1) until [ -e {tmp_path}/over ]; do sleep 0.02; done; kill -0 $daemon && touch {tmp_path}/alive ;;
    esac
    """

    class Watching(Run):
        def failed(self, line: str) -> None:
            (tmp_path / "over").touch()

    Watching(tmp_path / "s", job(script, completions=2, backoffLimitPerIndex=0))
    assert (tmp_path / "alive").exists()
    groups = (tmp_path / "groups").read_text().split()
    assert len(groups) == 4
    wait_for(lambda: not living(*groups))


@pytest.mark.parametrize(
    ("documents", "says"),
    [
        ([{"kind": "Service", "metadata": {"name": "s"}}], "neither a Job nor a Pod"),
        ([{"kind": "Deployment"}], "a Deployment does not run on this machine"),
        ([job("true"), job("true")], "have one name"),
        ([plain("", name="../j")], "may have only a-z"),
        ([plain("", pod={"volumes": [{"name": "../v"}]})], "the name of a volume or claim: '../v' may have only"),
        ([job("", main={"command": []})], "has no command"),
        ([plain("", pod={"containers": []})], "has not one container"),
        ([plain("", pod={"containers": [{}, {}]})], "only pods of one container, with its sidecars, run"),
        ([job("", main={"command": ["nosuchprogram"]})], "nosuchprogram is not on this machine"),
        ([job("", main={"volumeMounts": [{"name": "v"}]})], "which the pod lacks"),
        ([plain("", parallelism=3)], "completions None with parallelism 3 is not done here"),
        ([job("", parallelism=0)], "with parallelism 0 is not done here"),
        # Whatever would change the result is refused by its name.
        ([plain("", suspend=True)], "Job: suspend is not done here"),
        ([job("", successPolicy={"rules": [{}]})], "successPolicy is not done here"),
        ([plain("", pod={"initContainers": [{}]})], "an init container that is not a sidecar"),
        ([plain("", pod={"activeDeadlineSeconds": 3})], "Pod: activeDeadlineSeconds is not done here"),
        ([plain("", pod={"restartPolicy": "Always"})], "restartPolicy: 'Always' is not one of Never, OnFailure here"),
        ([plain("", pod={"restartPolicy": None})], "restartPolicy: 'Always' is not one of Never, OnFailure here"),
        ([job("", main={"lifecycle": {"x": 1}})], "container: lifecycle is not done here"),
        ([job("", main={"envFrom": [{}]})], "container: envFrom is not done here"),
        ([job("", main={"volumeMounts": [{"name": "v", "subPath": "x"}]})], "volumeMounts: subPath is not done here"),
        ([job("", completionMode="indexed")], "completionMode: 'indexed' is not one of Indexed, NonIndexed here"),
        (
            [job("", podFailurePolicy={"rules": [{"action": "Shrug"}]})],
            "action: 'Shrug' is not one of Count, FailIndex",
        ),
        ([job("", main={"env": ["x"]})], "env: 'x' is not a mapping"),
    ],
)
def test_manifests_that_can_not_be_run(tmp_path: Path, documents: list[dict[str, Any]], says: str) -> None:
    with pytest.raises((UsageError, CommandNotRunnableError), match=re.escape(says)):
        Run(tmp_path / "s", *documents)


def test_a_state_folder_is_of_one_run_and_holds_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine" / "pods").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds files that are not of kubetpl local"):
        Run(tmp_path / "mine", job("true"))
    assert (tmp_path / "mine" / "pods").exists()
    with locked_folder(str(tmp_path / "s")), pytest.raises(UsageError, match="another run, or its last pods"):
        Run(tmp_path / "s", job("true"))
    Run(tmp_path / "s", job("true"))


def together(service: str, worker: str) -> list[dict[str, Any]]:
    """Jobs with the labels of an elastic training job."""
    both = [plain(service, name="a", backoffLimit=3), plain(worker, name="b", backoffLimit=0)]
    for document, role in zip(both, ("shards", "worker"), strict=True):
        document["spec"]["template"]["metadata"] = {"labels": {"role": role}}
    return both


@pytest.mark.parametrize("code", [0, 143])
def test_a_service_is_ended_when_its_trainers_have_and_is_to_have_handed_out_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(running, "_ALONE", 0.2)
    # A shell that is asked to end before its trap is set ends with 143 in any case.
    service = f"trap 'exit {code}' TERM; touch {tmp_path}/up; while :; do sleep 0.02; done"
    done = Run(tmp_path / "s", *together(service, f"until [ -e {tmp_path}/up ]; do sleep 0.02; done"))
    assert [each.exit_code for each in done.jobs] == [int(code > 0), 0]
    if code:
        message = "the trainers have ended, and nothing takes the rest of the data"
        assert done.jobs[0].outcome == ("Failed", "Alone", message)


def test_a_worker_that_fails_ends_the_service(tmp_path: Path) -> None:
    done = Run(tmp_path / "s", *together("sleep 1000", "exit 7"))
    assert [each.outcome and each.outcome.type for each in done.jobs] == [None, "Failed"]
    with pytest.raises(UsageError, match="-j 1: the 2 pods wait for one another"):
        Run(tmp_path / "s", *together("true", "true"), parallelism=1)


def test_an_elastic_job_is_scaled_while_it_runs(tmp_path: Path) -> None:
    script = f"touch {tmp_path}/$HOSTNAME; [ $JOB_COMPLETION_INDEX = 0 ] && exit 1; sleep 1000"
    document = job(script, completions=1, parallelism=1, backoffLimitPerIndex=1000)
    document["metadata"]["annotations"] = {"tarkit.dev/elastic": "true"}
    state = str(tmp_path / "s")
    for name, folder in (("j", state), ("j", str(tmp_path))):
        with pytest.raises(UsageError, match="no run of kubetpl local with this state folder has an elastic Job"):
            ask_to_scale(folder, name, 3)

    class Scaling(Run):
        def failed(self, line: str) -> None:
            if not (tmp_path / "j-2").exists():
                ask_to_scale(state, "j", 3)
                with pytest.raises(UsageError, match="has an elastic Job other"):
                    ask_to_scale(state, "other", 3)
            else:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Scaling(tmp_path / "s", document)
    with pytest.raises(UsageError):
        ask_to_scale(state, "j", 1)


def test_a_sidecar_runs_beside_its_pod_and_ends_with_it(tmp_path: Path) -> None:
    """It has variables and mounts of its own, and shares the volume."""
    beside = {
        "name": "beside", "restartPolicy": "Always", "env": [{"name": "WORD", "value": "seen"}],
        "volumeMounts": [{"name": "v", "mountPath": "/b"}],
        "command": ["sh", "-c", 'echo $$ > "$0"; echo "$WORD $2" > "$1"; sleep 1000', f"{tmp_path}/p", "/b/file", "x"],
    }  # fmt: skip
    script = 'until [ -s "$0" ]; do sleep 0.02; done; read -r found < "$0"; [ "$found" = "seen x" ]'
    main = {"command": ["sh", "-c", script, "/a/file"], "volumeMounts": [{"name": "v", "mountPath": "/a"}]}
    document = job(
        "", main=main, completions=1, pod={"initContainers": [beside], "volumes": [{"name": "v", "emptyDir": {}}]}
    )
    run = Run(tmp_path / "state", document)
    assert (run.failures, run.jobs[0].done) == ([], {0})
    assert not Path(f"/proc/{(tmp_path / 'p').read_text().strip()}").exists()
