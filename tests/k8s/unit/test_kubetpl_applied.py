"""Manifests that are applied a second time: nothing in them is what a server drops or adds, so
nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetplexamples import GENERATORS
from kubetplrun import kubetpl

TEMPLATE = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {}, annotations: null}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {}
      tolerations: []
      containers:
      - {name: main, image: "i:1", command: [x, ""], args: [], env: [{name: E, value: ""}], resources: {limits: {}}}
      volumes: [{name: v, emptyDir: {}}]
"""


def empties(value: Any, path: str = "") -> Iterator[str]:
    """Where there is what a server drops.

    An empty mapping is a value of these types only.
    """
    if isinstance(value, dict):
        for key, each in value.items():
            yield from empties(each, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for each in value:
            yield from empties(each, f"{path}[]")
    if value in (None, [], "") or (value == {} and not path.endswith((".emptyDir", ".securityContext"))):
        yield path


@pytest.mark.parametrize("words", GENERATORS, ids=lambda words: " ".join(words[:8]))
def test_nothing_is_printed_that_a_server_drops(words: list[str]) -> None:
    done = kubetpl(*words)
    assert done.code == 0, done.err
    assert [found for each in yaml.safe_load_all(done.out) for found in empties(each)] == []


def test_what_a_template_has_that_a_server_drops_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TEMPLATE)
    done = kubetpl("job", "--template", str(tmp_path / "t.yaml"), "-n", "j")
    assert done.code == 0, done.err
    (found,) = yaml.safe_load_all(done.out)
    spec = found["spec"]["template"]["spec"]
    assert spec["containers"] == [{"name": "main", "image": "i:1", "command": ["x", ""], "env": [{"name": "E"}]}]
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert not {"nodeSelector", "tolerations"} & set(spec) and "annotations" not in found["metadata"]


def test_empty_files_of_a_config_map_stay(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("")
    (found,) = yaml.safe_load_all(kubetpl("configmap", "c", str(tmp_path / "env")).out)
    assert (found.get("data"), found.get("binaryData")) in (({"env": ""}, None), (None, {"env": ""}))


def test_a_pod_has_the_tolerations_that_a_server_adds() -> None:
    """They are one list, which belongs to who applied it: two kinds of apply would take it from one
    another.
    """
    keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    added = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in keys]
    given = [{"key": "x", "operator": "Exists", "effect": "NoExecute"}]
    for words, wanted in (
        ([], None),
        (["--toleration", "x:NoExecute"], [*given, *added]),
        (["--toleration", f"{keys[1]}"], [{"key": keys[1], "operator": "Exists"}, added[0]]),
    ):
        (pod,) = yaml.safe_load_all(kubetpl("pod", "-n", "p", "-c", "x", *words).out)
        assert pod["spec"].get("tolerations") == wanted
    (job,) = yaml.safe_load_all(kubetpl("job", "-n", "p", "-c", "x", "--toleration", "x:NoExecute").out)
    assert job["spec"]["template"]["spec"]["tolerations"] == given
