"""Jobs of OpenPAI: what it would accept, what they become, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import paijobs
import pytest
from tarkit.cli.tarkit import main

from tarkit.errors import DataError
from tarkit.openpai.check import problems_in, warnings_of
from tarkit.openpai.convert import converted
from tarkit.openpai.jobfile import JobFile, javascript_text, read_job

JOBS = paijobs.jobs()
DATA = Path(__file__).resolve().parents[1] / "data"


def fields_of(text: str) -> list[str]:
    try:
        return [problem.field for problem in problems_in(read_job(text, "job"))]
    except DataError:
        return [""]


@pytest.mark.parametrize("name", JOBS)
def test_verdict(name: str) -> None:
    text, field = JOBS[name]
    found = fields_of(text)
    assert found == [] if field is None else field in found


def test_verdicts_are_those_of_the_libraries_of_the_server() -> None:
    """Joi, ajv and js-yaml, over rules written down independently: see ORIGIN.md."""
    judged = json.loads((DATA / "verdicts.json").read_text())
    assert judged == {name: not fields_of(text) for name, (text, _) in JOBS.items()}


def test_there_are_so_many_kinds() -> None:
    assert len(JOBS) > 100


def job_of(text: str) -> JobFile:
    found = read_job(text, "job")
    assert problems_in(found) == []
    return found


def v2(**changes: object) -> dict[str, object]:
    job = paijobs.V2
    for path, value in changes.items():
        job = paijobs.changed(job, path.replace("__", "."), value)
    return job


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e21, "1e+21"), (1.5e-7, "1.5e-7"), (0.000001, "0.000001"), (123456789.5, "123456789.5"), (-0.5, "-0.5"),
     (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
     (1e300, "1e+300"), (None, "null"), ([1, None, True], "1,,true")],
)  # fmt: skip
def test_values_as_javascript_writes_them(value: object, text: str) -> None:
    assert javascript_text(value) == text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"secrets": {"t": "a&b"}}, "secrets.t"),
        ({"taskRoles__map__taskRetryCount": 3}, "taskRoles.map.taskRetryCount"),
        ({"taskRoles__Map_A": paijobs.V2["taskRoles"]["map"]}, "taskRoles.Map_A"),
    ],
)
def test_warnings_of_job_yaml(changes: dict[str, object], field: str) -> None:
    assert field in [problem.field for problem in warnings_of(JobFile(2, v2(**changes)))]


def test_warnings_of_job_json() -> None:
    job = paijobs.changed(paijobs.V1, "taskRoles.0.command", "a; b")
    job = paijobs.changed(job, "killAllOnCompletedTaskNumber", 1)
    fields = [problem.field for problem in warnings_of(JobFile(1, job))]
    assert fields == ["killAllOnCompletedTaskNumber", "taskRoles[0].command"]


@pytest.mark.parametrize(
    ("command", "unnoticed"),
    [
        ("a; b", True), ("'a'; b", True), ("a;", False), ("tarproc -c 'a; b'", False), (r'bash -c "\"a\"; b"', False),
        ("if [ ! -d d ]; then mkdir d; fi && hdfs dfs -get x d", False), ("for i in 1 2; do a; b; done", True),
        (r"find . -exec ls {} \;", False), ("set -e; a; b", False), ('"\\"' * 200_000, False),
    ],
)  # fmt: skip
def test_a_semicolon_that_hides_a_failure_is_a_warning(command: str, unnoticed: bool) -> None:
    job = paijobs.changed(paijobs.V1, "taskRoles.0.command", command)
    assert bool(warnings_of(JobFile(1, job))) == unnoticed


def test_every_job_json_that_is_accepted_converts_to_job_yaml_that_is() -> None:
    number = 0
    for name, (text, field) in JOBS.items():
        if name.startswith("1") and field is None:
            job, _ = converted(read_job(text, "job").job, "job")
            assert problems_in(JobFile(2, job)) == [], name
            number += 1
    assert number > 15


def test_what_protocol_2_lacks_is_reported() -> None:
    job = {
        **paijobs.V1,
        "jobName": "a.b", "authFile": "hdfs://a/auth", "dataDir": "$PAI_DEFAULT_FS_URI/d $HOME", "outputDir": "hdfs://o",
        "codeDir": "hdfs://c", "gpuType": "K80", "retryCount": -2, "jobEnvs": {"A": "it's", "B": 2},
        "taskRoles": [
            {"name": "Map.1", "command": "x", "portList": [{"label": "a.b", "beginAt": 8080, "portNumber": 2}],
             "minFailedTaskCount": None},
            {"name": "1", "command": "y"},
        ],
    }  # fmt: skip
    found, notes = converted(job_of(json.dumps(job)).job, "job")
    assert problems_in(JobFile(2, found)) == []
    assert [note.field for note in notes] == [
        "jobName", "authFile", "PAI_DEFAULT_FS_URI", "retryCount", "taskRoles[0].name",
        "taskRoles[0].portList[0].label", "taskRoles[0].portList[0].beginAt", "taskRoles[1].name", "gpuType", "codeDir",
    ]  # fmt: skip
    assert list(found["taskRoles"]) == ["map1", "role1"]
    assert found["taskRoles"]["map1"]["completion"] == {"minFailedInstances": -1, "minSucceededInstances": -1}
    assert found["taskRoles"]["map1"]["extraContainerOptions"] == {"shmMB": 64}
    assert found["secrets"] == dict.fromkeys(("registry", "registry_user", "registry_password"), "TO_FILL")
    assert found["deployments"][0]["taskRoles"]["map1"]["preCommands"] == [
        'export PAI_DATA_DIR="${PAI_DEFAULT_FS_URI:?}/d \\$HOME"', 'export PAI_OUTPUT_DIR="hdfs://o"',
        'export PAI_CODE_DIR="hdfs://c"', "export A='it'\"'\"'s'", "export B=2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("roles", "reason"),
    [
        ([{"name": "a", "command": "x"}, {"name": "A", "command": "y"}], "two roles would be called a"),
        ([{"name": "a", "command": "x", "portList": [{"label": "a.b"}, {"label": "a~b"}]}], "two ports of role a"),
        ([{"name": "a", "command": "<% x %>"}], "would be filled in"),
        ([{"name": "a", "command": "x", "taskNumber": 0, "minFailedTaskCount": None}], "protocol 2 cannot have it"),
    ],
)
def test_what_cannot_be_converted_is_an_error(roles: list[dict[str, object]], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        converted({**paijobs.V1, "taskRoles": roles}, "job.json")


def program(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([*map(str, words)])
    out, err = capfd.readouterr()
    return code, out, err


def test_check_names_file_and_field(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good, bad, text = tmp_path / "good.yaml", tmp_path / "bad.json", tmp_path / "a.txt"
    good.write_text(JOBS["2: plain"][0])
    bad.write_text(JOBS["1: dash in a role"][0])
    text.write_bytes(b"\xff")
    code, out, err = program(capfd, "pai", "check", good, bad, text)
    assert (code, out) == (65, "")
    assert err.splitlines() == [
        f"tarkit pai: {bad}: taskRoles[0].name: 'a-b': a name has the form ^[A-Za-z0-9._~]+$",
        f"tarkit pai: {text}: it is not UTF-8: invalid start byte at byte 0",
    ]
    assert program(capfd, "pai", "check", good) == (0, "", "")
    assert program(capfd, "pai", "check", tmp_path / "none")[0] == 66


def test_a_file_that_openpai_would_refuse_is_not_converted(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(JOBS["1: dash in a role"][0])
    code, out, err = program(capfd, "pai", "convert", bad)
    assert (code, out, "taskRoles[0].name" in err) == (65, "", True)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"dataDir": "$PAI_DEFAULT_FS_URI/a"}, ["PAI_DEFAULT_FS_URI"]),
        ({"dataDir": "hdfs://nn/a"}, []),
        ({"jobEnvs": {"isDebug": True, "a-b": 1}}, ["jobEnvs.isDebug", "jobEnvs.a-b"]),
        ({"taskRoles.0.command": "run ${HADOOP_USER_NAME}"}, ["HADOOP_USER_NAME"]),
        ({"taskRoles.0.command": "run $PAI_DEFAULT_FS_URI"}, ["PAI_DEFAULT_FS_URI"]),
        ({"taskRoles.0.command": "run > $PAI_OUTPUT_DIR"}, ["outputDir"]),
    ],
)
def test_variables_that_protocol_2_lacks_are_reported(changes: dict[str, object], fields: list[str]) -> None:
    job = paijobs.V1
    for path, value in changes.items():
        job = paijobs.changed(job, path, value)
    found, notes = converted(job_of(json.dumps(job)).job, "job")
    assert [note.field for note in notes] == fields
    assert "export a-b" not in json.dumps(found)


@pytest.mark.parametrize("changes", [{"jobEnvs": {"A": "<% x %>"}}, {"dataDir": "hdfs://a/<% $secrets.t %>"}])
def test_a_value_that_openpai_would_fill_in_is_an_error(changes: dict[str, object]) -> None:
    with pytest.raises(DataError, match="would be filled in"):
        converted({**paijobs.V1, **changes}, "job.json")


def test_absurd_jobs_have_a_verdict() -> None:
    roles = json.dumps({**paijobs.V1, "taskRoles": [{"name": ["a"], "command": "b"}]})
    assert "taskRoles[0].name" in fields_of(roles)
    assert [fields_of(f"name: !!{tag} x") for tag in ("bool", "timestamp", "int", "float", "set")] == [[""]] * 5
    for hived in ([], "x", {"taskRoles": None}, {"taskRoles": 5}, {"taskRoles": [{}]}):
        list(warnings_of(JobFile(2, v2(extras={"hivedScheduler": hived}))))
    for value in ("map", ["map"], 5, None):
        assert "taskRoles" in [problem.field for problem in problems_in(JobFile(2, v2(taskRoles=value)))]
        deployed = [{"name": "d", "taskRoles": value}]
        assert "deployments[0].taskRoles" in [
            problem.field for problem in problems_in(JobFile(2, v2(deployments=deployed)))
        ]
    ports = "taskRoles__map__resourcePerInstance__ports"
    assert [problem.reason for problem in problems_in(JobFile(2, v2(**{ports: "web"})))] == [
        "it must be a mapping or null, and is 'web'"
    ]
    # As "ports:" without a value is.
    assert problems_in(JobFile(2, v2(**{ports: None}))) == []
