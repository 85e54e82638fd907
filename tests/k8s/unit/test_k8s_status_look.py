"""Everything about a Job in one view: joined with its records, and with what may not be read left
out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tarkit.cli.kube.jobtext import status_lines

from tarkit.errors import (
    ClusterError,
    ClusterUnreachableError,
    DataError,
    MissingInputError,
    NoSuchObjectError,
    UsageError,
)
from tarkit.k8s.cluster.jobstatus import JobStatus
from tarkit.k8s.cluster.jobstatus import look as look_at
from tarkit.k8s.cluster.jobview import job_view
from tarkit.k8s.cluster.runjobs import find_jobs
from tarkit.k8s.cluster.runrecords import RecordSource, RunRecords, listed_specs
from tarkit.k8s.plan.shardlist import LIST_SPEC, list_config_map
from tarkit.k8s.wellknown import INPUTS, OUTDIR, RETRY_OF
from tarkit.runs.counts import Counts
from tarkit.runs.donerecord import DoneRecord
from tarkit.runs.status import Progress
from tarkit.specs.slicedlist import sha256_of


class Pretended:
    """What look() asks of a cluster; kinds in ``forbidden`` are refused."""

    namespace = "etl"
    where = "http://x.test"

    def __init__(self, *, forbidden: tuple[str, ...] = (), **objects: list[dict[str, Any]]) -> None:
        self.objects = objects
        self.forbidden = forbidden
        self.asked: list[str] = []

    def get(self, kind: str, name: str) -> dict[str, Any]:
        for each in self.list(kind):
            if each["metadata"]["name"] == name:
                return each
        raise NoSuchObjectError(f"no {kind} {name}", 404)

    def list(self, kind: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        self.asked.append(kind)
        if kind in self.forbidden:
            raise ClusterError(f"you may not list {kind}", 403)
        key, equals, value = labels.partition("=")
        found = []
        for each in self.objects.get(kind, []):
            own = each["metadata"].get("labels", {})
            if not labels or (own.get(key) == value if equals else key in own):
                found.append(each)
        return found

    def list_at(self, kind: str, *, labels: str = "", fields: str = "") -> tuple[Sequence[dict[str, Any]], str]:
        return self.list(kind, labels=labels, fields=fields), "1"


def look(cluster: Any, job: dict[str, Any], source: RecordSource | None = None) -> JobStatus:
    """One Job, with what is around it."""
    (found,) = look_at(cluster, [job], source, now=0.0)
    return found


def made(name: str, notes: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"U{name}", "labels": {"tarkit.dev/run": "grey"}, "annotations": notes or {}},
        "spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2},
        "status": status,
    }


def shards(*names: str) -> dict[str, str]:
    return {name: f"in/{name}" for name in names}


FAILED = [{"type": "Failed", "status": "True", "reason": "FailedIndexes"}]
COMPLETE = [{"type": "Complete", "status": "True"}]


@pytest.mark.parametrize(
    ("conditions", "found", "known", "expected"),
    [
        ([], None, False, 0),
        (FAILED, None, False, 1),
        (COMPLETE, None, False, 0),
        (COMPLETE, Progress(done=["a"], missing=["b"]), True, 1),
        (FAILED, Progress(done=["a", "b"]), True, 0),
        (FAILED, Progress(done=["a", "b"], set_aside={"a": 2}), True, 3),
        (COMPLETE, Progress(done=["a", "b"], damaged=["b"]), True, 3),
        ([], Progress(missing=["a", "b"]), True, 0),
        (COMPLETE, Progress(done=["a"]), False, 0),
        (FAILED, Progress(done=["a"]), False, 1),
        (COMPLETE, Progress(failed={"a": "x"}), False, 1),
        (COMPLETE, Progress(done=["a", "b"], counts=Counts(read=2, filtered=2)), True, 3),
        (COMPLETE, Progress(done=["a"], missing=["b"], counts=Counts(read=2, filtered=2)), True, 1),
        ([], Progress(done=["a", "b"], counts=Counts(read=2, filtered=2)), True, 0),
    ],
)
def test_exit_codes(conditions: list[Any], found: Progress | None, known: bool, expected: int) -> None:
    view = job_view(made("grey", conditions=conditions), None, 0.0)
    records = None if found is None else RunRecords("out", found, shards("a", "b") if known else None)
    assert JobStatus("grey", view, records=records).exit_code == expected


def test_a_job_of_which_no_sample_came_out_says_so_unless_that_is_meant(tmp_path: Path) -> None:
    """Its slices may be empty, so their pods succeed."""
    for name in ("a", "b"):
        (tmp_path / "out").mkdir(exist_ok=True)
        record = DoneRecord("done", {"url": f"in/{name}.tar"}, "w", "1", {"name": f"{name}.tar", "size": 3})
        record.samples = {"in": 2, "filtered": 2}
        record.publish(str(tmp_path / "out" / f"{name}.tar"))
        (tmp_path / "out" / f"{name}.tar").write_bytes(b"123")

    def status(*words: str, retry_of: str | None = None) -> JobStatus:
        notes = {OUTDIR: str(tmp_path / "out"), INPUTS: json.dumps(["in/{a,b}.tar"])}
        notes |= {RETRY_OF: retry_of} if retry_of else {}
        job = made("grey", notes, conditions=COMPLETE)
        # The image has the script that is run, so that any work counts.
        args = ["-S", "drop.sh", "--slice", "2", "-O", str(tmp_path / "out"), *words, "--", "in/{a,b}.tar"]
        container = {"name": "main", "command": ["tarproc"], "args": args}
        job["spec"]["template"] = {"spec": {"containers": [container]}}
        return look(Pretended(jobs=[job]), job, RecordSource())

    found = status()
    assert found.exit_code == 3
    line = "empty: 4 samples came in, and none came out; if that is meant, make the Job with -- --allow-empty"
    assert line in [*status_lines(found)]
    meant, retry = status("--allow-empty"), status(retry_of="before")
    assert meant.exit_code == retry.exit_code == 0 and line not in [*status_lines(meant), *status_lines(retry)]


def test_exit_codes_without_a_job() -> None:
    assert JobStatus("grey").exit_code == 1
    assert JobStatus("grey", records=RunRecords("out", Progress(done=["a"]), shards("a"))).exit_code == 0
    assert JobStatus("grey", records=RunRecords("out", Progress(done=["a"]), None)).exit_code == 1, "are these all?"
    assert JobStatus("grey", records=RunRecords("out", Progress(missing=["a"]), shards("a"))).exit_code == 1


def test_what_may_not_be_read_is_told_and_left_out() -> None:
    cluster = Pretended(forbidden=("pods", "events"), jobs=[made("grey", active=1)])
    found = look(cluster, cluster.get("jobs", "grey"), RecordSource("/absent/out"))
    assert found.notes == [
        "pods cannot be read: you may not list pods",
        "events cannot be read: you may not list events",
        "done records cannot be read: /absent/out: no such folder on this machine; "
        "-O names the output folder as seen from here",
    ]
    assert found.view is not None and found.view.pending == 1
    assert [line for line in status_lines(found) if line.startswith("indexes")] == [
        "indexes: 0 of 2 done, 0 running, 1 with a pod that does not run yet, 0 failed, 1 left"
    ]


def test_an_unreachable_cluster_is_no_note() -> None:
    class Gone(Pretended):
        def list(self, kind: str, *, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
            raise ClusterUnreachableError("gone")

    with pytest.raises(ClusterUnreachableError):
        look(Gone(), made("grey"))


def test_failed_indexes_without_pods() -> None:
    job = made("grey", failedIndexes="1", conditions=FAILED)
    assert [(each.title, each.indexes) for each in look(Pretended(jobs=[job]), job).failures] == [("gone", [1])]


def test_names() -> None:
    cluster = Pretended(jobs=[made("grey-b"), made("grey-a")])
    assert [each["metadata"]["name"] for each in find_jobs(cluster, "grey-b")] == ["grey-b"]  # type: ignore[arg-type]
    assert [each["metadata"]["name"] for each in find_jobs(cluster, "grey")] == ["grey-a", "grey-b"]  # type: ignore[arg-type]
    space = {"metadata": {"name": "etl"}}
    for known, expected in (
        (Pretended(namespaces=[space]), "no jobs x; -N names another namespace"),
        (Pretended(forbidden=("namespaces",)), "no jobs x; -N names another namespace"),
        (Pretended(), "no such namespace"),
    ):
        with pytest.raises(NoSuchObjectError, match=expected):
            find_jobs(known, "x")  # type: ignore[arg-type]


def test_what_only_a_run_can_be_called_is_not_asked_for_as_a_job() -> None:
    job = made("part0")
    job["metadata"]["labels"]["tarkit.dev/run"] = "My_Run"
    assert find_jobs(Pretended(jobs=[job]), "My_Run") == [job]  # type: ignore[arg-type]
    with pytest.raises(NoSuchObjectError, match=r"no run My_Ru in namespace etl of http://x.test"):
        find_jobs(Pretended(jobs=[job]), "My_Ru")  # type: ignore[arg-type]


# ---- shards of an index


def test_a_list_in_a_config_map() -> None:
    config_map = list_config_map("grey", ["s3://b/a.tar", "s3://b/b.tar"], None, {})
    assert listed_specs(config_map) == ["s3://b/a.tar", "s3://b/b.tar"]
    with pytest.raises(UsageError, match="ConfigMap other holds no list"):
        listed_specs({"metadata": {"name": "other"}, "data": {"x": "y"}})
    name = config_map["metadata"]["name"]
    job = made("grey", {"tarkit.dev/inputs": f'["{LIST_SPEC}"]', "tarkit.dev/list": name})
    for cluster, documents in ((Pretended(configmaps=[config_map]), []), (None, [config_map])):
        assert RecordSource(documents=documents).specs_of(cluster, job) == ["s3://b/a.tar", "s3://b/b.tar"]  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"in the ConfigMap {name}, which is not at hand"):
        RecordSource("s3://b/out").read(None, job)


def test_records_on_another_machine(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no such folder on this machine; -O names the output folder"):
        RecordSource(str(tmp_path / "no/out"), ["/in/a.tar"]).read(None, made("grey"))
    found = RecordSource(str(tmp_path / "out"), ["/in/a.tar"]).read(None, {"metadata": {"name": "grey"}})
    assert found is not None and found.found.missing == ["a.tar"], "not made yet"
    assert RecordSource().read(None, made("grey")) is None


def listed_job(tmp_path: Path, **args: str) -> dict[str, Any]:
    notes = {"shards": "2", "slices": "2", "outdir": f"{tmp_path}/out", "inputs": f'["@{tmp_path}/run.list"]'}
    job = made("grey", {f"tarkit.dev/{key}": value for key, value in notes.items()})
    words = [word for option, value in args.items() for word in (f"--{option.replace('_', '-')}", value)]
    job["spec"]["template"] = {
        "spec": {
            "containers": [{"name": "main", "command": ["tarproc"], "args": [*words, "--", f"@{tmp_path}/run.list"]}]
        }
    }
    return job


@pytest.mark.parametrize("names", [["/in/a.tar"], ["/in/a.tar", "/in/c.tar"], ["/in/a.tar", "/in/b.tar", "/in/c.tar"]])
def test_what_is_left_of_a_list_that_was_changed_is_not_known(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "out").mkdir()
    job = listed_job(tmp_path, list_sha256=sha256_of(["/in/a.tar", "/in/b.tar"]))
    (tmp_path / "run.list").write_text("".join(f"{name}\n" for name in names))
    with pytest.raises(DataError, match="the list was changed after its slices were planned"):
        RecordSource().read(None, job)
    (tmp_path / "run.list").write_text("/in/a.tar\n/in/b.tar\n")
    found = RecordSource().read(None, job)
    assert found is not None and found.found.missing == ["a.tar", "b.tar"]


def test_a_config_map_with_another_list_than_it_is_named_after() -> None:
    config_map = list_config_map("grey", ["/in/a.tar", "/in/b.tar"], None, {})
    other = list_config_map("grey", ["/in/a.tar"], None, {})
    assert listed_specs(other) == ["/in/a.tar"]
    with pytest.raises(UsageError, match="holds another list of shards than it is named after"):
        listed_specs({**other, "metadata": config_map["metadata"]})
