"""What a container sees on this machine: variables, words, and files of volumes."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.k8s.local.env import LocalNode, Sources
from tarkit.k8s.local.kubelet import PodFolders, Process, process_of
from tarkit.k8s.local.localjob import jobs_of, local_pod, notes_on

CONFIG = {
    "kind": "ConfigMap",
    "metadata": {"name": "cfg"},
    "data": {"A": "from-config", "run.sh": "#!/bin/sh\necho ran\n"},
    "binaryData": {"raw": base64.b64encode(b"\xff\0").decode()},
}
SECRET = {
    "kind": "Secret",
    "metadata": {"name": "sec"},
    "data": {"TOKEN": base64.b64encode(b"t0ken").decode()},
    "stringData": {"PLAIN": "plain"},
}
SERVICE = {
    "kind": "Service",
    "metadata": {"name": "shards"},
    "spec": {"ports": [{"port": 80, "targetPort": 50001}, {"port": 81, "targetPort": "web"}, {"port": 82}]},
}
HOST = {"PATH": os.environ["PATH"], "HOME": "/home/me"}


def main_process(
    tmp_path: Path,
    container: dict[str, Any],
    *,
    spec: dict[str, Any] | None = None,
    folders: dict[str, str] | None = None,
) -> Process:
    """What would be started as index 7 of a Job."""
    container = {"name": "main", "command": ["true"], **container}
    template = {
        "metadata": {"labels": {"tier": "etl"}, "annotations": {"note": "n"}},
        "spec": {"serviceAccountName": "sa", "containers": [container], **(spec or {})},
    }
    spec = {"completionMode": "Indexed", "completions": 9, "template": template}
    document = {"kind": "Job", "metadata": {"name": "j", "namespace": "ns"}, "spec": spec}
    documents = [CONFIG, document, SECRET, SERVICE]
    pod = local_pod(jobs_of(documents)[0], 7, 2)
    node = LocalNode("here", 6, 16 << 30, 100 << 30, HOST, folders or {})
    folders = PodFolders(*(str(tmp_path / path) for path in ("pod", "run/volumes", "run/claims")))
    return process_of(pod, folders, Sources(documents), node)


def env_of(tmp_path: Path, env: list[dict[str, Any]], **more: Any) -> dict[str, str]:
    return dict(main_process(tmp_path, {"env": env, **more}).env)


def test_variables_in_order_with_expansion(tmp_path: Path) -> None:
    found = env_of(
        tmp_path,
        [
            {"name": "FIRST", "value": "1"},
            {"name": "SECOND", "value": "$(FIRST)$(THIRD)$$(FIRST)$(P_PLAIN)$(JOB_COMPLETION_INDEX)$(PATH)"},
            {"name": "THIRD", "value": "3"},
            {"name": "FIRST", "value": "again"},
            {"name": "EMPTY"},
        ],
        envFrom=[{"secretRef": {"name": "sec"}, "prefix": "P_"}],
    )
    assert found["SECOND"] == "1$(THIRD)$(FIRST)plain$(JOB_COMPLETION_INDEX)$(PATH)"
    assert (found["FIRST"], found["EMPTY"]) == ("again", "")


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("shards:80", "localhost:50001"),
        ("shards:81", "localhost:81"),
        ("shards:82", "localhost:82"),
        ("shards:83", "shards:83"),
        ("shards", "shards"),
        ("other:80", "other:80"),
    ],
)
def test_addresses_of_services_are_of_this_machine(tmp_path: Path, address: str, here: str) -> None:
    found = main_process(tmp_path, {"env": [{"name": "X", "value": address}], "args": [address]})
    assert (found.env["X"], found.words[1]) == (here, here)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "j-7-2"),
        ("metadata.namespace", "ns"),
        ("metadata.labels['tier']", "etl"),
        ("metadata.labels['batch.kubernetes.io/job-name']", "j"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "n"),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "7"),
        ("spec.nodeName", "here"),
        ("spec.serviceAccountName", "sa"),
        ("status.podIP", "127.0.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields(tmp_path: Path, path: str, value: str) -> None:
    assert env_of(tmp_path, [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}])["X"] == value


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("requests.cpu", "1", "2"),
        ("requests.cpu", "1m", "1500"),
        ("limits.cpu", None, "6"),
        ("limits.memory", "1Mi", "1024"),
        ("requests.memory", "1Gi", "1"),
        ("limits.memory", "1G", "2"),
        ("limits.ephemeral-storage", "1Gi", "100"),
        ("requests.ephemeral-storage", "0", "0"),
    ],
)
def test_resources_are_divided_and_rounded_up(tmp_path: Path, resource: str, divisor: str | None, value: str) -> None:
    resources = {"requests": {"cpu": "1500m"}, "limits": {"memory": "1Gi"}}
    reference = {"resource": resource} | ({} if divisor is None else {"divisor": divisor})
    found = env_of(tmp_path, [{"name": "X", "valueFrom": {"resourceFieldRef": reference}}], resources=resources)
    assert found["X"] == value


def test_config_maps_and_secrets(tmp_path: Path) -> None:
    def key(kind: str, name: str, key: str, **more: Any) -> dict[str, Any]:
        return {"valueFrom": {f"{kind}KeyRef": {"name": name, "key": key, **more}}}

    found = env_of(
        tmp_path,
        [
            {"name": "C", **key("configMap", "cfg", "A")},
            {"name": "S", **key("secret", "sec", "TOKEN")},
            {"name": "NONE", **key("secret", "nosuch", "x", optional=True)},
            {"name": "NOKEY", **key("configMap", "cfg", "x", optional=True)},
            {"name": "EXPANDED", "value": "$(S)/$(P_PLAIN)"},
        ],
        envFrom=[{"secretRef": {"name": "sec"}, "prefix": "P_"}, {"configMapRef": {"name": "no", "optional": True}}],
    )
    assert found.pop("TARKIT_LOCAL_POD").startswith(str(tmp_path))
    assert found == {
        **HOST, "HOSTNAME": "j-7", "P_TOKEN": "t0ken", "P_PLAIN": "plain", "C": "from-config", "S": "t0ken",
        "EXPANDED": "t0ken/plain", "JOB_COMPLETION_INDEX": "7",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("container", "pod", "says"),
    [
        ({"envFrom": [{"configMapRef": {"name": "no"}}]}, {}, "needs the ConfigMap no, which is not in this manifest"),
        ({"envFrom": [{"configMapRef": {"name": "cfg"}}]}, {}, r"cfg\.raw: this is not UTF-8"),
        ({"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}, {}, "a field such as"),
        ({"env": [{"name": "X", "valueFrom": {"fileKeyRef": {}}}]}, {}, "fileKeyRef.* is not known here"),
        (
            {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "cpu"}}}]},
            {},
            "such as limits.memory",
        ),
        (
            {
                "env": [
                    {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "o"}}}
                ]
            },
            {},
            "a resource of this container",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "no"}}}]},
            {},
            "needs the key no of the Secret sec: it has none",
        ),
        (
            {},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {}}]},
            "is a persistentVolumeClaim, which is not here",
        ),
        (
            {},
            {"volumes": [{"name": "v", "projected": {"sources": []}}]},
            "v is a projected, which is not here; give its folder with --volume NAME=FOLDER",
        ),
        (
            {},
            {"volumes": [{"name": "v", "secret": {"secretName": "no"}}]},
            "a volume's folder with --volume NAME=FOLDER",
        ),
        (
            {},
            {"volumes": [{"name": "v", "configMap": {"name": "cfg", "items": [{"key": "no", "path": "x"}]}}]},
            "no key no",
        ),
        (
            {},
            {"volumes": [{"name": "v", "configMap": {"name": "cfg", "items": [{"key": "A", "path": "../../x"}]}}]},
            "must be inside of it",
        ),
        (
            {},
            {"volumes": [{"name": "v", "configMap": {"name": "cfg", "items": [{"key": "A"}]}}]},
            "'': a file of a volume must be inside of it",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/../../b"}]},
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            "the subPath 'a/../../b' leaves the volume v; write it without ..",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$$(A)/$(POD_NAME)"}]},
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            "subPathExpr names POD_NAME, a variable that it does not have",
        ),
        ({"args": ["a\0b"]}, {}, "has a zero byte in it"),
        ({"env": [{"name": "X", "value": "a\0b"}]}, {}, "has a zero byte in it"),
    ],
)
def test_what_a_manifest_lacks_is_named(
    tmp_path: Path, container: dict[str, Any], pod: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        main_process(tmp_path, container, spec=pod)


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [("data", {"k": 1}, "data.k is not a text"), ("binaryData", {"k": "!"}, r"binaryData\.k is not base64")],
)
def test_damaged_sources(part: str, value: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Sources([{"kind": "ConfigMap", "metadata": {"name": "c"}, part: value}])


def test_two_sources_of_one_name_are_refused() -> None:
    """The last one counted in silence, such as that of another namespace."""
    other = {**CONFIG, "metadata": {"name": "cfg", "namespace": "b"}}
    Sources([CONFIG, other, {**SECRET, "metadata": {"name": "cfg"}}])
    with pytest.raises(UsageError, match="two ConfigMaps with different content are called cfg"):
        Sources([CONFIG, {**other, "data": {"A": "else"}}])


def test_paths_are_changed_and_scripts_are_not(tmp_path: Path) -> None:
    volumes = [{"name": "s", "emptyDir": {}}, {"name": "c", "configMap": {"name": "cfg", "defaultMode": 0o755}}]
    mounts = [{"name": "s", "mountPath": "/scratch"}, {"name": "c", "mountPath": "/scratch/cfg/"}]
    words = ["/scratch", "/scratch/x", "@/scratch/x", "--list=/scratch/cfg/A", "--list=@/scratch/cfg/A", "-s=/scratch"]
    alone = ["/scratchy", "x/scratch", "cat /scratch/x", "s3://b/scratch/x", "$(HERE) $(HOME)"]
    found = main_process(
        tmp_path,
        {
            "command": ["/scratch/cfg/run.sh"],
            "args": [*words, "$(HERE)/y", *alone],
            "env": [{"name": "HERE", "value": "/scratch"}, {"name": "HOME", "value": "/scratch/home"}],
            "volumeMounts": mounts,
        },
        spec={"volumes": volumes},
    )
    own, shared = f"{tmp_path}/pod/volumes/s", f"{tmp_path}/run/volumes/c"
    assert list(found.words) == [
        f"{shared}/run.sh", own, f"{own}/x", f"@{own}/x", f"--list={shared}/A", f"--list=@{shared}/A", f"-s={own}",
        f"{own}/y", *alone[:-1], "/scratch /scratch/home",
    ]  # fmt: skip
    assert found.env["HERE"] == own and found.env["HOME"] == f"{own}/home"
    assert Path(shared, "raw").read_bytes() == b"\xff\0" and os.path.isdir(own)
    assert found.cwd == f"{tmp_path}/pod/work"


def test_other_kinds_of_volumes(tmp_path: Path) -> None:
    volumes = [
        {"name": "c", "configMap": {"name": "cfg", "items": [{"key": "A", "path": "deep/a"}]}},
        {"name": "t", "secret": {"secretName": "sec"}},
        {"name": "h", "hostPath": {"path": "/usr"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "x"}},
        {"name": "s", "emptyDir": {}},
    ]
    mounts = [
        {"name": "c", "mountPath": "/c"},
        {"name": "h", "mountPath": "/h"},
        {"name": "claim", "mountPath": "/data"},
        {"name": "s", "mountPath": "/tmp/s", "subPath": "sub"},
        {"name": "s", "mountPath": "/tmp/own", "subPathExpr": "of/$(JOB_COMPLETION_INDEX)"},
    ]
    words = ["/c/deep/a", "/h/bin", "/data/x", "/tmp/s", "/tmp/own/y"]
    found = main_process(
        tmp_path,
        {"args": words, "workingDir": "/h/bin", "volumeMounts": mounts},
        spec={"volumes": volumes},
        folders={"claim": "/my/data"},
    )
    own, shared = tmp_path / "pod" / "volumes", tmp_path / "run" / "volumes"
    assert list(found.words[1:]) == [f"{shared}/c/deep/a", "/usr/bin", "/my/data/x", f"{own}/s/sub", f"{own}/s/of/7/y"]
    assert (own / "s" / "of" / "7").is_dir()
    assert found.cwd == "/usr/bin"
    assert (shared / "c" / "deep" / "a").read_text() == "from-config"
    assert (shared / "t" / "TOKEN").read_text() == "t0ken"


def test_notes_on_scripts_that_name_mounts() -> None:
    mounts = [{"name": "s", "mountPath": "/scratch"}, {"name": "c", "mountPath": "/files"}]
    container = {
        "name": "main",
        "command": ["sh", "-c", "cd /scratch && cat '/files/x' >/scratchy"],
        "env": [{"name": "TMPDIR", "value": "/scratch"}, {"name": "HOME", "value": "/scratch"}],
        "volumeMounts": mounts,
        "workingDir": "/no/such/folder",
    }
    document: dict[str, Any] = {"kind": "Job", "metadata": {"name": "j"}}
    document["spec"] = {"template": {"spec": {"containers": [container]}}}
    notes = list(notes_on(jobs_of([document])[0]))
    assert len(notes) == 3
    assert "names /files, which does not exist on this machine; here it has another name" in notes[0]
    assert "names /scratch, which does not exist on this machine; here it is at $TMPDIR" in notes[1]
    assert "no folder /no/such/folder here" in notes[2]


def test_notes_on_what_is_not_followed() -> None:
    container = {"name": "main", "command": ["true"], "restartPolicyRules": [{"action": "Restart"}]}
    container["lifecycle"] = {"postStart": {"exec": {"command": ["true"]}}}
    spec = {"suspend": True, "successPolicy": {"rules": []}, "template": {"spec": {"containers": [container]}}}
    notes = list(notes_on(jobs_of([{"kind": "Job", "metadata": {"name": "j"}, "spec": spec}])[0]))
    assert notes == [
        "j is suspended in the manifest; here it runs",
        "j: successPolicy is not followed here",
        "j: lifecycle is not followed here",
        "j: restartPolicyRules is not followed here",
    ]
