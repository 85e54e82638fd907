"""The notebook's kubetpl cells give what the original gave, but for a list of differences, each with its reason."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarkit.mapping.shellrules import pod_words

ORIGINAL = Path(__file__).parent / "data" / "kubetpl-original"
KUBETPL = str(Path(sys.executable).parent / "kubetpl")

# In [15]
CONFIGURATION = """\
image: gcr.io/research-191823/bigdata19
memory: 4G
cpu: 1
app: bigdata19
port:
  - 7880
"""

LOOK = """
curl -s http://storage.googleapis.com/lpr-imagenet/imagenet_train-0000.tgz |
tarproc --count 3 -c "ls -l"
"""
CONVERT = """
curl -s http://storage.googleapis.com/lpr-imagenet/imagenet_train-0000.tgz |
tarproc --count 3 -c "gm convert sample.jpg sample.ppm; rm sample.jpg" -o - |
dd of=/dev/null # put a copy-to-destination here
"""
LOOP = """
curl -s http://storage.googleapis.com/lpr-imagenet/imagenet_train-$i.tgz |
tarproc -c 'gm convert sample.jpg sample.ppm; rm sample.jpg' -o - |
dd of=/dev/null # put a copy-to-destination here
"""

MISSING = "missing"
# Steps to a field of the manifest -> (what the original had, what stands there now, why). "*" is what
# depends on the cell: its command and its name.
POD = "spec template spec"
CONTAINER = f"{POD} containers 0"
DIFFERENCES: dict[str, tuple[Any, Any, str]] = {
    "metadata labels app.kubernetes.io/name": (MISSING, "bigdata19", "the usual label of what belongs together"),
    "metadata labels app.kubernetes.io/managed-by": (MISSING, "kubetpl", "names its author"),
    "spec podFailurePolicy": (
        MISSING,
        {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
        "a pod that was taken away has not failed",
    ),
    "spec podReplacementPolicy": (MISSING, "Failed", "never two pods at the same work; the policy above needs it"),
    "spec template metadata": (
        MISSING,
        {"labels": {"app": "bigdata19", "app.kubernetes.io/name": "bigdata19"}},
        "no service found the original's pods",
    ),
    f"{CONTAINER} name": ("*", "main", "policies and logs can name it whatever the Job is called"),
    f"{CONTAINER} resources limits cpu": (1.0, MISSING, "a limit of CPUs only makes work wait"),
    f"{CONTAINER} resources requests cpu": (1.0, "1", "the text that the server stores: else a later apply conflicts"),
    f"{CONTAINER} resources limits ephemeral-storage": (MISSING, "3Gi", "without, it is evicted first"),
    f"{CONTAINER} resources requests ephemeral-storage": (MISSING, "1Gi", "without, it is evicted first"),
    f"{CONTAINER} command": ("*", "*", "curl | tarproc fails when curl does, but not when tarproc had enough"),
    f"{CONTAINER} args": (MISSING, "*", "the command's exact bytes: the original deleted blank lines"),
    f"{CONTAINER} stdin": (True, MISSING, "a command that reads would hang"),
    f"{CONTAINER} tty": (True, MISSING, "a terminal mixes stdout and stderr, and ends lines in CR LF"),
    f"{CONTAINER} env": (
        None,
        [{"name": "TMPDIR", "value": "/scratch"}, {"name": "HOME", "value": "/scratch"}],
        "where a container with a read-only root can write",
    ),
    f"{CONTAINER} securityContext": (
        MISSING,
        {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
        "namespaces that enforce the restricted standard admit no other pods",
    ),
    f"{CONTAINER} terminationMessagePolicy": (
        MISSING,
        "FallbackToLogsOnError",
        "the last lines of the log stay with the pod",
    ),
    f"{CONTAINER} volumeMounts": (MISSING, [{"name": "scratch", "mountPath": "/scratch"}], "room for temporary files"),
    f"{POD} volumes": (MISSING, [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}], "room for temporary files"),
    f"{POD} hostname": ("*", MISSING, "Kubernetes gives each pod its own"),
    f"{POD} automountServiceAccountToken": (MISSING, False, "the command does not need the API"),
    f"{POD} enableServiceLinks": (MISSING, False, "else every service of the namespace is in the environment"),
    f"{POD} securityContext": (
        MISSING,
        {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "namespaces that enforce the restricted standard admit no other pods",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kubetpl.yaml").write_text(CONFIGURATION)
    return tmp_path


def kubetpl(folder: Path, *arguments: str) -> str:
    env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    done = subprocess.run([KUBETPL, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def at(document: Any, path: str) -> Any:
    """The value at the end of the steps; MISSING if there is none."""
    for step in path.split():
        if isinstance(document, list):
            document = document[int(step)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            return MISSING
    return document


def put(document: Any, path: str, value: Any) -> None:
    parent, _, key = path.rpartition(" ")
    if value == MISSING:
        del at(document, parent)[key]
    else:
        at(document, parent)[key] = value


def _command(command: str) -> list[str]:
    return ["/bin/bash", "-euo", "pipefail", *(pod_words(command, "/bin/bash") or ())]


def check(ours: dict[str, Any], original: dict[str, Any], command: str) -> None:
    """Undo the listed differences: then the two are equal."""
    own = {
        f"{CONTAINER} name": (original["metadata"]["name"], None),
        f"{CONTAINER} command": (["/bin/bash", "-c", command.strip("\n") + "\n"], _command(command)),
        f"{CONTAINER} args": (None, [command]),
        f"{POD} hostname": (original["metadata"]["name"], None),
    }
    for path, (was, now, why) in DIFFERENCES.items():
        assert why
        was = own[path][0] if was == "*" else was
        now = own[path][1] if now == "*" else now
        assert at(original, path) == was, path
        assert at(ours, path) == now, path
        put(ours, path, was)
    assert ours == original


@pytest.mark.parametrize(
    ("cell", "command"), [("in16", LOOK), ("in19", CONVERT)], ids=["In [16], look", "In [19], convert"]
)
def test_single_jobs(folder: Path, cell: str, command: str) -> None:
    ours = yaml.safe_load(kubetpl(folder, "job", "-n", "job0000", "-c", command))
    check(ours, yaml.safe_load((ORIGINAL / f"notebook-{cell}.yaml").read_text()), command)


@pytest.mark.parametrize("number", ["0000", "0073", "0147"])
def test_jobs_of_the_loop(folder: Path, number: str) -> None:
    command = LOOP.replace("$i", number)
    ours = yaml.safe_load(kubetpl(folder, "job", "-n", f"job{number}", "-c", command))
    check(ours, yaml.safe_load((ORIGINAL / f"notebook-in23-{number}.yaml").read_text()), command)


def children_seconds() -> float:
    """CPU time of the processes that this one waited for: the machine may be busy with other tests."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_loop_as_one_stream_gives_the_same_jobs(folder: Path) -> None:
    started = children_seconds()
    text = kubetpl(folder, "jobs", "-n", "job{i}", "-c", LOOP.replace("$i", "{i}"), "--over", "{0000..0147}")
    seconds = children_seconds() - started
    many = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    assert [each["metadata"]["name"] for each in many] == [f"job{number:04d}" for number in range(148)]
    for number in (0, 73, 147):
        ours = many[number]
        # What they have besides, so that all of them can be asked for at once.
        assert ours["metadata"]["labels"].pop("tarkit.dev/run") == "job"
        assert ours["spec"]["template"]["metadata"]["labels"].pop("tarkit.dev/run") == "job"
        command = LOOP.replace("$i", f"{number:04d}")
        check(ours, yaml.safe_load((ORIGINAL / f"notebook-in23-{number:04d}.yaml").read_text()), command)
    # With the start of Python.
    assert seconds < 5


def test_the_cells_run_as_they_stand_with_bash(folder: Path) -> None:
    """The shell's own quoting, not ours: what the notebook's lines give to kubectl."""
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").write_text("#!/bin/bash\ncat >> applied\necho >> applied\necho --- >> applied\n")
    (folder / "bin" / "kubectl").chmod(0o755)
    shutil.copy(KUBETPL, folder / "bin" / "kubetpl")
    script = 'for i in {0000..0003}; do\nkubetpl job -n job$i -c "' + LOOP + '" | kubectl apply -f - >> _log\ndone\n'
    env = {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=env, check=True)
    applied = [each for each in yaml.safe_load_all((folder / "applied").read_text()) if each]
    assert [each["metadata"]["name"] for each in applied] == ["job0000", "job0001", "job0002", "job0003"]
    arguments = [each["spec"]["template"]["spec"]["containers"][0]["args"] for each in applied]
    assert arguments == [[LOOP.replace("$i", f"000{number}")] for number in range(4)]
    assert json.dumps(arguments)
