"""The real kubectl against a cluster: what it prints is what a real API server made it print."""

from __future__ import annotations

import json
import subprocess

import pytest
from kubecluster import Cluster
from kubejobs import job

pytestmark = pytest.mark.cluster


def test_apply_says_created_then_unchanged_then_immutable(cluster: Cluster) -> None:
    first = job("greet", "echo hello")
    assert "job.batch/greet created" in cluster.kubectl("apply", "-f", "-", input=json.dumps(first), check=True).stdout
    again = cluster.kubectl("apply", "-f", "-", input=json.dumps(first), check=True)
    assert "job.batch/greet unchanged" in again.stdout
    changed = cluster.kubectl("apply", "-f", "-", input=json.dumps(job("greet", "echo other")))
    assert changed.returncode == 1
    assert 'The Job "greet" is invalid: spec.template: Invalid value:' in changed.stderr
    assert "field is immutable" in changed.stderr


def test_server_side_apply(cluster: Cluster) -> None:
    thing = job("ssa", "true", parallelism=1)
    said = cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(thing), check=True).stdout
    assert "job.batch/ssa serverside-applied" in said
    thing["spec"]["parallelism"] = 3
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(thing), check=True)
    assert cluster.json("job", "ssa")["spec"]["parallelism"] == 3


def test_a_job_runs_to_complete_and_its_log_can_be_read(cluster: Cluster) -> None:
    cluster.apply(job("hello", "echo one; echo two >&2"))
    waited = cluster.kubectl("wait", "--for=condition=complete", "job/hello", "--timeout=120s")
    assert waited.returncode == 0, waited.stderr
    assert cluster.kubectl("logs", "job/hello", check=True).stdout == "one\ntwo\n"
    assert cluster.kubectl("logs", "-l", "app=hello", check=True).stdout == "one\ntwo\n"
    done = cluster.json("job", "hello")
    assert done["status"]["succeeded"] == 1
    assert [one["type"] for one in done["status"]["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    table = cluster.kubectl("get", "jobs", check=True).stdout.split()
    assert table[:5] == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert table[5:8] == ["hello", "Complete", "1/1"]
    wide = cluster.kubectl("get", "pods", "-o", "wide", check=True).stdout
    assert "Completed" in wide and "NODE" in wide
    described = cluster.kubectl("describe", "job", "hello", check=True).stdout
    assert "SuccessfulCreate" in described and "Created pod: hello-" in described and "Job completed" in described


def test_wait_for_failed_and_the_reason(cluster: Cluster) -> None:
    cluster.apply(job("bad", "echo broken; exit 3", backoffLimit=0))
    waited = cluster.kubectl("wait", "--for=condition=failed", "job/bad", "--timeout=120s")
    assert waited.returncode == 0, waited.stderr
    status = cluster.json("job", "bad")["status"]
    assert [one["type"] for one in status["conditions"]] == ["FailureTarget", "Failed"]
    assert status["conditions"][1]["reason"] == "BackoffLimitExceeded"
    assert status["conditions"][1]["message"] == "Job has reached the specified backoff limit"
    assert status["failed"] == 1
    pod = cluster.json("pods", "-l", "job-name=bad")["items"][0]
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "Error"


def test_logs_are_followed_while_the_job_runs(cluster: Cluster) -> None:
    cluster.apply(job("slow", "echo first; sleep 1; echo last"))
    cluster.wait_for(lambda: "first" in cluster.kubectl("logs", "job/slow").stdout, "its first line")
    follower = cluster.start("logs", "-f", "job/slow", stdout=subprocess.PIPE)
    with follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        assert follower.stdout.read() == "last\n"
    assert follower.returncode == 0


def test_deleting_a_job_takes_its_pods(cluster: Cluster) -> None:
    cluster.apply(job("endless", "sleep 600", pod={"terminationGracePeriodSeconds": 1}))
    cluster.wait_for(lambda: any(one["status"]["phase"] == "Running" for one in cluster.peek("pods")), "a running pod")
    cluster.kubectl("delete", "job", "endless", check=True)
    gone = cluster.kubectl("get", "job", "endless")
    assert gone.returncode == 1
    assert 'Error from server (NotFound): jobs.batch "endless" not found' in gone.stderr
    cluster.wait_for(lambda: not cluster.peek("pods"), "no pods")


def test_names_that_are_taken_and_names_that_are_not_there(cluster: Cluster) -> None:
    cluster.kubectl("create", "-f", "-", input=json.dumps(job("once", "true")), check=True)
    twice = cluster.kubectl("create", "-f", "-", input=json.dumps(job("once", "true")))
    assert (
        'Error from server (AlreadyExists): error when creating "STDIN": jobs.batch "once" already exists'
        in twice.stderr
    )
    absent = cluster.kubectl("delete", "job", "never")
    assert 'Error from server (NotFound): jobs.batch "never" not found' in absent.stderr


def test_unknown_fields_are_refused_by_name(cluster: Cluster) -> None:
    thing = job("typo", "true", backofLimit=3)
    said = cluster.kubectl("apply", "-f", "-", input=json.dumps(thing)).stderr
    assert 'strict decoding error: unknown field "spec.backofLimit"' in said
    assert cluster.kubectl("get", "job", "typo").returncode == 1


def test_dry_run_on_the_server_keeps_nothing(cluster: Cluster) -> None:
    said = cluster.kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(job("dry", "true")), check=True)
    assert "job.batch/dry created (server dry run)" in said.stdout
    assert cluster.kubectl("get", "job", "dry").returncode == 1


def test_scale_suspend_and_resume_by_patch(cluster: Cluster) -> None:
    cluster.apply(job("paused", "true", suspend=True, completions=4, parallelism=1))
    cluster.wait_for(lambda: "Suspended" in cluster.kubectl("get", "jobs").stdout, what="suspended")
    cluster.kubectl(
        "patch", "job", "paused", "--type=merge", "-p", '{"spec":{"parallelism":4,"suspend":false}}', check=True
    )
    cluster.kubectl("wait", "--for=condition=complete", "job/paused", "--timeout=120s", check=True)
    kinds = {one["type"]: one for one in cluster.json("job", "paused")["status"]["conditions"]}
    assert kinds["Suspended"]["status"] == "False"
    assert kinds["Suspended"]["reason"] == "JobResumed"
