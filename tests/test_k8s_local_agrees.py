"""The status that a Job gets here is the recorded one, by the rules of the Job controller of 1.36."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from test_k8s_local import job, plain, run


def told(status: dict[str, Any]) -> tuple[str, str, int, str, str]:
    """What both must agree on: pods have other names, and times are other times."""
    (reason,) = {each["reason"] for each in status["conditions"]}
    kinds = {"SuccessCriteriaMet", "Complete"} if status.get("completionTime") else {"FailureTarget", "Failed"}
    assert {each["type"] for each in status["conditions"]} == kinds
    words = status["conditions"][-1]["message"].split()
    message = " ".join(word for word in words if not word.startswith("default/"))
    done, failed = status.get("completedIndexes", ""), status.get("failedIndexes", "")
    return done, failed, int(status.get("succeeded") or 0), reason, message


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
    ("document", "expected"),
    [
        pytest.param(
            job("true", completions=6),
            ("0-5", "", 6, "CompletionsReached", "Reached expected number of succeeded pods"),
            id="complete",
        ),
        pytest.param(
            job(AT.format("1) exit 65;; 4) exit 1;; 5) kill -9 0;;"), completions=8),
            ("0,2,3,6,7", "1,4,5", 5, "FailedIndexes", "Job has failed indexes"),
            id="failed-indexes",
        ),
        pytest.param(
            job("exit 3", completions=6, parallelism=1, maxFailedIndexes=2),
            (
                "",
                "0-2",
                0,
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            ),
            id="max-failed-indexes",
        ),
        pytest.param(
            # A shell that is process 1 of its container does not end by SIGTERM.
            job(
                AT.format(MEET),
                completions=7,
                parallelism=4,
                activeDeadlineSeconds=120,
                pod={"terminationGracePeriodSeconds": 1},
            ),
            (
                "0-2",
                "",
                3,
                "PodFailurePolicy",
                "Container main for pod failed with exit code 2 matching FailJob rule at index 1",
            ),
            id="fail-job",
        ),
        pytest.param(
            job("sleep 1000", completions=2, activeDeadlineSeconds=1, pod={"terminationGracePeriodSeconds": 1}),
            ("", "", 0, "DeadlineExceeded", "Job was active longer than specified deadline"),
            id="deadline",
        ),
        pytest.param(
            plain("exit 4", backoffLimit=2),
            ("", "", 0, "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
            id="backoff-limit",
        ),
        pytest.param(
            plain("true", completions=3, parallelism=2),
            ("", "", 3, "CompletionsReached", "Reached expected number of succeeded pods"),
            id="not-indexed",
        ),
        pytest.param(
            job(AT.format("2) exit 1;;"), completions=3, parallelism=1, backoffLimitPerIndex=None, backoffLimit=1),
            ("0,1", "", 2, "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
            id="indexed-with-one-limit-for-all",
        ),
    ],
)
def test_both_say_the_same(
    document: dict[str, Any], expected: tuple[Any, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    document = copy.deepcopy(document)
    document["metadata"] = {"name": request.node.callspec.id, "namespace": "default"}
    if document["spec"].get("backoffLimitPerIndex", 0) is None:
        # The API takes FailIndex only together with limits per index.
        document["spec"]["podFailurePolicy"]["rules"].pop()
        del document["spec"]["backoffLimitPerIndex"]
    parallelism = document["spec"].get("parallelism", 1)
    here, _ = run([with_folder(document, tmp_path / "shared")], tmp_path / "state", parallelism=parallelism)
    assert told(here.jobs[0].status()) == expected
