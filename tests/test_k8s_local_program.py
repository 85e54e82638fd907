"""``kubetpl local`` as a program: killed, stopped, run twice; and tarproc in its pods."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for as wait_until

from tarkit import TarWriter
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.status import progress_of

KUBETPL = shutil.which("kubetpl", path=os.path.dirname(sys.executable)) or "kubetpl"


def manifest(script: str, **spec: Any) -> str:
    container = {"name": "main", "image": "x", "command": ["/bin/sh", "-c", script]}
    indexed = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 1}
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 3, "containers": [container]}}
    return json.dumps({"kind": "Job", "metadata": {"name": "j"}, "spec": {**indexed, **spec, "template": template}})


def kubetpl(
    folder: Path, *argv: str, stdin: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it in a folder."""
    words = [KUBETPL, "local", "--retry-delay", "0.05", *argv]
    return subprocess.run(
        words, cwd=folder, input=stdin, capture_output=True, text=True, timeout=300, check=False, env=env
    )


def begin(folder: Path, text: str, *argv: str) -> subprocess.Popen[str]:
    """Have it run for a while."""
    (folder / "job.json").write_text(text)
    words = [KUBETPL, "local", "-f", "job.json", "--retry-delay", "0.05", *argv]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, lines: int = 1) -> None:
    until = time.monotonic() + 120
    while not path.exists() or len(path.read_text().splitlines()) < lines:
        assert time.monotonic() < until, f"{path.name} does not get {lines} lines"
        time.sleep(0.01)


def living(groups: list[int]) -> list[str]:
    ps = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in ps.splitlines()]
    return [row[2] for row in rows if int(row[0]) in groups and not row[1].startswith("Z")]


def test_a_manifest_from_standard_input_with_its_status_as_json(tmp_path: Path) -> None:
    done = kubetpl(
        tmp_path, "-f", "-", "--json", "--index", "1-2", stdin=manifest("[ $JOB_COMPLETION_INDEX = 1 ] || exit 3")
    )
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["kind"] == "Job" and document["metadata"]["name"] == "j"
    assert document["status"]["completedIndexes"] == "1" and document["status"]["failedIndexes"] == "2"
    assert document["status"]["conditions"][1]["reason"] == "FailedIndexes"
    assert document["metadata"]["annotations"]["tarkit.dev/logs"] == str(tmp_path / "j.kubetpl-local" / "logs")
    assert "j index 2, attempt 1: exit code 3 (Error; it counts as a failure)" in done.stderr
    assert "j: Failed (FailedIndexes): done 1 of 2; completedIndexes 1; failedIndexes 2; 2 pods failed" in done.stderr
    assert "images, users and security contexts are a cluster's" in done.stderr
    assert "Traceback" not in done.stderr


def test_many_failures_are_not_all_listed(tmp_path: Path) -> None:
    text = manifest("echo lost; exit 1", completions=15)
    done = kubetpl(tmp_path, "-f", "-", stdin=text)
    assert done.returncode == 1
    assert done.stderr.count(": lost") == 20 and done.stderr.count("further failures are not listed") == 1
    assert "done 0 of 15; failedIndexes 0-14; 30 pods failed" in done.stderr
    done = kubetpl(tmp_path, "-f", "-", "-v", "-q", stdin=text)
    assert done.stderr.count(": lost") == 30 and "CPUs" not in done.stderr


def test_variables_of_this_shell_only_where_asked_for(tmp_path: Path) -> None:
    env = {**os.environ, "MY_TOKEN": "secret", "AWS_PROFILE": "mine"}
    script = manifest("env", completions=1)
    log = tmp_path / "j.kubetpl-local" / "logs"
    assert kubetpl(tmp_path, "-f", "-", stdin=script, env=env).returncode == 0
    lines = (log / "0-1.log").read_text().splitlines()
    assert "AWS_PROFILE=mine" in lines and "MY_TOKEN=secret" not in lines
    assert {"JOB_COMPLETION_INDEX=0", "HOSTNAME=j-0"} <= set(lines)
    assert kubetpl(tmp_path, "-f", "-", "--fresh", "--inherit-env", stdin=script, env=env).returncode == 0
    assert "MY_TOKEN=secret" in (log / "0-1.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("argv", "stdin", "code", "says"),
    [
        ([], "", 2, "no manifest: name one with -f, or a generator"),
        (["-f", "nosuch.yaml"], "", 66, "nosuch.yaml: no such file"),
        (["-f", "-"], "", 2, "it has no manifest in it"),
        (["-f", "-"], "kind: Deployment", 2, "a Deployment does not run on this machine"),
        (["-f", "-", "--index", "x"], manifest("true"), 2, "is not an index or a range"),
        (["-f", "-", "--index", "9"], manifest("true"), 2, "has indexes 0-3"),
        (["-f", "-", "--volume", "x"], manifest("true"), 2, "write NAME=DIR"),
        (["-f", "-", "--volume", "scrach=."], manifest("true"), 2, "--volume scrach: no pod of this manifest has it"),
        (["-f", "-", "indexed"], manifest("true"), 2, "not both -f and indexed"),
        (["nosuch"], "", 2, "service, configmap; got 'nosuch'"),
        (["-f", "-", "-j", "0"], manifest("true"), 2, "0 is not in the range"),
    ],
)
def test_what_can_not_be_run(tmp_path: Path, argv: list[str], stdin: str, code: int, says: str) -> None:
    done = kubetpl(tmp_path, *argv, stdin=stdin)
    assert (done.returncode, says in done.stderr, done.stdout) == (code, True, ""), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_pods_in_good_order(tmp_path: Path, number: int, code: int) -> None:
    trap = f"trap 'echo term >> {tmp_path}/term; exit 7' TERM"
    script = f"{trap}; echo $$$$ >> {tmp_path}/groups; while :; do sleep 0.05; done"
    running = begin(tmp_path, manifest(script), "-j", "3")
    wait_for(tmp_path / "groups", 3)
    running.send_signal(number)
    _, told = running.communicate(timeout=120)
    assert running.returncode == code
    assert set((tmp_path / "term").read_text().split()) == {"term"}
    assert "run the same command again, and it goes on" in told and "exit code 7" not in told
    groups = [int(each) for each in (tmp_path / "groups").read_text().split()]
    wait_until(lambda: not living(groups))


def test_kill_dash_nine_in_the_middle_and_once_more(tmp_path: Path) -> None:
    # Each index takes a moment, and ends only once the runner was killed if it is one of two.
    script = f"""
    echo $$$$ >> {tmp_path}/groups
    case $JOB_COMPLETION_INDEX in
      30|31) [ -e {tmp_path}/killed ] || {{ echo >> {tmp_path}/hang; sleep 1000; }} ;;
    esac
    echo $JOB_COMPLETION_INDEX >> {tmp_path}/ended
    """
    text = manifest(script, completions=100)
    running = begin(tmp_path, text, "-j", "3")
    wait_for(tmp_path / "ended", 50)
    wait_for(tmp_path / "hang", 2)
    running.kill()
    running.wait()
    (tmp_path / "killed").touch()
    before = [json.loads(line) for line in (tmp_path / "j.kubetpl-local" / "journal").read_bytes().splitlines()]
    finished = {each["index"] for each in before if each.get("event") == "end"}
    done = kubetpl(tmp_path, "-f", "job.json", "--json")
    running.communicate()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["completedIndexes"] == "0-99"
    ended = [int(each) for each in (tmp_path / "ended").read_text().split()]
    assert set(ended) == set(range(100)) and len(finished) > 30
    assert all(ended.count(index) == 1 for index in finished)
    assert f"going on in {tmp_path}/j.kubetpl-local: {len(finished)} of 100 were done before" in done.stderr
    # The two that hung were ended before the second run began, by nobody but the watchdog.
    assert ended.count(30) == ended.count(31) == 1
    groups = [int(each) for each in (tmp_path / "groups").read_text().split()]
    wait_until(lambda: not living(groups))


@pytest.mark.skipif(sys.platform != "linux", reason="DAEMONS ARE FOUND IN /proc, WHICH IS LINUX ONLY")
def test_kill_dash_nine_leaves_no_daemon_either(tmp_path: Path) -> None:
    script = f"setsid sleep 600 & echo $! >> {tmp_path}/groups; wait"
    running = begin(tmp_path, manifest(script), "-j", "4")
    wait_for(tmp_path / "groups", 4)
    groups = [int(each) for each in (tmp_path / "groups").read_text().split()]
    wait_until(lambda: living(groups) == ["sleep 600"] * 4)
    running.kill()
    running.communicate()
    wait_until(lambda: not living(groups))


def test_a_second_one_at_the_same_time_is_refused(tmp_path: Path) -> None:
    running = begin(tmp_path, manifest(f"echo x >> {tmp_path}/up; sleep 1000"))
    wait_for(tmp_path / "up")
    done = kubetpl(tmp_path, "-f", "job.json")
    assert done.returncode == 2
    assert "another kubetpl local is running with j.kubetpl-local; wait for it" in done.stderr
    assert running.poll() is None
    running.terminate()
    running.communicate(timeout=120)


def shards(folder: Path, number: int) -> list[str]:
    """Small shards; the third sample of the second is one that the command refuses."""
    names = []
    for shard in range(number):
        names.append(str(folder / f"in-{shard}.tar"))
        with TarWriter(names[-1]) as writer:
            for sample in range(5):
                bad = (shard, sample) == (1, 3)
                writer.write({"__key__": f"s{shard}-{sample}", "txt": b"bad" if bad else b"good"})
    return names


def indexed_manifest(slices: int, outdir: Path, command: str, specs: list[str]) -> str:
    """As kubetpl indexed renders it."""
    args = ["--slice", str(slices), "-O", str(outdir), "-c", command, "--", *specs]
    container = {
        "name": "main",
        "image": "registry.example/etl",
        "command": ["tarproc"],
        "args": args,
        "env": [
            {"name": "TMPDIR", "value": "/scratch"},
            {"name": "HOME", "value": "/scratch"},
            {"name": "TARKIT_CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
        ],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": "main", "operator": "In", "values": [2, 64, 78, 126, 127]},
        },
        {"action": "FailIndex", "onExitCodes": {"containerName": "main", "operator": "In", "values": [3, 65, 66]}},
    ]
    volumes = [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}]
    spec = {
        "completionMode": "Indexed", "completions": slices, "parallelism": 128, "backoffLimitPerIndex": 3,
        "maxFailedIndexes": 2, "podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": rules},
        "template": {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}},
    }  # fmt: skip
    return json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "etl"}, "spec": spec})


def test_shards_through_tarproc(tmp_path: Path) -> None:
    inputs = shards(tmp_path, 7)
    out = tmp_path / "out"
    text = indexed_manifest(3, out, '[ "$(cat sample.txt)" = good ] && echo more >> sample.txt', inputs)
    done = kubetpl(tmp_path, "-f", "-", "--json", stdin=text)
    status = json.loads(done.stdout)["status"]
    assert done.returncode == 3, done.stderr
    found = progress_of(str(out), inputs)
    assert len(found.done) == 7 and found.set_aside == {"in-1.tar": 1} and found.counts.out == 34
    assert status["completedIndexes"].count(",") + status["completedIndexes"].count("-") == 1
    assert len(status["failedIndexes"]) == 1 and status["failed"] == 1
    # The index that set a sample aside is run again; its shards are done, so it takes no time.
    done = kubetpl(tmp_path, "-f", "-", "--json", stdin=text)
    assert done.returncode == 3 and json.loads(done.stdout)["status"]["failedIndexes"] == status["failedIndexes"]


def test_a_run_of_which_no_sample_came_out(tmp_path: Path) -> None:
    """Each of its slices may be empty, so that their pods succeed. What others made in its folder does not count."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "other.tar").write_bytes(b"1")
    other = DoneRecord("done", {"url": "other.tar"}, "w", "1", {"size": 1}, samples={"in": 9, "out": 9})
    other.publish(str(tmp_path / "out" / "other.tar"))
    text = indexed_manifest(2, tmp_path / "out", "rm sample.*", shards(tmp_path, 2))
    for _ in range(2):
        done = kubetpl(tmp_path, "-f", "-", "--json", stdin=text)
        assert done.returncode == 3 and "done 2 of 2" in done.stderr, done.stderr
        assert "10 samples came in, and none came out" in done.stderr
        assert json.loads(done.stdout)["status"]["conditions"][-1]["type"] == "Complete"
    meant = text.replace('"--slice"', '"--allow-empty", "--slice"')
    assert kubetpl(tmp_path, "-f", "-", "--state", "other", stdin=meant).returncode == 0


def test_missing_shards_fail_their_index_alone(tmp_path: Path) -> None:
    inputs = shards(tmp_path, 4)
    os.unlink(inputs[2])
    done = kubetpl(tmp_path, "-f", "-", "--json", stdin=indexed_manifest(4, tmp_path / "out", "true", inputs))
    assert done.returncode == 1
    status = json.loads(done.stdout)["status"]
    assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0,1,3", "2", 1)
    assert "exit code 66 (Error; the index has failed)" in done.stderr


def test_what_a_generator_would_print(tmp_path: Path) -> None:
    inputs = shards(tmp_path, 4)
    out = tmp_path / "out"
    done = kubetpl(
        tmp_path,
        "--json",
        "indexed",
        "-n",
        "etl",
        "-c",
        "true",
        "-O",
        str(out),
        "--shards",
        str(tmp_path / "in-{0,2,3}.tar"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["succeeded"] == 3
    assert progress_of(str(out), [inputs[0], inputs[2], inputs[3]]).unfinished is False


def test_outputs_that_would_go_with_the_pods(tmp_path: Path) -> None:
    with TarWriter(str(tmp_path / "a.tar")) as writer:
        writer.write({"__key__": "k", "txt": b"x"})
    words = ["indexed", "-n", "j", "-c", "true", "--shards", "a.tar", "-O", "/scratch/out"]
    done = kubetpl(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'/scratch/out' is in the volume scratch, which is gone with its pod" in done.stderr
    (tmp_path / "kept").mkdir()
    assert kubetpl(tmp_path, "--volume", "scratch=kept", *words).returncode == 0
    assert (tmp_path / "kept/out/a.tar").exists()


def test_outputs_in_the_folder_of_the_pod_would_go_with_it(tmp_path: Path) -> None:
    """The Job was complete, and its outputs were gone."""
    document = json.loads(manifest("true"))
    container = document["spec"]["template"]["spec"]["containers"][0]
    for output in (["-O", "out"], ["-o", "out.tar"]):
        container |= {"command": ["tarproc"], "args": ["-c", "true", *output, "--", str(tmp_path / "a.tar")]}
        (tmp_path / "j.json").write_text(json.dumps(document))
        done = kubetpl(tmp_path, "-f", "j.json")
        assert done.returncode == 2 and "is in the folder in which the command starts" in done.stderr


def test_another_folder_for_a_volume_is_other_work(tmp_path: Path) -> None:
    document = json.loads(manifest('cat "$DATA/x"'))
    pod = document["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    pod["containers"][0] |= {
        "volumeMounts": [{"name": "data", "mountPath": "/data"}], "env": [{"name": "DATA", "value": "/data"}]
    }  # fmt: skip
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text(folder)
    for folder, code in (("one", 0), ("one", 0), ("two", 2)):
        done = kubetpl(tmp_path, "-f", "-", "--volume", f"data={folder}", stdin=json.dumps(document))
        assert done.returncode == code, done.stderr
