"""The same Job here and in the stand-in cluster, which has a Job controller and a kubelet of its own."""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent / "kube"))

from apiresources import JOBS  # noqa: E402
from jobpods import match_policy  # noqa: E402
from kubestandin import Standin  # noqa: E402
from test_k8s_local import job, plain, run  # noqa: E402

from tarkit.k8s.local.policy import LocalJob, PodEnd  # noqa: E402


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pods see as this process does."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Iterator[Standin]:
    pytest.importorskip("kubernetes_validate", reason="NO SCHEMAS TO CHECK BY: pip install kubernetes-validate")
    cluster = Standin(tmp_path_factory.mktemp("standin"), [shared], backoff=0.02)
    yield cluster
    cluster.stop()


def in_the_cluster(standin: Standin, document: dict[str, Any]) -> dict[str, Any]:
    """The status of a Job once it is over."""
    standin.api.create(JOBS, "default", copy.deepcopy(document))
    until = time.monotonic() + 180
    while time.monotonic() < until:
        found = standin.store.find(JOBS, "default", document["metadata"]["name"])
        status: dict[str, Any] = {} if found is None else copy.deepcopy(found["status"])
        if any(each["type"] in ("Complete", "Failed") for each in status.get("conditions", [])):
            return status
        time.sleep(0.02)
    pytest.fail("the Job never ends in the stand-in cluster")


def told(status: dict[str, Any]) -> dict[str, Any]:
    """What both must agree on: pods have other names, and times are other times."""
    conditions = [(each["type"], each["reason"]) for each in status["conditions"]]
    message = status["conditions"][-1]["message"]
    return {
        **{key: status.get(key) or "" for key in ("completedIndexes", "failedIndexes", "succeeded")},
        "conditions": sorted(conditions),
        "message": " ".join(word for word in message.split() if not word.startswith("default/")),
    }


AT = "case $JOB_COMPLETION_INDEX in {} esac"
# Indexes 4, 5 and 6 begin once 0, 1 and 2 are known to be done.
MEET = (
    "3) until [ $(ls SHARED | wc -l) = 3 ]; do sleep 0.02; done; exit 2;; [4-6]) touch SHARED/$HOSTNAME; sleep 1000;;"
)


def with_folder(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With a new folder in the place of SHARED."""
    folder.mkdir()
    found: dict[str, Any] = json.loads(json.dumps(document).replace("SHARED", str(folder)))
    return found


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(job("true", completions=6), id="complete"),
        pytest.param(job(AT.format("1) exit 65;; 4) exit 1;; 5) kill -9 0;;"), completions=8), id="failed-indexes"),
        pytest.param(job("exit 3", completions=6, parallelism=1, maxFailedIndexes=2), id="max-failed-indexes"),
        pytest.param(
            # A shell that is process 1 of its container does not end by SIGTERM.
            job(
                AT.format(MEET),
                completions=7,
                parallelism=4,
                activeDeadlineSeconds=120,
                pod={"terminationGracePeriodSeconds": 1},
            ),
            id="fail-job",
        ),
        pytest.param(
            job("sleep 1000", completions=2, activeDeadlineSeconds=1, pod={"terminationGracePeriodSeconds": 1}),
            id="deadline",
        ),
        pytest.param(plain("exit 4", backoffLimit=2), id="backoff-limit"),
        pytest.param(plain("true", completions=3, parallelism=2), id="not-indexed"),
        pytest.param(
            job(AT.format("2) exit 1;;"), completions=3, parallelism=1, backoffLimitPerIndex=None, backoffLimit=1),
            id="indexed-with-one-limit-for-all",
        ),
    ],
)
def test_both_say_the_same(
    document: dict[str, Any], standin: Standin, shared: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    document = copy.deepcopy(document)
    document["apiVersion"] = "batch/v1"
    document["metadata"] = {"name": request.node.callspec.id, "namespace": "default"}
    document["spec"]["template"]["spec"]["containers"][0]["image"] = "x"
    if document["spec"].get("backoffLimitPerIndex", 0) is None:
        # The API takes FailIndex only together with limits per index.
        document["spec"]["podFailurePolicy"]["rules"].pop()
        del document["spec"]["backoffLimitPerIndex"]
    parallelism = document["spec"].get("parallelism", 1)
    here, _ = run([with_folder(document, tmp_path / "shared")], tmp_path / "state", parallelism=parallelism)
    there = in_the_cluster(standin, with_folder(document, shared / request.node.callspec.id))
    assert told(here.jobs[0].status()) == told(there)


RULE = st.one_of(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(["Ignore", "Count", "FailIndex", "FailJob"]),
            "onExitCodes": st.fixed_dictionaries(
                {
                    "operator": st.sampled_from(["In", "NotIn"]),
                    "values": st.lists(st.integers(1, 4), min_size=1, unique=True),
                },
                optional={"containerName": st.sampled_from(["a", "b"])},
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(["Ignore", "Count", "FailIndex", "FailJob"]),
            "onPodConditions": st.lists(
                st.fixed_dictionaries({"type": st.sampled_from(["D", "E"]), "status": st.just("True")}), min_size=1
            ),
        }
    ),
)


@settings(deadline=None, max_examples=150)
@given(
    rules=st.lists(RULE, max_size=4),
    codes=st.fixed_dictionaries({"a": st.integers(0, 4), "b": st.integers(0, 4)}),
    conditions=st.sets(st.sampled_from(["D", "E"])),
)
def test_both_read_rules_alike(rules: list[dict[str, Any]], codes: dict[str, int], conditions: set[str]) -> None:
    spec = {
        "completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": rules},
    }  # fmt: skip
    status = {
        "containerStatuses": [{"name": n, "state": {"terminated": {"exitCode": code}}} for n, code in codes.items()],
        "conditions": [{"type": each, "status": "True"} for each in sorted(conditions)],
    }
    pod = {"metadata": {"name": "p", "namespace": "default"}, "status": status}
    action, message = LocalJob("j", spec).judge(PodEnd("p", codes, conditions))
    wanted, said = match_policy({"spec": spec}, pod)
    assert action.value == wanted
    if wanted == "FailJob":
        assert message == said
