"""Every flag, in each way in which it can be given, and for each fault of the original that ours is
right.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplrun import MAIN, MISSING, SPEC, alone, at, documents, env_of, kubetpl, one, printed, refused, rendered

from tarkit.k8s.settings import TABLE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@dataclass(frozen=True)
class Case:
    """One setting: its value on the command line and in a file, and what it does to
    the manifest.
    """

    name: str
    value: Any
    fields: dict[str, Any]
    generator: str = "job"
    besides: tuple[str, ...] = ()

    def words(self, flag: str) -> list[str]:
        if self.value is True:
            return [flag]
        if isinstance(self.value, dict):
            return [word for key, value in self.value.items() for word in (flag, f"{key}={value}")]
        values = self.value if isinstance(self.value, list) else [self.value]
        return [word for value in values for word in (flag, str(value))]


LABELS = "metadata labels"
POD_LABELS = "spec template metadata labels"
REQUESTS, LIMITS = f"{MAIN} resources requests", f"{MAIN} resources limits"
SHARDED = ("-n", "x", "-c", "true", "-I", "img", "--shards", "s3://b/a-{00..19}.tar", "-O", "s3://b/out")

CASES = [
    Case("name", "job7", {"metadata name": "job7", f"{POD_LABELS} app": "job7"}),
    Case("command", "echo 'a b' \"$c\"", {f"{MAIN} args": ["echo 'a b' \"$c\""]}),
    Case("image", "repo/i:1", {f"{MAIN} image": "repo/i:1"}),
    Case("cpu", "500m", {f"{REQUESTS} cpu": "500m", f"{LIMITS} cpu": MISSING}),
    Case("memory", "4096Mi", {f"{REQUESTS} memory": "4Gi", f"{LIMITS} memory": "4Gi"}),
    Case("gpu", 2, {f"{REQUESTS} nvidia.com/gpu": "2", f"{LIMITS} nvidia.com/gpu": "2"}),
    Case("gpu_resource", "amd.com/gpu", {f"{LIMITS} amd.com/gpu": "1"}, besides=("-G", "1")),
    Case("accelerator", "nvidia-l4", {f"{SPEC} nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"}}),
    Case("env", {"A": "1", "B": "x=y"}, {f"{MAIN} env 3": {"name": "B", "value": "x=y"}}),
    Case("param", {"who": "you", "n": "{who}"}, {f"{MAIN} args": ["you {who}"]}, besides=("-c", "{who} {n}")),
    Case("port", [7880, 7881], {f"{MAIN} ports": [{"containerPort": 7880}, {"containerPort": 7881}]}),
    Case("label", {"team": "a", "x.y/z": "b"}, {f"{LABELS} team": "a", f"{POD_LABELS} x.y/z": "b"}),
    Case("app", "bigdata19", {f"{LABELS} app": "bigdata19", f"{POD_LABELS} app": "bigdata19"}),
    Case("shell", "/bin/sh", {f"{MAIN} command": ["/bin/sh", "-eu", "-c"], f"{MAIN} args": ["true"]}),
    Case("shell_flags", "-x -e", {f"{MAIN} command": ["/bin/bash", "-x", "-e", "-c"]}),
    Case("config_map", "f", {f"{SPEC} volumes 1 configMap name": "f", f"{MAIN} volumeMounts 1 mountPath": "/files"}),
    Case("config_map_path", "/f", {f"{MAIN} volumeMounts 1 mountPath": "/f"}, besides=("--config-map", "files")),
    Case(
        "secret", ["a", "b:/k"], {f"{MAIN} volumeMounts 2": {"name": "secret-b", "mountPath": "/k", "readOnly": True}}
    ),
    Case("gac", "/k/key.json", {f"{MAIN} env 2 value": "/k/key.json", f"{SPEC} volumes 1": MISSING}),
    Case("service_account", "etl", {f"{SPEC} serviceAccountName": "etl"}),
    Case("hostname", "me", {f"{SPEC} hostname": "me"}),
    Case("subdomain", "net", {f"{SPEC} subdomain": "net"}),
    Case("restartpolicy", "OnFailure", {f"{SPEC} restartPolicy": "OnFailure"}),
    Case("namespace", "team", {"metadata namespace": "team"}),
    Case("security", "none", {f"{MAIN} securityContext": MISSING, f"{SPEC} securityContext": MISSING}),
    Case("run_as", 1000, {f"{SPEC} securityContext runAsUser": 1000}),
    Case("scratch", "20Gi", {f"{SPEC} volumes 0 emptyDir sizeLimit": "20Gi", f"{LIMITS} ephemeral-storage": "22Gi"}),
    Case("queue", "etl", {f"{LABELS} kueue.x-k8s.io/queue-name": "etl", "spec suspend": MISSING}, besides=("-C", "1")),
    Case("priority_class", "low", {f"{SPEC} priorityClassName": "low"}),
    Case("node_selector", {"a/b": "c"}, {f"{SPEC} nodeSelector": {"a/b": "c"}}),
    Case("toleration", ["gpu", "a/b"], {f"{SPEC} tolerations 1": {"key": "a/b", "operator": "Exists"}}),
    Case("image_pull_secret", ["r1", "r2"], {f"{SPEC} imagePullSecrets": [{"name": "r1"}, {"name": "r2"}]}),
    Case("retries", 4, {"spec backoffLimit": 4}),
    Case("deadline", "1.5h", {"spec activeDeadlineSeconds": 5400}),
    Case("ttl", "7d", {"spec ttlSecondsAfterFinished": 604800}),
    Case("over", "{00..01}", {"metadata name": "j00"}, "jobs", ("-n", "j{i}")),
    Case("shards", ["s3://b/a.tar", "s3://b/b.tar"], {"spec completions": 2}, "indexed", SHARDED[:-4] + SHARDED[-2:]),
    Case("outdir", "s3://b/o", {"metadata annotations tarkit.dev/outdir": "s3://b/o"}, "indexed", SHARDED[:-2]),
    Case("parallelism", 3, {"spec parallelism": 3}, "indexed", SHARDED),
    Case("slices", 4, {"spec completions": 4}, "indexed", SHARDED),
    Case("max_failed", "10%", {"spec maxFailedIndexes": 2}, "indexed", SHARDED),
    Case("raw", True, {f"{MAIN} args": ["true"]}, "indexed", SHARDED),
]


def test_every_setting_is_in_the_table() -> None:
    # list_url writes a file: it has its own test beside those of slices. Those of the verbs with
    # stages are in test_kubetpl_stages.py.
    of_stages = {"gather_slices", "wait", "jobset", "suspend_gather"}
    assert {case.name for case in CASES} == TABLE.keys() - of_stages - {"list_url"}
    assert "".join(setting.short for setting in TABLE.values()) == "-n-c-I-C-M-G-A-e-p-P-L-a-N-O-j"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_flag_is_the_same_in_every_way(case: Case, folder: Path) -> None:
    flags = TABLE[case.name].flags
    found = rendered(case.generator, *case.besides, *case.words(flags[0]))
    for path, value in case.fields.items():
        assert at(found[0], path) == value, path
    texts = [printed(case.generator, *case.words(flags[-1]), *case.besides)]
    (folder / "kubetpl.yaml").write_text(yaml.safe_dump({case.name.replace("_", "-"): case.value}))
    texts.append(printed(case.generator, *case.besides))
    assert [documents(text) for text in texts] == [found] * 2


# The rest: fault by fault.


def test_cpus_are_any_quantity() -> None:
    """The original refused 500m, and printed 1.0, which a server rewrites."""
    for text, value in (("1.0", "1"), ("0.5", "500m"), ("2000m", "2"), ("-1", MISSING), ("0.0", MISSING)):
        assert at(one("job", f"--cpu={text}"), MAIN)["resources"] == {
            "requests": {**({} if value == MISSING else {"cpu": value}), "memory": "1G", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "1G", "ephemeral-storage": "3Gi"},
        }
    for text in ("x", "1 2", "1,5", "", "nan", "1c", "٣"):
        assert refused("job", "-C", text).startswith("--cpu: ")


def test_no_cpus_and_no_gpus_take_away_those_of_a_file(folder: Path) -> None:
    (folder / "kubetpl.yaml").write_text("cpu: 4\ngpu: 2\n")
    assert set(at(one("job", "-C", "-1", "-G", "0"), REQUESTS)) == {"memory", "ephemeral-storage"}


def test_memory() -> None:
    """The original printed anything; a server refuses most, and warns of parts of a byte."""
    for text, value in (
        ("4G", "4G"), ("1e9", "1e9"), ("4000M", "4G"), ("4096Mi", "4Gi"), ("1.5Gi", "1536Mi"), ("12E", "12E"),
        ("0.1Gi", "107374183"),
    ):  # fmt: skip
        document = one("job", "-M", text)
        assert at(document, f"{REQUESTS} memory") == at(document, f"{LIMITS} memory") == value
    for text, hint in (
        ("4GB", "write 4G"), ("4 GB", "write 4G"), ("4g", "write 4G"), ("", ""), ("1k5", ""),
        ("-4G", "more than 0"), ("0", "more than 0"),
    ):  # fmt: skip
        found = refused("job", "-M", text)
        assert "--memory" in found and hint in found
    warned = "--memory 400m: m are thousandths of a byte, so it is rounded up to 1; did you mean 400M or 400Mi?"
    assert at(rendered("job", "-M", "400m", warns=warned)[0], f"{LIMITS} memory") == "1"


def test_variables() -> None:
    """The original ended in an IndexError without =.

    The last of a name wins, and keeps its place.
    """
    for text in ("FOO", "", "=x"):
        assert refused("job", "-e", text) == f"command line: env (--env) is NAME=VALUE; got {text!r}"
    assert "is NAME=VALUE; got 'x'" in refused("job", "--node-selector", "x")
    words = ["A=", "B=x=y", "C=a,b", "D= \n\té", "E={i}", "TMPDIR=/elsewhere", "A=3"]
    document = one("job", *(word for each in words for word in ("-e", each)))
    assert env_of(document) == {
        "TMPDIR": "/elsewhere", "HOME": "/scratch", "A": "3", "B": "x=y", "C": "a,b", "D": " \n\té", "E": "{i}",
    }  # fmt: skip
    assert list(env_of(document))[:4] == ["TMPDIR", "HOME", "A", "B"]


BRACES = "echo ${HOME} {} {0} {{x}} | awk '{print $1}' | xargs -I{} cp {} {undeclared}"


def test_only_declared_names_are_replaced() -> None:
    """The original gave the whole command to str.format: any ${HOME} was a KeyError."""
    assert at(one("job", "-c", BRACES, "-p", "x=1"), f"{MAIN} args") == [BRACES.replace("{x}", "1")]
    # A value is not looked at again, and a name is not a pattern.
    document = one("job", "-c", "{a}{b}{a.}{ab}", "-p", "a={b}", "-p", "b={a}", "-p", "a.=\\1")
    assert at(document, f"{MAIN} args") == ["{b}{a}\\1{ab}"]


def test_braces_after_a_dollar_are_the_shells() -> None:
    """The original made $v of ${a}."""
    document = one("job", "-c", "${a} {a} ${a:-{a}} ${{a}} {{a}} \\${a}", "-p", "a=v")
    assert at(document, f"{MAIN} args") == ["${a} v ${a:-v} ${v} {v} \\${a}"]
    assert "(${…} is the shell's)" in refused("job", "-c", "echo ${a}", "-p", "a=v")


def test_a_service_has_an_entry_for_each_port_and_finds_the_pods() -> None:
    """The original printed ``port: [7880]``, which no server takes; and its pods had no labels."""
    assert at(one("service", "-a", "web", "-P", "7880"), "spec ports") == [{"port": 7880, "targetPort": 7880}]
    assert at(one("service", "-a", "web", "-P", "80", "-P", "443", "-P", "80"), "spec ports") == [
        {"name": "port-80", "port": 80, "targetPort": 80},
        {"name": "port-443", "port": 443, "targetPort": 443},
    ]
    selector = one("service", "-a", "Big Data", "-P", "1")["spec"]["selector"]
    assert selector.items() <= one("job", "-a", "Big Data")["spec"]["template"]["metadata"]["labels"].items()
    assert selector.items() <= one("pod", "-a", "Big Data")["metadata"]["labels"].items()
    assert refused("service", "-P", "1") == "name the app whose pods it is for: --app"
    assert refused("service", "-a", "x") == "name at least one port: --port"
    for text in ("0", "65536", "-1", "x", "7880/tcp", "", "١"):
        for generator in ("job", "service"):
            assert refused(generator, "-a", "x", "-P", text).startswith(f"--port {text}: a port is a number from 1 to")


def test_an_app_is_made_a_valid_label() -> None:
    labels = [at(one("job", "-a", text), f"{LABELS} app") for text in ("bigdata19", "a b", "a_b", "é", "", "a" * 80)]
    assert labels[0] == "bigdata19" and len(set(labels)) == 6
    assert at(one("job", "-n", "x", "-a", "a b"), "metadata name") == "x"


def test_the_shell_is_honoured() -> None:
    """The original's templates ignored it."""
    for shell, flags in (
        ("/usr/bin/zsh", ["-euo", "pipefail"]), ("/bin/sh", ["-eu"]), ("/bin/dash", ["-eu"]), ("/usr/bin/python3", []),
    ):  # fmt: skip
        document = one("job", "--shell", shell, "-c", "x")
        assert (at(document, f"{MAIN} command"), at(document, f"{MAIN} args")) == ([shell, *flags, "-c"], ["x"])
    assert at(one("job", "--shell-flags", ""), f"{MAIN} command") == ["/bin/bash", "-c"]
    assert at(one("job", "--shell", "sh", "--shell-flags", "-x"), f"{MAIN} command") == ["sh", "-x", "-c"]


def test_config_maps_and_secrets_may_be_called_as_objects_may_be() -> None:
    """An object's name may have dots, a volume's must not.

    And a ConfigMap called scratch leaves the scratch space.
    """
    document = one("job", "--config-map", "scratch", "--secret", "my.key", "--secret", "b" * 60)
    mounts = {each["mountPath"]: each for each in at(document, f"{MAIN} volumeMounts")}
    volumes = {each["name"]: each for each in at(document, f"{SPEC} volumes")}
    assert set(mounts) == {"/scratch", "/files", "/secrets/my.key", f"/secrets/{'b' * 60}"}
    assert "emptyDir" in volumes[mounts["/scratch"]["name"]]
    assert volumes[mounts["/files"]["name"]]["configMap"] == {"name": "scratch"}
    assert volumes[mounts["/secrets/my.key"]["name"]]["secret"] == {"secretName": "my.key"}
    assert [each.get("readOnly") for each in mounts.values()] == [None, True, True, True]
    for text in (":", ":/x", "a:b", ""):
        assert "write NAME or NAME:/PATH" in refused("job", "--secret", text)


def test_no_host_name_but_the_one_asked_for() -> None:
    """The original gave all pods of a Job the same."""
    assert at(one("job", "-n", "x"), f"{SPEC} hostname") == MISSING
    assert "--hostname" in refused("indexed", *SHARDED, "--hostname", "me")


GAC = "GOOGLE_APPLICATION_CREDENTIALS"


def test_credentials(folder: Path) -> None:
    """The original's ``default`` was the word itself.

    Its helper put the key where everybody can read it.
    """
    (folder / "kubetpl.yaml").write_text("gac: /key.json\n")
    assert GAC not in env_of(one("job", "--gac", "none"))
    assert env_of(one("job"))[GAC] == "/key.json"
    document = one("job", "--gac", "default", "--secret", "gac", "--secret", "gac:/keys", "--secret", "gac:/keys")
    mounts = [each["mountPath"] for each in at(document, f"{MAIN} volumeMounts") if each["name"] == "secret-gac"]
    assert mounts == ["/secrets/gac", "/keys"]
    assert env_of(document)[GAC] == "/secrets/gac/google_application_credentials.json"
    found = refused("job", "--gac", "default")
    assert "kubectl create secret generic gac --from-file=google_application_credentials.json=KEYFILE" in found
    assert "--service-account" in found


def test_restart_policies() -> None:
    document = one("job", "--restartpolicy", "OnFailure")
    assert at(document, "spec podFailurePolicy") == at(document, "spec podReplacementPolicy") == MISSING
    assert "are made for Never" in refused("indexed", *SHARDED, "--restartpolicy", "OnFailure")
    assert "OnFailure" in refused("job", "--restartpolicy", "Sometimes")
    assert one("pod", "--restartpolicy", "Always")["spec"]["restartPolicy"] == "Always"


def test_names_of_commands() -> None:
    """A value that is a command's name is a value; a command that is mistyped is named."""
    assert one("job", "-n", "pod", "-c", "status")["kind"] == "Job"
    for typo, right in (("jbo", "job"), ("index", "indexed"), ("stauts", "status")):
        assert refused(typo) == f"no command {typo!r}; did you mean {right}?"


# kubefcm's successor.


def test_configmap(folder: Path) -> None:
    (folder / "a.txt").write_text("one\n\n two \n")
    (folder / "b.bin").write_bytes(b"\xff\x00\x01")
    (folder / "nul.txt").write_bytes(b"a\0b")
    document = one("configmap", "files", "a.txt", "b.bin", "c.d=a.txt", "nul.txt", "-N", "team", "-L", "x=y")
    assert document["metadata"]["name"] == "files"
    assert document["metadata"]["namespace"] == "team"
    assert document["metadata"]["labels"]["x"] == "y"
    assert document["data"] == {"a.txt": "one\n\n two \n", "c.d": "one\n\n two \n"}
    assert document["binaryData"] == {"b.bin": "/wAB", "nul.txt": "YQBi"}
    assert one("configmap", "-n", "files", str(folder / "a.txt"))["data"] == {"a.txt": "one\n\n two \n"}
    (folder / "own.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {kept: here, a.txt: old}\n"
    )
    document = one("configmap", "files", "a.txt", "--template", "own.yaml")
    assert document["data"] == {"kept": "here", "a.txt": "one\n\n two \n"}


# As JSON, as text, in base64, and what openssl writes as DER: the begin of a PKCS 8 RSA key, and of
# a PKCS 1 one.
PEM = "-----BEGIN {}PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
KEYS = [
    json.dumps({"type": "service_account", "private_key": PEM.format(""), "client_email": "a@b"}).encode(),
    PEM.format("").encode(),
    *(base64.b64encode(PEM.format(kind).encode()) for kind in ("", "RSA ", "EC ")),
    bytes.fromhex("308204be020100300d06092a864886f70d0101010500"),
    bytes.fromhex("308204a30201000282010100b2ca5759e7a514"),
]


def test_configmap_takes_no_keys(folder: Path) -> None:
    for key in KEYS:
        (folder / "f").write_bytes(key)
        found = refused("configmap", "files", "innocent.txt=f")
        assert "looks like a private key" in found and "kubectl create secret" in found and "BEGIN" not in found


def test_configmap_refuses_what_cannot_be(folder: Path) -> None:
    (folder / "b").mkdir()
    for name in ("a", "b/a", "a b"):
        (folder / name).write_text("x")
    (folder / "big").write_bytes(b"x" * 300_000)
    assert "name the ConfigMap" in refused("configmap")
    assert "name the files" in refused("configmap", "x")
    assert "both be called a" in refused("configmap", "x", "a", "b/a")
    assert "at least 300000 bytes" in refused("configmap", "x", "big")
    for word in ("a b", "..a=a", "=a"):
        assert "write KEY=FILE" in refused("configmap", "x", word)
    assert kubetpl("configmap", "x", "missing").code == 66
