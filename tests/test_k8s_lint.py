"""Lint reports what it should of a manifest changed in one place, nothing of good ones, and as real servers did."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarkit.errors import UsageError
from tarkit.k8s.fieldpath import set_field
from tarkit.k8s.lint import fieldrules
from tarkit.k8s.lint import rules as module
from tarkit.k8s.lint.fieldrules import FIELD_RULES, rows_of
from tarkit.k8s.lint.nodes import Finding, Node
from tarkit.k8s.lint.rules import RULES, lint, verdict
from tarkit.k8s.lint.schema import check_schema
from tarkit.k8s.yamlreading import load_yaml
from tarkit.k8s.yamltext import dump_documents, load_documents

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"


def manifests(path: Path) -> list[dict[str, Any]]:
    return load_documents(path.read_text(encoding="utf-8"), path.name)


def templates() -> Path:
    """Where kubetpl's own templates are: beside the package, or in the checkout."""
    import tarkit

    inside = Path(tarkit.__file__).parent / "k8s_templates"
    return inside if inside.is_dir() else ROOT / "k8s_templates"


def good() -> dict[str, dict[str, Any]]:
    bases = {each["kind"].lower(): each for each in manifests(DATA / "k8s_verdicts.others.yaml")}
    (bases["indexed"],) = manifests(DATA / "k8s_verdicts.indexed.yaml")
    for name in ("job", "pod"):
        (bases[name],) = manifests(templates() / f"{name}.yaml")
    return bases


GOOD = good()
(TABLE,) = load_yaml((DATA / "k8s_verdicts.rules.yaml").read_text(encoding="utf-8"), "rules")
CASES = [(base, case) for base, cases in TABLE.items() for case in cases]
(_LEFT,) = load_yaml((DATA / "k8s_verdicts.left.yaml").read_text(encoding="utf-8"), "left")
LEFT = [(base, changes) for base, cases in _LEFT.items() for changes in cases]
(VERDICTS,) = load_yaml((DATA / "k8s_verdicts.real.yaml").read_text(encoding="utf-8"), "real")


def changed(base: str, changes: list[str]) -> dict[str, Any]:
    document = copy.deepcopy(GOOD[base])
    for change in changes:
        set_field(document, change)
    return document


def judged(documents: list[dict[str, Any]], kube_version: str | None = "1.33") -> list[Finding]:
    """What rules and schema find, as kubetpl lint prints it."""
    return verdict(documents, kube_version, lambda error: pytest.fail(str(error)))


def said(documents: list[dict[str, Any]], kube_version: str | None = "1.33") -> list[str]:
    found = judged(documents, kube_version)
    return [f"{finding.severity}: {finding}" for finding in found if "no schema of jobset" not in str(finding)]


@pytest.mark.parametrize(("base", "case"), CASES, ids=[f"{base}: {'; '.join(c['changes'])}" for base, c in CASES])
def test_a_change_to_a_good_manifest(base: str, case: dict[str, Any]) -> None:
    assert said([changed(base, case["changes"])]) == case["findings"]
    # A line each, whatever is in the manifest.
    assert all(line.isprintable() for line in case["findings"])


@pytest.mark.parametrize("kube_version", ["1.33", "1.35", "1.36", "1.37"])
@pytest.mark.parametrize("base", sorted(GOOD))
def test_nothing_is_said_of_good_manifests(base: str, kube_version: str) -> None:
    assert said([GOOD[base]], kube_version) == []


@pytest.mark.parametrize("path", sorted(templates().glob("*.yaml")), ids=lambda path: path.stem)
def test_nothing_is_said_of_the_templates(path: Path) -> None:
    assert said(manifests(path)) == []


@pytest.mark.parametrize("case", VERDICTS, ids=[case["defect"] for case in VERDICTS])
def test_a_real_server_judged_so(case: dict[str, Any]) -> None:
    severities = {finding.severity for finding in judged([changed("indexed", case["set"])], "1.36")}
    ours = "refused" if "error" in severities else "warned" if severities else "accepted"
    assert ours == case["verdict"]


@pytest.mark.parametrize(("base", "changes"), LEFT, ids=[f"{base}: {'; '.join(changes)}" for base, changes in LEFT])
def test_what_is_left_to_the_server(base: str, changes: list[str]) -> None:
    """Lint is not a second API server: it reports no error here, and its page says who does."""
    assert [line for line in said([changed(base, changes)]) if line.startswith("error")] == []
    assert "--server" in (ROOT / "docs" / "cli" / "kubetpl-lint.md").read_text(encoding="utf-8")


def test_every_rule_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    spoke: set[str] = set()

    def watched(rule: module.Rule) -> module.Rule:
        def wrapper(node: Node) -> Iterator[Finding]:
            for finding in rule(node):
                spoke.add(f"{rule.__module__}.{rule.__name__}")
                yield finding

        return wrapper

    everything = {f"{rule.__module__}.{rule.__name__}" for rules in RULES.values() for rule in rules}
    monkeypatch.setattr(module, "RULES", {scope: tuple(map(watched, rules)) for scope, rules in RULES.items()})
    for base, case in CASES:
        lint([changed(base, case["changes"])])
    lint([long_argument("x" * 131_072)])
    lint([configmap({"a": "x" * 1_048_577})])
    assert everything - spoke == set()


def test_every_row_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    spoke: set[str] = set()

    def watched(row: str, kind: Callable[..., Iterator[Finding]]) -> Callable[..., Iterator[Finding]]:
        def wrapper(node: Node, *arguments: Any) -> Iterator[Finding]:
            for finding in kind(node, *arguments):
                spoke.add(row)
                yield finding

        return wrapper

    rows = {
        scope: [
            (f"{scope}: {paths} {kind.__name__} {arguments[:1]}", paths, kind, arguments)
            for paths, kind, *arguments in rows
        ]
        for scope, rows in FIELD_RULES.items()
    }
    table = {
        scope: [(paths, watched(row, kind), *rest) for row, paths, kind, rest in each] for scope, each in rows.items()
    }
    monkeypatch.setattr(fieldrules, "FIELD_RULES", table)
    rows_of.cache_clear()
    for base, case in CASES:
        lint([changed(base, case["changes"])])
    rows_of.cache_clear()
    assert {row for each in rows.values() for row, *_ in each} - spoke == set()


@pytest.mark.exhaustive
def test_the_schema_alone_finds_as_many_as_the_page_says() -> None:
    refused = [changed("indexed", case["set"]) for case in VERDICTS if case["verdict"] == "refused"]
    found = [any(each.severity == "error" for each in check_schema(document, "1.36")) for document in refused]
    page = " ".join((DATA.parent.parent / "docs" / "kubernetes.md").read_text(encoding="utf-8").split())
    assert f"of {len(found)} Jobs that a 1.36 server refuses (measured, November 2026) it finds {sum(found)}," in page


def long_argument(text: str) -> dict[str, Any]:
    document = copy.deepcopy(GOOD["job"])
    document["spec"]["template"]["spec"]["containers"][0]["args"] = [text]
    return document


def configmap(data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": data}


@pytest.mark.parametrize("value", ["n", "no", "off", "0"])
@pytest.mark.parametrize(
    "text",
    [
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: VALUE}}",
        "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {type: ExternalName, externalName: VALUE}}",
        "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {clusterIP: x, selector: {a: b}, ports: VALUE}}",
        "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: VALUE}}",
    ],
)
def test_a_value_that_yaml_does_not_read_as_text_is_not_called_missing(text: str, value: str) -> None:
    (line,) = said(load_documents(text.replace("VALUE", value), "x"))
    shown = "false" if value.isalpha() else value
    assert re.search(rf": {shown} is not (a text; put it in quotes|a list)", line)


ARG = "job/mytask: spec.template.spec.containers[0].args[0]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 131_071, []),
        (
            "x" * 131_072,
            [
                f"warning: {ARG}: has 131072 bytes, and Linux takes 131071 in one; put it in a file (ConfigMap); "
                "change --command"
            ],
        ),
        (
            "é" * 70_000,
            [
                f"warning: {ARG}: has 140000 bytes, and Linux takes 131071 in one; put it in a file (ConfigMap); "
                "change --command"
            ],
        ),
        (
            "a\0b",
            [f"warning: {ARG}: has a zero byte in it, where Linux ends it; keep such data in a file; change --command"],
        ),
    ],
)
def test_words_that_linux_does_not_take(text: str, expected: list[str]) -> None:
    assert said([long_argument(text)]) == expected


def test_a_variable_and_its_name_are_one_string_to_linux() -> None:
    document = changed("job", [])
    document["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "LIST", "value": "x" * 131_067}]
    assert said([document])[0].startswith(
        "warning: job/mytask: spec.template.spec.containers[0].env[0].value: has 131072"
    )


def test_sizes() -> None:
    assert said([configmap({"a": "x" * 250 * 1024})]) == []
    (applied,) = said([configmap({"a": "x" * 300 * 1024})])
    assert applied.startswith("warning: configmap/files: kubectl apply keeps a copy in an annotation, and 307")
    assert applied.endswith("use kubectl apply --server-side, or kubectl create")
    # kubectl writes each of these in six characters.
    assert said([configmap({"a": "<" * 45 * 1024})])[0].startswith("warning: configmap/files: kubectl apply keeps")
    assert said([configmap({"a": "a" * 45 * 1024})]) == []
    assert said([configmap({"a": "x" * 1_048_577})])[-1] == (
        "error: configmap/files: holds 1048577 bytes, and a ConfigMap takes 1048576; keep large things in a bucket"
    )
    assert "and a cluster keeps 1572864 of an object" in said([long_argument("x" * 1_600_000)])[0]
    # A quote has two characters in JSON, and one where the object is kept.
    assert [line for line in said([long_argument('"' * 1_000_000)]) if line.startswith("error")] == []
    assert [line for line in said([configmap({"a": '"' * 1_048_576})]) if line.startswith("error")] == []
    assert "and a server takes 3145728" in said([configmap({"a": "x" * 3_200_000})])[0]
    annotated = changed("job", [])
    annotated["metadata"]["annotations"] = {"note": "x" * 262_144}
    assert said([annotated]) == [
        "error: job/mytask: metadata.annotations: the annotations have 262148 bytes; at most 262144 are allowed"
    ]


def test_lists_of_the_failure_policy_end() -> None:
    rule = GOOD["indexed"]["spec"]["podFailurePolicy"]["rules"][0]
    many = changed("indexed", [])
    many["spec"]["podFailurePolicy"]["rules"] = [rule] * 21
    assert said([many]) == ["error: job/imgnet-ppm: spec.podFailurePolicy.rules: has 21 items; write at most 20"]
    many["spec"]["podFailurePolicy"]["rules"] = [{**rule, "onPodConditions": rule["onPodConditions"] * 21}]
    assert "has 21 items; write at most 20" in said([many])[0]
    codes = {"operator": "NotIn", "values": list(range(256))}
    many["spec"]["podFailurePolicy"]["rules"] = [{"action": "Count", "onExitCodes": codes}]
    assert "has 256 items; write at most 255" in said([many])[0]


@pytest.mark.parametrize(
    ("base", "change", "kube_version", "expected"),
    [
        ("indexed", "spec.scheduling={}", "1.36", "error: job/imgnet-ppm: spec.scheduling: no such field"),
        ("indexed", "spec.scheduling={}", "1.37", None),
        (
            "indexed",
            "spec.scheduling={}",
            None,
            "warning: job/imgnet-ppm: spec.scheduling: in Kubernetes 1.33: no such",
        ),
        ("indexed", "spec.shceduling={}", None, "error: job/imgnet-ppm: spec.shceduling: no such field"),
        ("pod", "spec.containers[0].restartPolicyRules=[]", "1.33", "error: pod/mytask: spec.containers[0].restart"),
        ("pod", "spec.containers[0].restartPolicyRules=[]", "1.35", None),
        ("service", "metadata.name=0tasks", "1.36", None),
        (
            "service",
            "metadata.name=0tasks",
            "1.35",
            "warning: service/0tasks: metadata.name: servers before 1.36 refuse",
        ),
        ("indexed", "spec.template.spec.tolerations[0].operator=Gt", "1.35", None),
    ],
)
def test_it_depends_on_the_release(base: str, change: str, kube_version: str | None, expected: str | None) -> None:
    lines = said([changed(base, [change])], kube_version)
    assert len(lines) == (expected is not None)
    assert expected is None or lines[0].startswith(expected)


def test_half_a_character_in_a_large_manifest() -> None:
    annotations = {"a\ud800": "x" * 300_000}
    lines = said([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "annotations": annotations}}])
    assert any("the annotations have 300004 bytes" in line for line in lines)


def test_two_of_one_name() -> None:
    assert said([GOOD["job"], GOOD["pod"], GOOD["job"]]) == [
        "warning: job/mytask: metadata.name: an earlier document has the same kind and name; give each its own; "
        "change --name"
    ]
    elsewhere = changed("job", ["metadata.namespace=other"])
    assert said([GOOD["job"], elsewhere]) == []


def test_what_is_no_manifest() -> None:
    nothing: Any = [{}, None, [1], "text"]
    lines = said(nothing)
    assert [line.split(": ")[1] for line in lines] == ["document-1", "document-2", "document-3", "document-4"]
    assert all(line.endswith("is empty, or no mapping; write a manifest or leave it out") for line in lines)
    # Others have Jobs of their own.
    for kind in ("Job", "Anything"):
        foreign = {"apiVersion": "batch.example.com/v1", "kind": kind, "metadata": {"name": "x"}, "spec": {"tasks": []}}
        assert lint([foreign]) == []


def test_a_version_that_is_none() -> None:
    with pytest.raises(UsageError, match=r"newest is not a version of Kubernetes; write for example 1\.33"):
        lint([], "newest")


def test_findings_have_fields() -> None:
    (finding,) = lint([changed("job", ["spec.template.spec.containers[0].resources.limits.memory=4GB"])])
    assert finding.severity == "error"
    assert finding.where == "job/mytask spec.template.spec.containers[0].resources.limits.memory"
    assert finding.sentence == "4GB is not a quantity: write 4G (10^9 bytes) or 4Gi (2^30 bytes)"
    assert finding.flag == "--memory"


def test_the_loop_of_148_jobs_takes_no_time() -> None:
    documents = [changed("job", [f"metadata.name=job{number:04}"]) for number in range(148)]
    took = []
    for _ in range(5):
        start = time.process_time()
        assert lint(documents) == []
        took.append(time.process_time() - start)
    # About 40 ms; ten times that on a machine that does other things.
    assert min(took) < 0.4


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["Indexed", "1Gi", "-", "a/b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a manifest with each of its keys."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_in_a_manifest_ends_in_findings(data: st.DataObject) -> None:
    document = copy.deepcopy(GOOD[data.draw(st.sampled_from(sorted(GOOD)))])
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(list(places(document))))
        holder[key] = data.draw(JSON)
    for finding in judged([document], data.draw(st.sampled_from([None, "1.33", "1.37"]))):
        assert str(finding).isprintable(), finding
        assert finding.severity in ("error", "warning")


def test_what_passes_can_be_written() -> None:
    assert load_documents(dump_documents(GOOD.values()), "again") == list(GOOD.values())
