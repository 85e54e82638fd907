"""The manifest of a retry: made of a Job as the API gives it, or as a manifest had it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from kubetplrun import valid

from tarkit.errors import UsageError
from tarkit.k8s.cluster.retryjob import Changes, clean, next_name, retry_documents
from tarkit.k8s.cluster.runrecords import is_per_shard, listed_specs
from tarkit.k8s.plan.shardlist import LIST_SPEC
from tarkit.k8s.podfields import substitute
from tarkit.k8s.yamltext import load_documents
from tarkit.specs.slicedlist import sha256_of

URLS = [f"s3://b/raw-{i}.tar" for i in (3, 5, 8)]


@pytest.fixture(scope="module")
def manifest() -> list[dict[str, Any]]:
    """What kubetpl indexed prints."""
    import contextlib
    import io
    import os
    import tempfile

    from tarkit.cli.kubetpl import main

    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with contextlib.redirect_stderr(io.StringIO()) as err:
                code = main(
                    [
                        "indexed",
                        "-n",
                        "grey",
                        "-I",
                        "i:1",
                        "-c",
                        "echo -- $(HOME) $$",
                        "--shards",
                        "s3://b/raw-{0..9}.tar",
                        "-O",
                        "s3://b/out",
                        "--slices",
                        "4",
                        "--max-failed",
                        "3",
                        "-C",
                        "500m",
                        "-j",
                        "2",
                    ]
                )
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        assert code == 0, err.getvalue()
        file.seek(0)
        return load_documents(file.read().decode(), "test")


@pytest.fixture
def live(manifest: list[dict[str, Any]]) -> dict[str, Any]:
    """The Job as a server gives it, with all that it and its controllers add."""
    job = copy.deepcopy(manifest[0])
    job["metadata"].update(
        uid="U", resourceVersion="7", generation=1, creationTimestamp="2026-11-21T12:00:00Z", namespace="etl",
        managedFields=[{"manager": "kubectl"}],
    )  # fmt: skip
    job["metadata"]["annotations"].update({"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    owned = {
        "batch.kubernetes.io/controller-uid": "U", "controller-uid": "U", "batch.kubernetes.io/job-name": "grey",
        "job-name": "grey",
    }  # fmt: skip
    job["spec"]["template"]["metadata"]["labels"].update(owned)
    job["spec"].update(
        selector={"matchLabels": {"batch.kubernetes.io/controller-uid": "U"}}, suspend=True, backoffLimit=2147483647,
        manualSelector=False,
    )  # fmt: skip
    job["status"] = {"failedIndexes": "1"}
    return job


def made(job: dict[str, Any], **changes: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    config_map, retry = retry_documents(job, URLS, Changes(**changes), {"grey"})
    return config_map, retry, retry["spec"]["template"]["spec"]["containers"][0]


def test_what_the_server_added_is_taken_off(live: dict[str, Any], manifest: list[dict[str, Any]]) -> None:
    expected = copy.deepcopy(manifest[0])
    expected["metadata"]["namespace"] = "etl"
    found = clean(live)
    assert found["metadata"] == {**expected["metadata"], "labels": found["metadata"]["labels"]}
    assert found == expected


def test_the_shards_that_are_left(live: dict[str, Any]) -> None:
    config_map, retry, container = made(live)
    assert listed_specs(config_map) == URLS
    name = config_map["metadata"]["name"]
    assert name.startswith("grey-r2-shards-") and config_map["metadata"]["namespace"] == "etl"
    assert retry["metadata"]["name"] == "grey-r2"
    notes = retry["metadata"]["annotations"]
    assert notes["tarkit.dev/retry-of"] == "grey" and notes["tarkit.dev/list"] == name
    assert (notes["tarkit.dev/shards"], notes["tarkit.dev/slices"]) == ("3", "3")
    assert json.loads(notes["tarkit.dev/inputs"]) == ["@/etc/tarkit/shards.gz"]
    assert retry["metadata"]["labels"]["tarkit.dev/run"] == "grey"
    spec = retry["spec"]
    assert (spec["completions"], spec["parallelism"], spec["maxFailedIndexes"]) == (3, 2, 3)
    old = live["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "$(TARKIT_CPUS)" in old
    assert container["args"] == [
        "--slice",
        "3",
        *old[2:6],
        "--list-sha256",
        sha256_of(URLS),
        *old[6:-2],
        "--",
        LIST_SPEC,
    ]
    assert {"name": "TARKIT_SLICES", "value": "3"} in container["env"]
    assert {"name": "shards", "mountPath": "/etc/tarkit", "readOnly": True} in container["volumeMounts"]
    valid(config_map)
    valid(retry)


def test_a_retry_of_a_retry_has_one_list(live: dict[str, Any]) -> None:
    config_map, retry, _ = made(live)
    second_map, second = retry_documents(retry, URLS[:1], Changes(), {"grey", "grey-r2", "grey-r3"})
    assert second["metadata"]["name"] == "grey-r4"
    assert second["metadata"]["annotations"]["tarkit.dev/retry-of"] == "grey-r2"
    volumes = [
        each["configMap"]["name"] for each in second["spec"]["template"]["spec"]["volumes"] if "configMap" in each
    ]
    assert volumes == [second_map["metadata"]["name"]] != [config_map["metadata"]["name"]]
    mounts = second["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert [each["mountPath"] for each in mounts].count("/etc/tarkit") == 1
    assert second["spec"]["completions"] == 1


def test_with_changes(live: dict[str, Any]) -> None:
    _, retry, container = made(live, memory="8192Mi", cpu="2", image="i:2", parallelism=9, slices=2, name="other")
    assert retry["metadata"]["name"] == "other"
    assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"] == "8Gi"
    assert container["resources"]["requests"]["cpu"] == "2" and "cpu" not in container["resources"]["limits"]
    assert container["image"] == "i:2"
    assert (retry["spec"]["completions"], retry["spec"]["parallelism"]) == (2, 2)


def test_a_list_in_a_bucket(live: dict[str, Any]) -> None:
    (retry,) = retry_documents(live, URLS, Changes(list_url="s3://b/lists/x.list"), set())
    assert retry["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "@s3://b/lists/x.list"
    assert json.loads(retry["metadata"]["annotations"]["tarkit.dev/inputs"]) == ["@s3://b/lists/x.list"]
    assert "tarkit.dev/list" not in retry["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("folder", "escaped", "env_from"),
    [
        ("$(NAME)", "$(NAME)", False),
        ("$(NAME)", "$$(NAME)", True),
        ("$(JOB_COMPLETION_INDEX)", "$$(JOB_COMPLETION_INDEX)", False),
        ("$$", "$$$", False),
    ],
)
def test_a_list_whose_name_looks_like_a_variable(
    live: dict[str, Any], folder: str, escaped: str, env_from: bool
) -> None:
    """A kubelet makes of the argument what was meant."""
    if env_from:
        live["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": "more"}}]
    (retry,) = retry_documents(live, URLS, Changes(list_url=f"s3://b/{folder}/x.list"), set())
    argument = retry["spec"]["template"]["spec"]["containers"][0]["args"][-1]
    assert argument == f"@s3://b/{escaped}/x.list"
    known = {"JOB_COMPLETION_INDEX": "0", **({"NAME": "of envFrom"} if env_from else {})}
    assert substitute(argument, known) == f"@s3://b/{folder}/x.list"
    # Which is how it is noted, for those who want to know what the shards are.
    assert json.loads(retry["metadata"]["annotations"]["tarkit.dev/inputs"]) == [f"@s3://b/{folder}/x.list"]


def test_the_retry_of_a_pinned_list_pins_its_own(live: dict[str, Any]) -> None:
    args = live["spec"]["template"]["spec"]["containers"][0]["args"]
    args[2:2] = ["--list-sha256", "a" * 64]
    changes = Changes(list_url="s3://b/lists/x.list", list_sha256="b" * 64)
    for wanted, found in ((Changes(), [sha256_of(URLS)]), (changes, ["b" * 64])):
        retry = retry_documents(live, URLS, wanted, set())[-1]
        args = retry["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [args[i + 1] for i, word in enumerate(args) if word == "--list-sha256"] == found
        assert "a" * 64 not in args


def test_a_job_that_does_not_run_tarproc(live: dict[str, Any]) -> None:
    live["spec"]["template"]["spec"]["containers"][0].update(command=["bash", "-c"], args=["true"])
    assert not is_per_shard(live)
    with pytest.raises(UsageError, match="Job grey does not run tarproc over slices"):
        retry_documents(live, URLS, Changes(), set())
    (whole,) = retry_documents(live, None, Changes(memory="1Gi", parallelism=3), set())
    assert whole["metadata"]["name"] == "grey-r2" and whole["spec"]["completions"] == 4
    assert whole["spec"]["parallelism"] == 3


@pytest.mark.parametrize(
    ("spoil", "changes", "expected"),
    [
        (lambda job, args: args.__delitem__(slice(0, 2)), {}, "there is no --slice W among tarproc's arguments"),
        (lambda job, args: args.__setitem__(1, "$(W)"), {}, "there is no --slice W among tarproc's arguments"),
        (lambda job, args: None, {"memory": "8 GB"}, "8 GB"),
        (lambda job, args: None, {"memory": "0"}, "--memory 0: write more than 0"),
        (lambda job, args: None, {"cpu": "two"}, "--cpu: two is not a quantity"),
        (
            lambda job, args: job["metadata"]["annotations"].update({"tarkit.dev/shards": "x"}),
            {},
            "does not run tarproc",
        ),
    ],
)
def test_what_can_not_be_retried(
    live: dict[str, Any], spoil: Callable[[Any, Any], None], changes: dict[str, Any], expected: str
) -> None:
    spoil(live, live["spec"]["template"]["spec"]["containers"][0]["args"])
    with pytest.raises(UsageError, match=expected):
        retry_documents(live, URLS, Changes(**changes), set())


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("s3://b/a{1}.tar", "s3://b/a\\{1\\}.tar"),
        ("https://h/a.tar?x=[1]", "https://h/a.tar?x=[1]"),
        ("s3://b/[a].tar", None),
    ],
)
def test_names_that_look_like_patterns(live: dict[str, Any], url: str, line: str | None) -> None:
    from tarkit.specs.shardspec import expand

    if line is None:
        with pytest.raises(UsageError, match="would be taken for a pattern"):
            retry_documents(live, [url], Changes(), set())
        return
    config_map, _ = retry_documents(live, [url], Changes(), set())
    assert listed_specs(config_map) == [line]
    assert list(expand(line)) == [url]


@pytest.mark.parametrize(
    ("name", "taken", "expected"),
    [("a", set(), "a-r2"), ("a", {"a-r2", "a-r3"}, "a-r4"), ("a-r2", set(), "a-r3"), ("a-r", set(), "a-r-r2"),
     ("x-r9", {"x-r10"}, "x-r11")],
)  # fmt: skip
def test_the_next_name(name: str, taken: set[str], expected: str) -> None:
    assert next_name(name, taken) == expected
