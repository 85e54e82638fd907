"""What a container sees on this machine: variables, words, and files of volumes."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.k8s.local.pods import LocalSettings, Sources, jobs_of, process_of
from tarkit.k8s.local.processes import Process

CONFIG = {
    "kind": "ConfigMap",
    "metadata": {"name": "cfg"},
    "data": {"A": "from-config"},
    "binaryData": {"raw": base64.b64encode(b"\xff\0").decode()},
}
SERVICE = {
    "kind": "Service",
    "metadata": {"name": "shards"},
    "spec": {"clusterIP": "None", "ports": [{"port": 80, "targetPort": 50001}]},
}
CLAIM = {"kind": "PersistentVolumeClaim", "metadata": {"name": "state"}}
HOST = {"PATH": os.environ["PATH"], "HOME": "/home/me"}


def process(tmp_path: Path, container: dict[str, Any], volumes: Any = (), **folders: str) -> Process:
    """What would be started as index 7 of a Job."""
    container = {"name": "main", "command": ["true"], **container}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": list(volumes)}}
    spec = {"completionMode": "Indexed", "completions": 9, "template": template}
    documents = [CONFIG, {"kind": "Job", "metadata": {"name": "j"}, "spec": spec}, SERVICE, CLAIM]
    (job,) = jobs_of(documents)
    settings = LocalSettings(env=HOST, volumes=folders)
    return process_of(job, 7, "j-7-2", str(tmp_path), Sources(documents), settings)


def test_variables_in_order_with_expansion(tmp_path: Path) -> None:
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    env = [
        {"name": "FIRST", "value": "1"},
        {"name": "SECOND", "value": "$(FIRST)$(THIRD)$$(FIRST)$(JOB_COMPLETION_INDEX)$(PATH)"},
        {"name": "THIRD", "value": "3"},
        {"name": "FIRST", "value": "again"},
        {"name": "EMPTY"},
        {"name": "INDEX", "valueFrom": index},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1"}}},
    ]
    found = dict(process(tmp_path, {"env": env, "resources": {"requests": {"cpu": "1500m"}}}).env)
    assert found.pop("TARKIT_LOCAL_POD") == f"{tmp_path}/pods/j-7-2/work"
    assert found == {
        **HOST, "HOSTNAME": "j-7", "FIRST": "again", "SECOND": "1$(THIRD)$(FIRST)$(JOB_COMPLETION_INDEX)$(PATH)",
        "THIRD": "3", "EMPTY": "", "INDEX": "7", "JOB_COMPLETION_INDEX": "7", "NODE": socket.gethostname(),
        "IP": "127.0.0.1", "CPUS": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("shards:80", "localhost:50001"),
        ("shards:83", "shards:83"),
        ("shards", "shards"),
        ("http://shards-0.shards:2222", "http://localhost:2222"),
        ("see shards-0.shards", "see shards-0.shards"),
    ],
)
def test_addresses_of_services_are_of_this_machine(tmp_path: Path, address: str, here: str) -> None:
    found = process(tmp_path, {"env": [{"name": "X", "value": address}], "args": [address]})
    assert (found.env["X"], found.words[1]) == (here, here)


def test_paths_are_changed_and_scripts_are_not(tmp_path: Path) -> None:
    volumes = [
        {"name": "s", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "c", "configMap": {"name": "cfg"}},
        {"name": "h", "hostPath": {"path": f"{tmp_path}/host"}}, {"name": "other", "secret": {"secretName": "x"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "state"}},
    ]  # fmt: skip
    paths = {"s": "/scratch", "c": "/scratch/cfg/", "h": "/h", "other": "/data", "claim": "/state"}
    words = ["/scratch", "/scratch/x", "@/scratch/x", "--list=/scratch/cfg/A", "--list=@/scratch/cfg/A", "-s=/scratch"]
    others = ["/h/x", "/data/x", "/state/x", "-O/state/x", "-o=file:///state/x", "/scratch/../state/x", "//state//x"]
    alone = ["/scratchy", "x/scratch", "cat /scratch/x", "s3://b/scratch/x"]
    found = process(
        tmp_path,
        {
            "args": [*words, *others, "$(HERE)/y", *alone, "$(HERE) $(HOME)"],
            "env": [{"name": "HERE", "value": "/scratch"}, {"name": "HOME", "value": "/scratch/home"}],
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()],
            "workingDir": "/h",
        },
        volumes,
        other=f"{tmp_path}/mine",
    )
    own, files = f"{tmp_path}/pods/j-7-2/volumes/s", f"{tmp_path}/volumes/j/c"
    state = f"{tmp_path}/claims/state/x"
    assert list(found.words[1:]) == [
        own, f"{own}/x", f"@{own}/x", f"--list={files}/A", f"--list=@{files}/A", f"-s={own}", f"{tmp_path}/host/x",
        f"{tmp_path}/mine/x", state, f"-O{state}", f"-o=file://{state}", state, state, f"{own}/y", *alone,
        "/scratch /scratch/home",
    ]  # fmt: skip
    assert (found.env["HERE"], found.env["HOME"], found.cwd) == (own, f"{own}/home", f"{tmp_path}/host")
    assert os.path.isdir(own) and os.path.isdir(f"{tmp_path}/claims/state")
    assert [Path(files, name).read_bytes() for name in ("A", "raw")] == [b"from-config", b"\xff\0"]


@pytest.mark.parametrize(
    ("container", "volume", "says"),
    [
        ({"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}, {}, "secretKeyRef.* is not done here"),
        ({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}, {}, "fieldRef.* is not done here"),
        ({"env": [{"name": "A=B", "value": ""}]}, {}, "its name or value is not that of a variable"),
        ({"env": [{"name": "X", "value": 5}]}, {}, "its name or value is not that of a variable"),
        ({"env": [{"name": "X", "value": "5", "valueFrom": {"fieldRef": {"a": 1}}}]}, {}, "X: several values"),
        ({"env": [{"name": "X", "valueFrom": {"fieldRef": {"a": 1}, "b": {"c": 1}}}]}, {}, "X: several values"),
        ({}, {"persistentVolumeClaim": {"claimName": "../pods"}}, "the name of a volume or claim: "),
        (
            {},
            {"persistentVolumeClaim": {"claimName": "no"}},
            "persistentVolumeClaim is not done here; .* --volume v=DI",
        ),
        ({}, {"secret": {"secretName": "no"}}, "secret is not done here; give its folder: --volume v=DIR"),
        ({}, {"configMap": {"name": "no"}}, "the ConfigMap no is not in this manifest"),
        ({}, {"configMap": {"name": "cfg", "items": [{"key": "A"}]}}, "configMap: items is not done here"),
    ],
)
def test_what_a_manifest_lacks_is_named(
    tmp_path: Path, container: dict[str, Any], volume: dict[str, Any], says: str
) -> None:
    volumes = [{"name": "v", **volume}] if volume else []
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]} if volume else {}
    with pytest.raises(UsageError, match=says):
        process(tmp_path, {**container, **mounts}, volumes)


def test_config_maps_that_are_refused() -> None:
    """The last one counted in silence, such as that of another namespace."""
    other = {**CONFIG, "metadata": {"name": "cfg", "namespace": "b"}}
    Sources([CONFIG, other])
    with pytest.raises(UsageError, match="ConfigMap cfg: raw is not base64"):
        Sources([{**CONFIG, "binaryData": {"raw": "!"}}])
    with pytest.raises(UsageError, match="two ConfigMaps with different content are called cfg"):
        Sources([CONFIG, {**other, "data": {"A": "else"}}])
