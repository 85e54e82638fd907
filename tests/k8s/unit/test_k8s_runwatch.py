"""Jobs of a run as they are waited for, by a cluster that answers as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tarkit.cli.kube.verbs.cancel import suspend_jobs

from tarkit.errors import ClusterError, ClusterUnreachableError, NoSuchObjectError, TarkitError, UsageError
from tarkit.k8s.cluster.runjobs import RunState, failed_of, sum_line
from tarkit.k8s.cluster.watching import Watching, run_states

COMPLETE = [{"type": "Complete", "status": "True"}]
FAILED = [{"type": "Failed", "status": "True"}]


def made(name: str, state: str = "running", uid: str = "", of: str = "", at: int = 0, **status: Any) -> dict[str, Any]:
    conditions = {"complete": COMPLETE, "failed": FAILED}.get(state, [])
    return {
        "metadata": {
            "name": name, "uid": uid or name, "labels": {"tarkit.dev/run": "part"},
            "annotations": {"tarkit.dev/retry-of": of} if of else {},
            "creationTimestamp": f"2027-01-15T07:00:{at:02d}Z",
        },
        "spec": {"completions": 1, "parallelism": 1, "suspend": state == "suspended"},
        "status": {"conditions": conditions, **status},
    }  # fmt: skip


class Told:
    """A cluster whose lists of Jobs are these, one after the other; the last again and again.

    Its watches are cut at once, so that each look is a list.

    Attributes:
        asked: by which words.
    """

    namespace = "etl"
    user = "ann"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    def list_at(self, kind: str, *, labels: str = "", fields: str = "") -> tuple[list[dict[str, Any]], str]:
        self.asked.append((kind, labels))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, TarkitError):
            raise answer
        return answer, "1"

    def watch(self, kind: str, **how: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.cut:
            raise ClusterUnreachableError("cut")
        yield "ERROR", {}

    cut = False

    def patch(self, kind: str, name: str, changes: Any) -> None:
        self.asked.append(("patch", name))
        answer = self.answers.pop(0)
        if isinstance(answer, TarkitError):
            raise answer


def states(
    cluster: Told, report: Callable[[str], None] = lambda why: None, seconds: float | None = None
) -> Iterator[RunState]:
    ticks = iter(range(10_000))
    watching = Watching(report, seconds, 60.0, clock=lambda: float(next(ticks)), sleep=lambda seconds: None)
    return run_states(cluster, "part", watching, of_run=True)  # type: ignore[arg-type]


def names(jobs: list[dict[str, Any]]) -> list[str]:
    return [str(job["metadata"]["name"]) for job in jobs]


def test_a_look_is_one_list_and_lost_connections_are_waited_out() -> None:
    gone = ClusterUnreachableError("gone")
    lost: list[str] = []
    cluster = Told(
        [made("b"), made("a")], gone, gone, ClusterUnreachableError("too old", 410), [made("b"), made("a", "complete")]
    )
    looks = states(cluster, lost.append)
    first, second = next(looks), next(looks)
    assert names(first.jobs) == ["a", "b"] and not first.ended and not second.ended
    assert (
        lost == ["gone; asking again, for 60 s at most", "the cluster answers again"]
        and cluster.asked == [("jobs", "tarkit.dev/run=part")] * 5
    )


def test_patience_is_for_the_first_answer_too_and_ends() -> None:
    lost: list[str] = []
    with pytest.raises(ClusterUnreachableError):
        next(states(Told(ClusterUnreachableError("gone")), lost.append))
    first = Told(*[ClusterUnreachableError("gone")] * 3, [made("a")])
    assert names(next(states(first, lost.append)).jobs) == ["a"]
    assert lost == [*["gone; asking again, for 60 s at most"] * 2, "the cluster answers again"]
    looks = states(Told([made("a")], ClusterUnreachableError("gone")))
    next(looks)
    with pytest.raises(ClusterUnreachableError):
        next(looks)
    with pytest.raises(ClusterError, match="may not"):
        next(states(Told(ClusterError("you may not list jobs", 403))))
    assert len(list(states(Told([made("a")]), seconds=9.0))) == 2
    assert len(list(states(Told([made("a")]), seconds=0.0))) == 1, "one look, though the time was up before it"


def test_what_is_removed_once_it_has_ended_has_ended_and_what_before_is_deleted() -> None:
    looks = states(Told([made("a", "complete"), made("b")], [made("b", "failed")], []))
    assert names(next(looks).jobs) == ["a", "b"]
    second = next(looks)
    assert (names(second.jobs), second.deleted, second.ended) == (["a", "b"], [], True)
    looks = states(Told([made("a"), made("b")], [made("b", "complete")], [made("b", "complete"), made("a", uid="new")]))
    next(looks)
    second, third = next(looks), next(looks)
    assert (names(second.jobs), second.deleted, second.ended) == (["b"], ["a"], True)
    assert (names(third.jobs), third.deleted, third.ended) == (["a", "b"], [], False)
    with pytest.raises(NoSuchObjectError, match="no Job in namespace etl is of run part"):
        next(states(Told([])))


@pytest.mark.parametrize(
    ("jobs", "counting", "retried"),
    [
        ([made("a", "failed"), made("a-r2", of="a", at=1)], ["a-r2"], ["a"]),
        ([made("a", "suspended"), made("a-r2", "failed", of="a", at=1), made("a-r3", "complete", of="a", at=2)],
         ["a-r3"], ["a", "a-r2"]),
        ([made("a", "failed"), made("a-r2", "failed", of="a", at=1), made("x", "failed", of="a-r2", at=2)],
         ["x"], ["a", "a-r2"]),
        ([made("a", "complete"), made("a-r2", "failed", of="a", at=1)], ["a", "a-r2"], []),
        ([made("a", "failed"), made("a", "complete", uid="new", at=1)], ["a"], ["a"]),
        ([made("a", of="b"), made("b", of="a")], ["a", "b"], []),
    ],
)  # fmt: skip
def test_a_retry_counts_instead_of_the_job(jobs: list[dict[str, Any]], counting: list[str], retried: list[str]) -> None:
    look = next(states(Told(jobs)))
    assert (names(look.jobs), names(look.retried)) == (counting, retried)


def test_sums_and_which_jobs_to_retry() -> None:
    assert sum_line(["running", "complete", "running"], retried=0, deleted=1) == (
        "3 Jobs: 1 complete, 2 running, 1 deleted"
    )
    assert sum_line(["complete"], retried=0) == "1 Job: 1 complete"


def test_of_a_run_those_that_failed_are_retried() -> None:
    many = [made(f"part{n:04}", "failed") for n in range(300)]
    assert failed_of(many, "part") == many
    retried = [made("a", "failed"), made("a-r2", "failed", of="a", at=1), made("b")]
    assert names(failed_of(retried, "part")) == ["a-r2"], "a retry counts instead of its Job"
    going_on = [made("a", "failed"), made("a-r2", of="a", at=1), made("b", "suspended"), made("c", "complete")]
    with pytest.raises(UsageError, match="a run of 4 Jobs, of which none has failed; name one, such as a, a-r2, b, …"):
        failed_of(going_on, "part")


def test_a_run_that_was_suspended_in_part_is_told() -> None:
    cluster = Told(None, NoSuchObjectError("gone", 404), ClusterUnreachableError("busy", 503))
    with pytest.raises(
        ClusterUnreachableError, match=r"busy; done with 1 of 3 Jobs before, the same again does the rest"
    ):
        suspend_jobs(cluster, "part", [made("a"), made("b"), made("c")], undo=False)  # type: ignore[arg-type]
    assert cluster.asked == [("patch", "a"), ("patch", "b"), ("patch", "c")]
    beside = [made("a", "suspended"), made("a-r2", of="a", at=1), made("b", "suspended")]
    assert suspend_jobs(Told(None), "part", beside, undo=True) == "part: 1 Job goes on"  # type: ignore[arg-type]
