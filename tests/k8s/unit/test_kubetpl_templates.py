"""Manifests of the user's own: only what was asked for is changed.

And tarkit's own, as they stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubetplrun import LOADER, MAIN, alone, at, documents, kubetpl, one, refused, rendered, valid

from tarkit.k8s.fill import filled
from tarkit.k8s.settings import Settings
from tarkit.k8s.templates import read_template, template_path

TEMPLATES = Path(__file__).resolve().parents[3] / "k8s_templates"
POD = """\
{indent}restartPolicy: Never
{indent}nodeSelector: {{disk: ssd}}
{indent}initContainers:
{indent}- name: first
{indent}  image: first:1
{indent}  resources: {{requests: {{memory: 1Gi, cpu: 100m}}, limits: {{memory: 1Gi}}}}
{indent}containers:
{indent}- name: sidecar
{indent}  image: sidecar:1
{indent}  resources: {{requests: {{memory: 1Gi}}, limits: {{memory: 1Gi}}}}
{indent}- name: main
{indent}  image: mine:1
{indent}  command: [python3, -c]
{indent}  args: ["print(1)"]
{indent}  env:
{indent}  - {{name: A, value: "1"}}
{indent}  - {{name: B, valueFrom: {{secretKeyRef: {{name: s, key: k}}}}}}
{indent}  resources: {{requests: {{memory: 2Gi, cpu: "2"}}, limits: {{memory: 2Gi, cpu: "4"}}}}
{indent}  volumeMounts: [{{name: own, mountPath: /own}}]
{indent}volumes: [{{name: own, emptyDir: {{}}}}]
"""
HEADS = {
    "Pod": ("v1", "spec:\n", 2, "spec"),
    "Job": ("batch/v1", "spec:\n  backoffLimit: 7\n  template:\n    spec:\n", 6, "spec template spec"),
    "CronJob": (
        "batch/v1",
        "spec:\n  schedule: '0 1 * * *'\n  jobTemplate:\n    spec:\n      template:\n        spec:\n",
        10,
        "spec jobTemplate spec template spec",
    ),
}


def manifest(kind: str) -> str:
    version, head, depth, _ = HEADS[kind]
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata:\n  name: own\n  labels: {{own: 'yes'}}\n{head}"
    return text + POD.format(indent=" " * depth)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def load(text: str) -> dict[str, Any]:
    (document,) = documents(text)
    return document


@pytest.fixture(params=HEADS)
def own(request: pytest.FixtureRequest, folder: Path) -> tuple[dict[str, Any], str]:
    """A template in t.yaml, and where its pod is."""
    (folder / "t.yaml").write_text(manifest(request.param))
    return load(manifest(request.param)), HEADS[request.param][3]


def changes(before: Any, after: Any, path: str = "") -> dict[str, Any]:
    """What is different, by its path; of lists of unequal length, the list."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = {}
        for key in {**before, **after}:
            found.update(changes(before.get(key), after.get(key), f"{path} {key}".strip()))
        return found
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return {k: v for n in range(len(after)) for k, v in changes(before[n], after[n], f"{path} {n}").items()}
    return {} if before == after else {path: after}


def test_nothing_asked_for_changes_nothing(own: tuple[dict[str, Any], str]) -> None:
    assert {k: v for k, v in changes(own[0], one("job", "--template", "t.yaml")).items() if v != {}} == {}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-I", "x:2"), {"containers 1 image": "x:2"}),
        (("-M", "8G"), {"containers 1 resources requests memory": "8G", "containers 1 resources limits memory": "8G"}),
        # A limit of CPUs of one's own goes when CPUs are asked for: it might be less.
        (("-C", "3"), {"containers 1 resources requests cpu": "3", "containers 1 resources limits cpu": None}),
        (("-c", "print(2)"), {"containers 1 args 0": "print(2)"}),
        (("-e", "A=2"), {"containers 1 env 0 value": "2"}),
        (("-e", "B=2"), {"containers 1 env 1 value": "2", "containers 1 env 1 valueFrom": None}),
        (("--node-selector", "a=b"), {"nodeSelector a": "b"}),
        (("--shell", "/bin/sh"), {"containers 1 command": ["/bin/sh", "-eu", "-c"]}),
        (("--service-account", "etl"), {"serviceAccountName": "etl"}),
        (("-P", "80"), {"containers 1 ports": [{"containerPort": 80}]}),
        (("--priority-class", "p"), {"priorityClassName": "p"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_only_what_was_asked_for_changes(
    own: tuple[dict[str, Any], str], words: tuple[str, ...], expected: dict[str, Any]
) -> None:
    document, pod = own
    found = changes(document, one("job", "--template", "t.yaml", *words))
    assert {path: value for path, value in found.items() if value != {}} == {
        f"{pod} {path}": value for path, value in expected.items()
    }


def test_a_name_and_labels(own: tuple[dict[str, Any], str]) -> None:
    document = one("job", "--template", "t.yaml", "-n", "x", "-N", "team", "-L", "a=b")
    assert document["metadata"] == {
        "name": "x", "namespace": "team",
        "labels": {"own": "yes", "a": "b", "app": "x", "app.kubernetes.io/name": "x"},
    }  # fmt: skip
    template = at(document, own[1].removesuffix("spec").strip())
    if document["kind"] != "Pod":
        assert template["metadata"]["labels"].items() >= {"a": "b", "app": "x"}.items()


def test_a_command_for_a_container_that_runs_none(folder: Path) -> None:
    """Or one that takes no script."""
    none = manifest("Job").replace('        command: [python3, -c]\n        args: ["print(1)"]\n', "")
    for text in (none, manifest("Job").replace("[python3, -c]", "[/entrypoint]")):
        (folder / "t.yaml").write_text(text)
        container = one("job", "--template", "t.yaml", "-c", "x")["spec"]["template"]["spec"]["containers"][1]
        assert (container["command"], container["args"]) == (["/bin/bash", "-euo", "pipefail", "-c"], ["x"])


def test_jobs_of_a_cronjob_have_jobs_settings(folder: Path) -> None:
    """--deadline and the like are about Jobs; a CronJob makes them."""
    (folder / "t.yaml").write_text(manifest("CronJob"))
    spec = one("job", "--template", "t.yaml", "--deadline", "1h", "--ttl", "1d", "--retries", "2")["spec"]
    assert spec["jobTemplate"]["spec"].items() >= {
        "activeDeadlineSeconds": 3600, "ttlSecondsAfterFinished": 86400, "backoffLimit": 2,
    }.items()  # fmt: skip


@pytest.mark.parametrize("words", [("--deadline", "1h"), ("--retries", "2"), ("--ttl", "1d")])
def test_what_has_no_place_is_not_lost_quietly(words: tuple[str, ...], folder: Path) -> None:
    (folder / "t.yaml").write_text(manifest("Pod"))
    assert words[0] in refused("job", "--template", "t.yaml", *words)


def test_several_documents(folder: Path) -> None:
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"
    (folder / "t.yaml").write_text(f"# first\n---\n{config}---\n{manifest('Job')}---\n# nothing\n")
    plain = rendered("job", "--template", "t.yaml")
    assert [each["kind"] for each in plain] == ["ConfigMap", "Job"]
    changed = rendered("job", "--template", "t.yaml", "-I", "x:2", "--set", "spec.backoffLimit=2", "-n", "x")
    assert changed[0]["data"] == {"a": "b"}
    # Only the main one is renamed: the rest is what it refers to by name.
    assert [each["metadata"]["name"] for each in changed] == ["c", "x"]
    assert [each["metadata"]["labels"]["app"] for each in changed] == ["x", "x"]
    assert changed[1]["spec"]["backoffLimit"] == 2
    assert changed[1]["spec"]["template"]["spec"]["containers"][1]["image"] == "x:2"


def test_braces_in_a_command_are_no_template_of_text(folder: Path) -> None:
    text = manifest("Job").replace("print(1)", "{{ x }} {% y %}")
    (folder / "t.yaml").write_text(text)
    document = one("job", "--template", "t.yaml")
    assert document["spec"]["template"]["spec"]["containers"][1]["args"] == ["{{ x }} {% y %}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "t.yaml: it has no manifest in it"), ("kind: 3\n", "t.yaml: document 1 is not a manifest"),
        ("kind: Job\nspec: 3\n", "the template has '3' where a mapping belongs"),
        ("kind: Job\nspec: {template: {spec: {containers: []}}}\n", "the template's pod has no container"),
        ("kind: Job\nspec: {template: {spec: {containers: [3]}}}\n", "the template has '3' where a mapping belongs"),
        ("kind: Job\nspec: {template: {spec: {containers: {a: b}}}}\n", "where the list containers belongs"),
        ("kind: Job\nmetadata: {labels: 3}\n", "the template has '3' where a mapping belongs"),
        ("kind: Job\nmetadata:\nspec: {template: {spec: {containers: [{env: 3}]}}}\n", "where the list env belongs"),
        ("kind: Job\nspec: {template: {spec: {tolerations: 3, containers: [{}]}}}\n", "the list tolerations belongs"),
    ],
)  # fmt: skip
def test_templates_that_are_none(text: str, said: str, folder: Path) -> None:
    (folder / "t.yaml").write_text(text)
    words = ["-e", "A=1", "-M", "1G", "--config-map", "c", "--toleration", "a", "-L", "a=b"]
    assert said in refused("job", "--template", "t.yaml", *words)


@pytest.mark.parametrize(
    "text",
    [
        "metadata:\nspec: {template: {spec: {containers: [{name: main, image: 'i:1'}]}}}",
        "metadata: {labels: }\nspec: {template: {metadata: , spec: {volumes: , containers: [{name: main}]}}}",
        "spec: {template: {spec: {securityContext: , containers: [{name: main, securityContext: , env: }]}}}",
        "spec: {template: {spec: {containers: [{name: main, resources: , volumeMounts: , ports: }]}}}",
    ],
)
def test_fields_that_are_there_and_empty(text: str, folder: Path) -> None:
    """``env:`` and nothing after it is null, and means that there is none."""
    (folder / "t.yaml").write_text(f"apiVersion: batch/v1\nkind: Job\n{text}\n")
    words = "-n x -e A=1 -M 1G -P 1 --config-map c --security restricted"
    container = at(one("job", "--template", "t.yaml", *words.split()), MAIN)
    assert container["env"] == [{"name": "A", "value": "1"}]
    assert container["resources"] == {"requests": {"memory": "1G"}, "limits": {"memory": "1G"}}


def test_files_that_can_not_be_read(folder: Path) -> None:
    outcome = kubetpl("job", "--template", "missing")
    assert (outcome.code, outcome.out) == (66, "")
    assert "no such file" in outcome.err
    outcome = kubetpl("job", "--template", ".")
    assert (outcome.code, outcome.out) == (1, "")
    (folder / "latin").write_bytes(b"kind: \xff")
    assert "UTF-8" in refused("job", "--template", "latin")


# --set.


def test_set(folder: Path) -> None:
    document = one(
        "job", "--set", "spec.suspend=true", "--set", 'metadata.annotations."a.b/c"="1"',
        "--set", "spec.template.spec.containers[main].imagePullPolicy=Always",
        "--set", "spec.template.spec.containers[0].env[]={name: X, value: z}",
        "--set", "spec.template.spec.enableServiceLinks=null",
        "--set", "spec.template.spec.volumes[scratch].emptyDir.sizeLimit=3Gi",
    )  # fmt: skip
    plain = one("job")
    assert changes(plain, document) == {
        "metadata annotations": {"a.b/c": "1"},
        "spec suspend": True,
        "spec template spec enableServiceLinks": None,
        "spec template spec containers 0 imagePullPolicy": "Always",
        "spec template spec containers 0 env": [
            {"name": "TMPDIR", "value": "/scratch"}, {"name": "HOME", "value": "/scratch"}, {"name": "X", "value": "z"},
        ],
        "spec template spec volumes 0 emptyDir sizeLimit": "3Gi",
    }  # fmt: skip


def test_set_is_last_and_in_order() -> None:
    assert one("job", "-n", "x", "--set", "metadata.name=a", "--set", "metadata.name=z")["metadata"]["name"] == "z"
    names = [
        each["metadata"]["name"]
        for each in rendered("jobs", "--over", "{0..2}", "-n", "j{i}", "--set", "spec.suspend=true")
    ]
    assert names == ["j0", "j1", "j2"]


@pytest.mark.parametrize("assignment", ["kind=null", "kind=3", "kind="])
def test_set_leaves_a_manifest(assignment: str) -> None:
    outcome = kubetpl("job", "--set", assignment)
    assert (outcome.code, outcome.out) == (2, "")
    assert "unexpected" not in outcome.err


def test_set_says_which_one_is_wrong() -> None:
    assert refused("job", "--set", "spec.suspend=true", "--set", "spec.x[0").startswith("--set spec.x[0: ")
    assert "there is nothing at [3]" in refused("job", "--set", "spec.template.spec.containers[3].image=x")
    assert "parsers of YAML do not agree what y is" in refused("job", "--set", "metadata.name=y")


# Our own, as they stand.


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.yaml")), ids=lambda path: path.name)
def test_our_own_templates_are_valid_as_they_stand(path: Path) -> None:
    import yaml

    found = list(yaml.load_all(path.read_text("utf-8"), LOADER))
    assert found == read_template(str(path))
    for document in found:
        if document["kind"] != "JobSet":
            valid(document)
        assert str(document["metadata"]["name"]).startswith("mytask")


def test_filling_changes_no_template() -> None:
    template = read_template(template_path("job"))[0]
    kept = read_template(template_path("job"))[0]
    filled(template, Settings(name="x", image="y", env={"A": "1"}, toleration=["a"], scratch="1Gi", port=["1"]))
    assert template == kept


@pytest.mark.parametrize("words", [("-I", "x:1"), ("-e", "A=1"), ("--deadline", "1h"), ("-P", "80")])
def test_what_needs_a_pod_is_not_lost_quietly(words: tuple[str, ...], folder: Path) -> None:
    (folder / "c.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
    assert "nothing in the template runs a pod" in refused("job", "--template", "c.yaml", *words)
    # A file serves all of them.
    (folder / "kubetpl.yaml").write_text("image: x\nenv: {A: b}\nttl: 1d\nshards: [x]\n")
    assert one("job", "--template", "c.yaml")["metadata"]["name"] == "c"
