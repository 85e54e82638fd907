"""--slice W in a job array of Slurm."""

from __future__ import annotations

import pytest

from tarkit.errors import UsageError
from tarkit.runs.process import with_index

NAMES = ("ID", "COUNT", "MIN", "MAX", "STEP")


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOB_COMPLETION_INDEX", *(f"SLURM_ARRAY_TASK_{name}" for name in NAMES)):
        monkeypatch.delenv(name, raising=False)


def in_array(monkeypatch: pytest.MonkeyPatch, *values: object) -> None:
    for name, value in zip(NAMES, values, strict=False):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))


@pytest.mark.parametrize(
    ("ids", "least", "most", "step"),
    [
        (range(0, 10), 0, 9, 1),  # --array=0-9
        (range(1, 11), 1, 10, 1),  # --array=1-10
        (range(5, 8), 5, 7, 1),
        (range(2, 11, 4), 2, 10, 4),  # --array=2-11:4
        ([3], 3, 3, 1),
    ],
)
def test_each_task_gets_one_slice(
    ids: range, least: int, most: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for task in ids:
        in_array(monkeypatch, task, len(ids), least, most, step)
        found.append(with_index(str(len(ids))))
    assert found == [f"{number}/{len(ids)}" for number in range(len(ids))]
    monkeypatch.delenv("SLURM_ARRAY_TASK_STEP")
    if step == 1:
        assert with_index(str(len(ids))) == found[-1]


@pytest.mark.parametrize(
    ("piece", "values"),
    [
        ("2", (7, 2, 3, 7, 1)),  # --array=3,7: which slices these were is not known
        ("10", (7, 2, 3, 7, 1)),
        ("11", (1, 10, 1, 10, 1)),
        ("3", (1, 3, 1, 9, 0)),
    ],
)
def test_slices_that_do_not_fit_the_array(piece: str, values: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    in_array(monkeypatch, *values)
    with pytest.raises(UsageError, match=f"--slice {piece}: this array has {values[1]} tasks, .* or write I/W"):
        with_index(piece)


def test_variables_that_are_missing_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="Kubernetes sets JOB_COMPLETION_INDEX, or Slurm SLURM_ARRAY_TASK_ID"):
        with_index("4")
    in_array(monkeypatch, 1, 4)
    with pytest.raises(UsageError, match="_STEP are 1, 4, , , 1; write --slice I/W"):
        with_index("4")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")
    assert with_index("4") == "3/4"
    assert with_index("0/2") == "0/2"
