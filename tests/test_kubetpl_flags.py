"""Every flag of the original, in each way in which it can be said, and for each of its faults that ours is right."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplrun import MAIN, MISSING, SPEC, alone, at, env_of, kubetpl, one, printed, refused, rendered

from tarkit.k8s.settings import TABLE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@dataclass(frozen=True)
class Case:
    """One setting: how it is said on the command line and in a file, and what it does to the manifest."""

    name: str
    spellings: tuple[str, ...]
    value: Any
    fields: dict[str, Any]
    generator: str = "job"
    besides: tuple[str, ...] = ()
    # Lists in an environment variable have commas between them, or are JSON.
    environment: str | None = field(default=None)

    def words(self, spelling: str) -> list[str]:
        if self.value is True:
            return [spelling]
        if isinstance(self.value, dict):
            return [word for key, value in self.value.items() for word in (spelling, f"{key}={value}")]
        return [word for value in self.values() for word in (spelling, str(value))]

    def values(self) -> list[Any]:
        return self.value if isinstance(self.value, list) else [self.value]

    def variables(self) -> list[str]:
        if isinstance(self.value, dict):
            return [json.dumps(self.value), ",".join(f"{key}={value}" for key, value in self.value.items())]
        if isinstance(self.value, list):
            return [json.dumps(self.value), ", ".join(map(str, self.value))]
        return ["true", "1", "yes"] if self.value is True else [str(self.value)]


LABELS = "metadata labels"
POD_LABELS = "spec template metadata labels"
REQUESTS, LIMITS = f"{MAIN} resources requests", f"{MAIN} resources limits"
SHARDED = ("-n", "x", "-c", "true", "-I", "img", "--shards", "s3://b/a-{00..19}.tar", "-O", "s3://b/out")
OWN = "kubetpl-own"

ORIGINAL = [
    Case("name", ("-n", "--name"), "job7", {"metadata name": "job7", f"{POD_LABELS} app": "job7"}),
    Case("command", ("-c", "--command"), "echo 'a b' \"$c\"", {f"{MAIN} args": ["echo 'a b' \"$c\""]}),
    Case("image", ("-I", "--image"), "repo/i:1", {f"{MAIN} image": "repo/i:1"}),
    Case("cpu", ("-C", "--cpu"), "500m", {f"{REQUESTS} cpu": "500m", f"{LIMITS} cpu": MISSING}),
    Case("memory", ("-M", "--memory"), "4096Mi", {f"{REQUESTS} memory": "4Gi", f"{LIMITS} memory": "4Gi"}),
    Case("gpu", ("-G", "--gpu"), 2, {f"{REQUESTS} nvidia.com/gpu": "2", f"{LIMITS} nvidia.com/gpu": "2"}),
    Case(
        "accelerator", ("-A", "--accelerator"), "nvidia-l4",
        {f"{SPEC} nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"}},
    ),
    Case(
        "env", ("-e", "--env"), {"A": "1", "B": "x=y"},
        {f"{MAIN} env 2": {"name": "A", "value": "1"}, f"{MAIN} env 3": {"name": "B", "value": "x=y"}},
    ),
    Case(
        "param", ("-p", "--param"), {"who": "you", "n.2": "{who}"}, {f"{MAIN} args": ["hi you {who} {other} ${HOME}"]},
        besides=("-c", "hi {who} {n.2} {other} ${HOME}"),
    ),
    Case(
        "port", ("-P", "--port"), [7880, 7881],
        {f"{MAIN} ports": [{"containerPort": 7880}, {"containerPort": 7881}]},
    ),
    Case("label", ("-L", "--label"), {"team": "a", "x.y/z": "b"}, {
        f"{LABELS} team": "a", f"{LABELS} x.y/z": "b", f"{POD_LABELS} team": "a", f"{POD_LABELS} x.y/z": "b",
    }),
    Case("app", ("-a", "--app"), "bigdata19", {f"{LABELS} app": "bigdata19", f"{POD_LABELS} app": "bigdata19"}),
    Case("shell", ("--shell",), "/bin/sh", {f"{MAIN} command": ["/bin/sh", "-eu", "-c"], f"{MAIN} args": ["true"]}),
    Case("config_map", ("--config-map",), "files", {
        f"{SPEC} volumes 1": {"name": "config-files", "configMap": {"name": "files"}},
        f"{MAIN} volumeMounts 1": {"name": "config-files", "mountPath": "/files", "readOnly": True},
    }),
    Case(
        "config_map_path", ("--config-map-path",), "/etc/f",
        {f"{MAIN} volumeMounts 1": {"name": "config-files", "mountPath": "/etc/f", "readOnly": True}},
        besides=("--config-map", "files"),
    ),
    Case("hostname", ("--hostname",), "me", {f"{SPEC} hostname": "me"}),
    Case("subdomain", ("--subdomain",), "net", {f"{SPEC} subdomain": "net"}),
    Case("gac", ("--gac",), "/k/key.json", {
        f"{MAIN} env 2": {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/k/key.json"},
        f"{SPEC} volumes 1": MISSING,
    }),
    Case("restartpolicy", ("--restartpolicy",), "OnFailure", {f"{SPEC} restartPolicy": "OnFailure"}),
]  # fmt: skip
FURTHER = [
    Case(
        "gpu_resource", ("--gpu-resource",), "amd.com/gpu",
        {f"{LIMITS} amd.com/gpu": "1", f"{LIMITS} nvidia.com/gpu": MISSING}, besides=("-G", "1"),
    ),
    Case("shell_flags", ("--shell-flags",), "-x -e", {f"{MAIN} command": ["/bin/bash", "-x", "-e", "-c"]}),
    Case("secret", ("--secret",), ["a", "b:/k"], {
        f"{SPEC} volumes 1": {"name": "secret-a", "secret": {"secretName": "a"}},
        f"{MAIN} volumeMounts 1": {"name": "secret-a", "mountPath": "/secrets/a", "readOnly": True},
        f"{MAIN} volumeMounts 2": {"name": "secret-b", "mountPath": "/k", "readOnly": True},
    }),
    Case("service_account", ("--service-account",), "etl", {f"{SPEC} serviceAccountName": "etl"}),
    Case("namespace", ("-N", "--namespace"), "team", {"metadata namespace": "team"}),
    Case("security", ("--security",), "baseline", {
        f"{MAIN} securityContext": MISSING, f"{SPEC} securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }),
    Case("run_as", ("--run-as",), 1000, {
        f"{SPEC} securityContext runAsUser": 1000, f"{SPEC} securityContext runAsGroup": 1000,
        f"{SPEC} securityContext fsGroup": 1000,
    }),
    Case("scratch", ("--scratch",), "20Gi", {
        f"{SPEC} volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}}],
        f"{REQUESTS} ephemeral-storage": "20Gi", f"{LIMITS} ephemeral-storage": "22Gi",
    }),
    Case("spot", ("--spot",), "eks", {f"{SPEC} terminationGracePeriodSeconds": 15}),
    Case("queue", ("--queue",), "etl", {f"{LABELS} kueue.x-k8s.io/queue-name": "etl", "spec suspend": MISSING},
         besides=("-C", "1")),
    Case("priority_class", ("--priority-class",), "low", {f"{SPEC} priorityClassName": "low"}),
    Case("node_selector", ("--node-selector",), {"a/b": "c"}, {f"{SPEC} nodeSelector": {"a/b": "c"}}),
    Case("toleration", ("--toleration",), ["gpu", "a/b=c:NoSchedule"], {f"{SPEC} tolerations": [
        {"key": "gpu", "operator": "Exists"},
        {"key": "a/b", "operator": "Equal", "value": "c", "effect": "NoSchedule"},
    ]}),
    Case("image_pull_secret", ("--image-pull-secret",), ["r1", "r2"],
         {f"{SPEC} imagePullSecrets": [{"name": "r1"}, {"name": "r2"}]}),
    Case("retries", ("--retries",), 4, {"spec backoffLimit": 4}),
    Case("deadline", ("--deadline",), "1.5h", {"spec activeDeadlineSeconds": 5400}),
    Case("ttl", ("--ttl",), "7d", {"spec ttlSecondsAfterFinished": 604800}),
    Case("over", ("--over",), "{00..01}", {"metadata name": "j00"}, "jobs", ("-n", "j{i}")),
    Case("shards", ("--shards",), ["s3://b/a.tar", "s3://b/b.tar"], {"spec completions": 2}, "indexed",
         ("-n", "x", "-c", "true", "-I", "img", "-O", "s3://b/out")),
    Case("outdir", ("-O", "--outdir"), "s3://b/o", {"metadata annotations tarkit.dev/outdir": "s3://b/o"}, "indexed",
         SHARDED[:-2]),
    Case("parallelism", ("-j", "--parallelism"), 3, {"spec parallelism": 3}, "indexed", SHARDED),
    Case("slices", ("--slices",), 4, {"spec completions": 4}, "indexed", SHARDED),
    Case("slice_target", ("--slice-target",), "2m", {"spec completions": 10}, "indexed",
         (*SHARDED, "--shard-seconds", "60", "-j", "1")),
    Case("shard_seconds", ("--shard-seconds",), "60", {"spec completions": 4}, "indexed",
         (*SHARDED, "--slice-target", "5m", "-j", "1")),
    Case("max_failed", ("--max-failed",), "10%", {"spec maxFailedIndexes": 2}, "indexed", SHARDED),
    Case("min_parallelism", ("--min-parallelism",), 2,
         {"metadata annotations kueue.x-k8s.io/job-min-parallelism": "2"}, "indexed", (*SHARDED, "--queue", "q")),
    Case("raw", ("--raw",), True, {f"{MAIN} args": ["true"]}, "indexed", SHARDED),
]  # fmt: skip
CASES = [*ORIGINAL, *FURTHER]


def test_every_setting_is_in_the_table() -> None:
    # list_url writes a file: it has its own test beside those of indexed.
    assert {case.name for case in CASES} == {each.name for each in TABLE.values()} - {"list_url"}
    for case in CASES:
        assert case.spellings == next(each.flags for each in TABLE.values() if each.name == case.name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_flag_says_the_same_in_every_way(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [case.generator, *case.besides, *case.words(case.spellings[0])]
    found = rendered(*first)
    for path, value in case.fields.items():
        assert at(found[0], path) == value, path
    texts = [printed(*first)]
    for spelling in case.spellings:
        words = case.words(spelling)
        texts.append(printed(case.generator, *words, *case.besides))
        # The original had its options before the template's name.
        texts.append(printed(*words, *case.besides, case.generator))
        if spelling.startswith("--") and len(words) == 2:
            texts.append(printed(case.generator, f"{spelling}={words[1]}", *case.besides))
        elif len(words) == 2:
            texts.append(printed(f"{spelling}{words[1]}", case.generator, *case.besides))
    for key in {case.name, case.name.replace("_", "-")}:
        (folder / "kubetpl.yaml").write_text(yaml.safe_dump({key: case.value}))
        texts.append(printed(case.generator, *case.besides))
    (folder / "kubetpl.yaml").unlink()
    for text in case.variables():
        monkeypatch.setenv(f"KUBETPL_{case.name.upper()}", text)
        texts.append(printed(case.generator, *case.besides))
    assert set(texts) == {texts[0]}


@pytest.mark.parametrize("case", [case for case in CASES if "job" in case.generator], ids=lambda case: case.name)
def test_what_is_not_asked_for_stays(case: Case) -> None:
    """Besides the fields that it is about a flag changes nothing: what others would change stands there as it was."""
    plain, changed = rendered(case.generator, *case.besides)[0] if case.name != "over" else None, None
    if plain is None:
        assert "name the items that the Jobs are for" in refused("jobs", *case.besides)
        return
    changed = rendered(case.generator, *case.besides, *case.words(case.spellings[-1]))[0]
    kinds = {"name": "labels", "app": "labels", "label": "labels"}
    touched = {path.split()[-1] for path in case.fields} | {kinds.get(case.name, case.name)}
    assert changed != plain
    assert changed["kind"] == plain["kind"]
    if "image" not in touched:
        assert at(changed, f"{MAIN} image") == "ubuntu:24.04"
    if "memory" not in touched:
        assert at(changed, f"{LIMITS} memory") == "1G"
    if case.name not in ("command", "param"):
        assert at(changed, f"{MAIN} args") == at(plain, f"{MAIN} args")
    if case.name not in ("shell", "shell_flags"):
        assert at(changed, f"{MAIN} command") == ["/bin/bash", "-euo", "pipefail", "-c"]


# The rest: fault by fault.


@pytest.mark.parametrize(
    ("text", "value"), [("1.0", "1"), ("2", "2"), ("0.5", "500m"), ("1500m", "1500m"), ("1e0", "1"), ("-1", MISSING),
                        ("-1.0", MISSING), ("0", MISSING), ("0.0", MISSING), ("2000m", "2")],
)  # fmt: skip
def test_cpus_are_any_quantity(text: str, value: str) -> None:
    """The original refused 500m, and printed 1.0, which a server rewrites."""
    assert at(one("job", "-C", text), f"{REQUESTS} cpu") == value
    assert at(one("job", f"--cpu={text}"), f"{MAIN} resources limits") == {"memory": "1G", "ephemeral-storage": "3Gi"}


@pytest.mark.parametrize("value", [1, 1.0, 0.5, -1, -1.0, "500m", "1"])
def test_cpus_of_a_file_may_be_numbers(folder: Path, value: Any) -> None:
    (folder / "kubetpl.yaml").write_text(yaml.safe_dump({"cpu": value}))
    expected = {1: "1", 0.5: "500m", -1: MISSING, "500m": "500m", "1": "1"}[value]
    assert at(one("job"), f"{REQUESTS} cpu") == expected


def test_no_cpus_take_away_those_of_a_file(folder: Path) -> None:
    (folder / "kubetpl.yaml").write_text("cpu: 4\ngpu: 2\n")
    document = one("job", "-C", "-1", "-G", "0")
    assert at(document, f"{MAIN} resources") == at(one("job", "-C-1", "--gpu", "0"), f"{MAIN} resources")
    assert set(at(document, REQUESTS)) == {"memory", "ephemeral-storage"}


@pytest.mark.parametrize("text", ["x", "1 2", "1,5", "", "nan", "1c", "٣"])
def test_other_cpus_are_refused(text: str) -> None:
    assert refused("job", "-C", text).startswith("--cpu: ")


@pytest.mark.parametrize("text", ["4GB", "4 GB", "400m", "4g", "4gb", "", "lots", "1k5", "0x10", "4Gib"])
def test_memory_that_is_none_is_refused(text: str) -> None:
    """The original printed anything; a server refuses most, and takes 400m as less than a byte."""
    assert "--memory" in refused("job", "-M", text)


@pytest.mark.parametrize("text", ["-1", "-4G", "0"])
def test_memory_below_nothing_is_refused(text: str) -> None:
    outcome = kubetpl("job", "-M", text)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--memory" in outcome.err


@pytest.mark.parametrize(("text", "hint"), [("4GB", "write 4G"), ("4 GB", "write 4G"), ("400m", "400M")])
def test_what_was_meant_is_said(text: str, hint: str) -> None:
    assert hint in refused("job", "--memory", text)


@pytest.mark.parametrize("text", ["4G", "4Gi", "512M", "1e9", "4000M", "4096Mi", "1.5Gi", "2T"])
def test_memory_is_as_a_server_keeps_it(text: str) -> None:
    value = {"4000M": "4G", "4096Mi": "4Gi", "1.5Gi": "1536Mi"}.get(text, text)
    document = one("job", "-M", text)
    assert at(document, f"{REQUESTS} memory") == at(document, f"{LIMITS} memory") == value


@pytest.mark.parametrize("text", ["FOO", "", "=x", "A B", "1"])
def test_a_variable_without_a_value_is_refused_in_a_sentence(text: str) -> None:
    """The original ended in an IndexError."""
    assert refused("job", "-e", text) == f"command line: env (--env) is NAME=VALUE; got {text!r}"


@pytest.mark.parametrize("flag", ["-L", "-p", "--node-selector"])
def test_other_pairs_are_refused_in_the_same_way(flag: str) -> None:
    assert "is NAME=VALUE; got 'x'" in refused("job", flag, "x")


def test_a_value_may_be_empty_and_may_hold_anything() -> None:
    document = one("job", "-e", "A=", "-e", "B=x=y", "-e", "C=a,b", "-e", "D= \n\té", "-e", "E={i}")
    assert {"A": "", "B": "x=y", "C": "a,b", "D": " \n\té", "E": "{i}"}.items() <= env_of(document).items()


def test_the_last_of_a_name_wins_and_keeps_its_place() -> None:
    document = one("job", "-e", "A=1", "-e", "B=2", "-e", "A=3")
    assert at(document, f"{MAIN} env")[2:] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]


def test_a_variable_of_the_template_is_replaced() -> None:
    document = one("job", "-e", "TMPDIR=/elsewhere")
    assert [each["name"] for each in at(document, f"{MAIN} env")] == ["TMPDIR", "HOME"]
    assert env_of(document)["TMPDIR"] == "/elsewhere"


BRACES = "echo ${HOME} {} {0} {{x}} | awk '{print $1}' | xargs -I{} cp {} {undeclared}"


def test_only_declared_names_are_replaced() -> None:
    """The original gave the whole command to str.format: any ${HOME} was a KeyError."""
    assert at(one("job", "-c", BRACES), f"{MAIN} args") == [BRACES]
    assert "there is no {y} in --command" in refused("job", "-c", BRACES, "-p", "y=1")
    assert at(one("job", "-c", BRACES, "-p", "x=1"), f"{MAIN} args") == [BRACES.replace("{x}", "1")]
    # Also what is declared is no format: a value is not looked at again, and a name is no pattern.
    document = one("job", "-c", "{a}{b}{a.}{ab}", "-p", "a={b}", "-p", "b={a}", "-p", "a.=\\1")
    assert at(document, f"{MAIN} args") == ["{b}{a}\\1{ab}"]


def test_braces_after_a_dollar_are_the_shells() -> None:
    """The original made $v of ${a}."""
    document = one("job", "-c", "${a} {a} ${a:-{a}} ${{a}} {{a}} \\${a}", "-p", "a=v")
    assert at(document, f"{MAIN} args") == ["${a} v ${a:-v} ${v} {v} \\${a}"]
    assert "(${…} is the shell's)" in refused("job", "-c", "echo ${a}", "-p", "a=v")


@pytest.mark.parametrize("text", ["0", "65536", "-1", "x", "7880/tcp", "", "78 80", "١"])
@pytest.mark.parametrize("generator", ["job", "service"])
def test_a_port_is_a_port(text: str, generator: str) -> None:
    assert refused(generator, "-a", "x", "-P", text).startswith(f"--port {text}: a port is a number from 1 to 65535")


def test_a_service_has_an_entry_for_each_port(folder: Path) -> None:
    """The original printed ``port: [7880]``, which no server takes."""
    assert at(one("service", "-a", "web", "-P", "7880"), "spec ports") == [{"port": 7880, "targetPort": 7880}]
    assert at(one("service", "-a", "web", "-P", "80", "-P", "443", "-P", "80"), "spec ports") == [
        {"name": "port-80", "port": 80, "targetPort": 80},
        {"name": "port-443", "port": 443, "targetPort": 443},
    ]
    (folder / "kubetpl.yaml").write_text("app: bigdata19\nport:\n  - 7880\n")
    document = one("service")
    assert document["metadata"]["name"] == "bigdata19"
    assert document["spec"] == {
        "clusterIP": "None", "selector": {"app": "bigdata19"}, "ports": [{"port": 7880, "targetPort": 7880}],
    }  # fmt: skip
    (folder / "kubetpl.yaml").write_text("app: bigdata19\nport: 7880\n")
    assert one("service") == document


@pytest.mark.parametrize("generator", ["job", "pod", "jobs"])
def test_a_service_finds_the_pods(generator: str) -> None:
    """No service found the original's: they had no labels."""
    more = ["--over", "{0..1}"] if generator == "jobs" else []
    selector = one("service", "-a", "Big Data", "-P", "1")["spec"]["selector"]
    for document in rendered(generator, "-a", "Big Data", *more):
        labels = document["metadata" if generator == "pod" else "spec"]
        labels = labels["labels"] if generator == "pod" else labels["template"]["metadata"]["labels"]
        assert selector.items() <= labels.items()


def test_a_service_needs_an_app_and_a_port() -> None:
    assert refused("service", "-P", "1") == "name the app whose pods it is for: --app"
    assert refused("service", "-a", "x") == "name at least one port: --port"


@pytest.mark.parametrize("text", ["Big_Data 19", "-x-", "é", "", "a" * 80, "host/user/work dir"])
def test_an_app_is_made_a_valid_label(text: str) -> None:
    document = one("job", "-n", "x", "-a", text)
    assert document["metadata"]["labels"]["app"] == at(document, f"{POD_LABELS} app")
    assert one("job", "-n", "x", "-a", text) == document
    assert document["metadata"]["name"] == "x"


def test_apps_that_are_valid_stay_and_others_stay_different() -> None:
    assert at(one("job", "-a", "bigdata19"), f"{LABELS} app") == "bigdata19"
    assert at(one("job", "-a", "a b"), f"{LABELS} app") != at(one("job", "-a", "a_b"), f"{LABELS} app")


@pytest.mark.parametrize(
    ("shell", "flags"),
    [("/bin/bash", ["-euo", "pipefail"]), ("bash", ["-euo", "pipefail"]), ("/usr/bin/zsh", ["-euo", "pipefail"]),
     ("/bin/sh", ["-eu"]), ("/bin/dash", ["-eu"]), ("/usr/bin/python3", []), ("/usr/bin/perl", [])],
)  # fmt: skip
def test_the_shell_is_honoured(shell: str, flags: list[str]) -> None:
    """The original's templates ignored it."""
    document = one("job", "--shell", shell, "-c", "x")
    assert at(document, f"{MAIN} command") == [shell, *flags, "-c"]
    assert at(document, f"{MAIN} args") == ["x"]


def test_a_shells_flags() -> None:
    assert at(one("job", "--shell-flags", ""), f"{MAIN} command") == ["/bin/bash", "-c"]
    assert at(one("job", "--shell", "sh", "--shell-flags", "-x"), f"{MAIN} command") == ["sh", "-x", "-c"]


def test_a_config_map_is_mounted_read_only() -> None:
    document = one("job", "--config-map", "files", "--secret", "keys")
    assert [each.get("readOnly") for each in at(document, f"{MAIN} volumeMounts")] == [None, True, True]


def test_config_maps_may_be_called_as_objects_may_be() -> None:
    """An object's name may have dots; a volume's must not."""
    document = one("job", "--config-map", "my.files", "--secret", "my.key", "--secret", "b" * 60)
    assert at(document, f"{SPEC} volumes 1 configMap name") == "my.files"
    assert at(document, f"{SPEC} volumes 2 secret secretName") == "my.key"
    assert at(document, f"{SPEC} volumes 3 secret secretName") == "b" * 60
    assert at(document, f"{MAIN} volumeMounts 2 mountPath") == "/secrets/my.key"


def test_a_config_map_called_scratch_leaves_the_scratch_space() -> None:
    document = one("job", "--config-map", "scratch")
    mounts = {each["mountPath"]: each["name"] for each in at(document, f"{MAIN} volumeMounts")}
    volumes = {each["name"]: each for each in at(document, f"{SPEC} volumes")}
    assert "emptyDir" in volumes[mounts["/scratch"]]
    assert volumes[mounts["/files"]]["configMap"] == {"name": "scratch"}


def test_no_host_name_but_the_one_asked_for() -> None:
    """The original gave all pods of a Job the same."""
    assert at(one("job", "-n", "x"), f"{SPEC} hostname") == MISSING
    assert "--hostname" in refused("indexed", *SHARDED, "--hostname", "me")


GAC = "GOOGLE_APPLICATION_CREDENTIALS"


def test_credentials() -> None:
    """The original's ``default`` was the word itself; its helper put the key where everybody can read it."""
    assert GAC not in env_of(one("job"))
    assert GAC not in env_of(one("job", "--gac", "none"))
    assert env_of(one("job", "--gac", "/key.json"))[GAC] == "/key.json"
    document = one("job", "--gac", "default", "--secret", "gac", "--secret", "other")
    assert env_of(document)[GAC] == "/secrets/gac/google_application_credentials.json"
    document = one("job", "--gac", "default", "--secret", "gac", "--secret", "gac:/keys", "--secret", "gac:/keys")
    mounts = [each["mountPath"] for each in at(document, f"{MAIN} volumeMounts") if each["name"] == "secret-gac"]
    assert (mounts, env_of(document)[GAC][:12]) == (["/secrets/gac", "/keys"], "/secrets/gac")
    document = one("job", "--gac", "default", "--secret", "gac:/keys/")
    assert env_of(document)[GAC] == "/keys/google_application_credentials.json"
    said = refused("job", "--gac", "default")
    assert "kubectl create secret generic gac --from-file=google_application_credentials.json=KEYFILE" in said
    assert "--service-account" in said


def test_no_credentials_take_away_those_of_a_file(folder: Path) -> None:
    (folder / "kubetpl.yaml").write_text("gac: /key.json\n")
    assert GAC in env_of(one("job"))
    assert GAC not in env_of(one("job", "--gac", "none"))


@pytest.mark.parametrize("text", [":", ":/x", "a:b", "a:", ""])
def test_a_secrets_place_is_a_path(text: str) -> None:
    outcome = kubetpl("job", "--secret", text)
    if text == "a:":
        assert outcome.code == 0
    else:
        assert outcome.code == 2
        assert "write NAME or NAME:/PATH" in outcome.err


def test_restart_policies() -> None:
    assert at(one("job"), f"{SPEC} restartPolicy") == "Never"
    document = one("job", "--restartpolicy", "OnFailure")
    assert at(document, "spec podFailurePolicy") == MISSING
    assert at(document, "spec podReplacementPolicy") == MISSING
    assert "are made for Never" in refused("indexed", *SHARDED, "--restartpolicy", "OnFailure")
    assert "OnFailure" in refused("job", "--restartpolicy", "Sometimes")
    assert one("pod", "--restartpolicy", "Always")["spec"]["restartPolicy"] == "Always"


# Templates by name, and what stands before it.

MINE = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: {name}:1
    resources: {{requests: {{memory: 1Gi}}, limits: {{memory: 1Gi}}}}
"""


def test_own_templates_are_found_by_name(folder: Path) -> None:
    for where in ("a", "b", "kubetpl-templates", ".kubetpl"):
        (folder / where).mkdir()
        (folder / where / "mine.yaml").write_text(MINE.format(name=f"from{where.strip('.')[0]}"))
    (folder / "b" / "other.yaml").write_text(MINE.format(name="other"))
    assert one("mine")["spec"]["containers"][0]["image"] == "fromk:1"
    for words in (["--path", "a:b", "mine"], ["--path=a:b", "mine"], ["mine", "--path", "a:b"]):
        assert one(*words)["metadata"]["name"] == "froma", words
    assert one("--path", "missing:b:a", "mine", "-n", "x")["spec"]["containers"][0]["image"] == "fromb:1"
    assert one("--path", "a:b", "other", "-c", "echo")["spec"]["containers"][0]["args"] == ["echo"]
    usual = "kubetpl-templates, .kubetpl, /usr/local/lib/kubetpl, /usr/lib/kubetpl"
    assert refused("other").startswith(f"no command 'other', nor a template of it in {usual}; commands are job")
    assert "nor a template of it in a;" in refused("--path", "a", "other")
    for typo, right in (("jbo", "job"), ("index", "indexed"), ("stauts", "status"), ("mien", "mine")):
        assert refused(typo).endswith(f"; did you mean {right}?")


def test_an_own_job_is_taken_for_ours(folder: Path) -> None:
    (folder / ".kubetpl").mkdir()
    (folder / ".kubetpl" / "job.yaml").write_text(MINE.format(name="mine"))
    assert one("job", "-n", "x")["kind"] == "Pod"
    assert one("--path", "", "job", "-n", "x")["kind"] == "Job"


@pytest.mark.parametrize("generator", ["job", "pod"])
def test_options_before_and_after_the_name(generator: str) -> None:
    before = rendered("-n", "x", "-c", "-y", generator, "-M", "2G", "-e", "A=job")
    assert before == rendered(generator, "-n", "x", "-c", "-y", "-M", "2G", "-e", "A=job")
    assert before == rendered("-nx", "--command=-y", "-M2G", "-e", "A=job", generator)


def test_a_value_that_is_a_commands_name_is_a_value() -> None:
    assert one("-n", "pod", "job", "-c", "status")["kind"] == "Job"
    assert at(one("-c", "job", "job"), f"{MAIN} args") == ["job"]


@pytest.mark.parametrize("words", [("-n", "x"), ("-n", "x", "-c", "y")])
def test_options_without_a_name_say_that_it_is_missing(words: tuple[str, ...]) -> None:
    assert "No such option" not in refused(*words)
    assert "job" in refused(*words)


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
    assert one("configmap", "-n", "files", "a.txt")["data"] == {"a.txt": "one\n\n two \n"}
    assert one("-n", "files", "configmap", str(folder / "a.txt"))["data"] == {"a.txt": "one\n\n two \n"}


def test_configmap_keeps_what_a_template_of_the_users_has(folder: Path) -> None:
    (folder / "own.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {kept: here, a: old}\nbinaryData: {b: /wAB}\n"
    )
    (folder / "a").write_text("new")
    document = one("configmap", "files", "a", "--template", "own.yaml")
    assert (document["data"], document["binaryData"]) == ({"kept": "here", "a": "new"}, {"b": "/wAB"})


def test_scratch_in_memory_leaves_nothing_empty(folder: Path) -> None:
    (folder / "bare.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers: [{name: main, image: 'i:1'}]\n"
    )
    (main,) = one("pod", "--template", "bare.yaml", "--scratch", "memory:1Gi")["spec"]["containers"]
    assert "resources" not in main


KEY = json.dumps({"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\nx\n", "client_email": "a@b"})


@pytest.mark.parametrize("key", ["google_application_credentials.json", "innocent.txt"])
def test_configmap_takes_no_keys(folder: Path, key: str) -> None:
    (folder / "f").write_text(KEY)
    said = refused("configmap", "files", f"{key}=f")
    assert "kubectl create secret" in said
    assert "PRIVATE" not in said.replace("private key", "")


def test_configmap_refuses_what_can_not_be(folder: Path) -> None:
    (folder / "a").write_text("x")
    (folder / "b").mkdir()
    (folder / "b" / "a").write_text("y")
    (folder / "big").write_bytes(b"x" * 300_000)
    (folder / "a b").write_text("x")
    assert "name the ConfigMap" in refused("configmap")
    assert "name the files" in refused("configmap", "x")
    assert "name the files" in refused("configmap", "-n", "x")
    assert "both be called a" in refused("configmap", "x", "a", "b/a")
    assert "at least 300000 bytes" in refused("configmap", "x", "big")
    for word in ("a b", "..a=a", "=a"):
        assert "write KEY=FILE" in refused("configmap", "x", word)
    assert kubetpl("configmap", "x", "missing").code == 66
    assert kubetpl("configmap", "x", "b").code in (1, 2, 65, 66)
    assert kubetpl("configmap", "x", "b").out == ""


def test_braces_in_an_item_of_jobs_are_no_place_for_its_number() -> None:
    job = one("jobs", "-n", "part-{n}", "-c", "echo {i}", "-e", "ITEM={i}", "--over", "a\\{n\\}")
    assert job["metadata"]["name"] == "part-0"
    assert env_of(job)["ITEM"] == "a{n}"
    assert at(job, f"{MAIN} args") == ["echo a{n}"]
