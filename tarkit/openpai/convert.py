"""Job JSON of version 1 to job YAML of protocol 2."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from tarkit.errors import DataError
from tarkit.openpai.check import completed, problems_in
from tarkit.openpai.jobfile import JobFile, javascript_text
from tarkit.openpai.schema import Problem

_FOLDERS = {"dataDir": "data", "outputDir": "output", "codeDir": "script"}
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_YARN_ONLY = ("APP_ID", "FRAMEWORK_NAME", "HADOOP_USER_NAME")
_SPECIAL = {
    "isDebug": "OpenPAI kept the container of a task that failed; protocol 2 does not, it is a variable only",
    "paiAzRDMA": "OpenPAI gave the container RDMA; by protocol 2 it is a variable only",
}
_NO_FIELD = "protocol 2 has no such field"

_Note = Callable[[str, str], None]


def converted(
    job: Mapping[str, Any], where: str, *, default_fs: str | None = None
) -> tuple[dict[str, Any], list[Problem]]:
    """Return an equivalent job of protocol 2, and a list of what is lost or differs.

    Args:
        job: a job without problems.
        where: the file's name, for messages.
        default_fs: value of ``PAI_DEFAULT_FS_URI``, such as ``hdfs://host:9000``; it is empty on
            clusters of protocol 2.

    Raises:
        DataError: two roles, or two ports of a role, would have the same name, or OpenPAI would
            reject the new job.
    """
    full = completed(job)
    if default_fs:
        default_fs = default_fs.rstrip("/")
    notes: list[Problem] = []

    def note(field: str, reason: str) -> None:
        notes.append(Problem(field, reason))

    name = re.sub("[^a-zA-Z0-9_-]", "_", full["jobName"])[:255]
    if name != full["jobName"]:
        note("jobName", f"{full['jobName']} is called {name}")
    image: dict[str, Any] = {"type": "dockerimage", "name": "image", "uri": full["image"]}
    prerequisites = [image]
    found: dict[str, Any] = {"protocolVersion": 2, "name": name, "type": "job"}
    if full["authFile"]:
        image["auth"] = {
            "username": "<% $secrets.registry_user %>",
            "password": "<% $secrets.registry_password %>",
            "registryuri": "<% $secrets.registry %>",
        }
        note("authFile", f"write the three lines of {full['authFile']} into secrets, in place of TO_FILL")
    exports, fields = _folders(full, prerequisites, default_fs)
    exports += _variables(full.get("jobEnvs", {}), note)
    if not default_fs and any("PAI_DEFAULT_FS_URI" in line for line in [*exports, *_commands(full)]):
        note("PAI_DEFAULT_FS_URI", "clusters of protocol 2 leave it empty; use tarkit pai convert --default-fs")
    for variable in _YARN_ONLY:
        if any(re.search(rf"\$\{{?{variable}\b", line) for line in _commands(full)):
            note(variable, "a command uses it, and protocol 2 does not set it")
    found["jobRetryCount"] = max(0, full["retryCount"])
    if full["retryCount"] < 0:
        note("retryCount", f"{full['retryCount']} (always) is 0: protocol 2 has whole numbers from 0 on")
    found["prerequisites"] = prerequisites
    if "auth" in image:
        found["secrets"] = dict.fromkeys(("registry", "registry_user", "registry_password"), "TO_FILL")
    if full.get("jobEnvs"):
        found["parameters"] = dict(full["jobEnvs"])
    found["taskRoles"] = {}
    for index, role in enumerate(full["taskRoles"]):
        short = _role_name(role["name"])
        if "<%" in role["command"]:
            raise DataError(f"role {role['name']}: <% in its command would be filled in", url=where)
        if not (full["outputDir"] or default_fs) and "PAI_OUTPUT_DIR" in role["command"]:
            note("outputDir", "OpenPAI makes no folder for it: name one, or use tarkit pai convert --default-fs")
        if short in found["taskRoles"]:
            raise DataError(f"two roles would be called {short}; rename {role['name']}", url=where)
        if short != role["name"]:
            reason = f"{role['name']} is called {short}, in the names of variables, too"
            note(f"taskRoles[{index}].name", reason)
        found["taskRoles"][short] = {**_role(role, index, note, where), **fields}
        found["taskRoles"][short]["commands"].insert(0, _own_variables(full["jobName"], role, default_fs))
    if any("<%" in line for line in exports):
        raise DataError("jobEnvs or a folder: <% in it would be filled in", url=where)
    if exports:
        found["deployments"] = [
            {"name": "env", "taskRoles": {each: {"preCommands": exports} for each in found["taskRoles"]}}
        ]
    found["defaults"] = {
        "virtualCluster": full["virtualCluster"] or "default",
        **({"deployment": "env"} if exports else {}),
    }
    found["extras"] = {**full.get("extras", {}), "submitFrom": "tarkit"}
    for field in ("gpuType", "killAllOnCompletedTaskNumber"):
        if full.get(field):
            note(field, _NO_FIELD)
    if full["codeDir"]:
        note("codeDir", "nothing is copied into the container: fetch it in a command")
    if problems := problems_in(JobFile(2, found)):
        raise DataError(f"protocol 2 cannot have it: {problems[0]}", url=where)
    return found, notes


def _commands(full: Mapping[str, Any]) -> list[str]:
    return [role["command"] for role in full["taskRoles"]]


def _folders(
    full: Mapping[str, Any], prerequisites: list[dict[str, Any]], default_fs: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return lines that set the variables, and the role's fields that name the prerequisites."""
    exports, fields = [], {}
    for folder, kind in _FOLDERS.items():
        # Protocol 2 has user~job in PAI_JOB_NAME.
        url = re.sub(r"\$PAI_JOB_NAME\b", lambda _: full["jobName"], full[folder])
        if folder == "outputDir" and not url and default_fs:
            url = f"{default_fs}/Output/$PAI_USER_NAME/{full['jobName']}"
        if default_fs:
            url = re.sub(r"\$PAI_DEFAULT_FS_URI\b", lambda _: default_fs, url)
        if url:
            prerequisites.append({"type": kind, "name": kind, "uri": [url] if kind == "data" else url})
            fields[kind] = kind
            variable = {"data": "PAI_DATA_DIR", "output": "PAI_OUTPUT_DIR", "script": "PAI_CODE_DIR"}[kind]
            exports.append(f'export {variable}="{_in_quotes(url)}"')
    return exports, fields


def _in_quotes(url: str) -> str:
    """Escape a URL for double quotes, so that only variables that version 1 fills in are variables.

    A variable that is empty ends the task: otherwise it would work in a folder of the container.
    """
    known = r"\$(?!PAI_DEFAULT_FS_URI\b|PAI_USER_NAME\b|PAI_USERNAME\b)"
    text = re.sub(known, r"\$", re.sub(r'(["\\`])', r"\\\1", url))
    return re.sub(r"(?<!\\)\$(PAI_\w+)", r"${\1:?}", text)


def _variables(given: Mapping[str, Any], note: _Note) -> list[str]:
    """Return lines that set ``jobEnvs``."""
    lines = []
    for name, value in given.items():
        if name in _SPECIAL:
            note(f"jobEnvs.{name}", _SPECIAL[name])
        if _VARIABLE.fullmatch(name):
            lines.append(f"export {name}={shlex.quote(javascript_text(value))}")
        else:
            note(f"jobEnvs.{name}", "bash has no variable of such a name; it is left out")
    return lines


def _own_variables(job: str, role: Mapping[str, Any], default_fs: str | None) -> str:
    """Return a line that sets variables which protocol 2 lacks, or defines differently."""
    numbers = {
        "TASK_COUNT": "taskNumber", "CPU_COUNT": "cpuNumber", "MEM_MB": "memoryMB", "SHM_MB": "shmMB",
        "GPU_COUNT": "gpuNumber", "MIN_FAILED_TASK_COUNT": "minFailedTaskCount",
        "MIN_SUCCEEDED_TASK_COUNT": "minSucceededTaskCount",
    }  # fmt: skip
    found = {"PAI_JOB_NAME": job, **({"PAI_DEFAULT_FS_URI": shlex.quote(default_fs)} if default_fs else {})}
    for name, field in numbers.items():
        if role[field] is not None:
            found[f"PAI_CURRENT_TASK_ROLE_{name}"] = role[field]
    found["PAI_RESOURCE"] = ",".join(str(role[field]) for field in ("gpuNumber", "cpuNumber", "memoryMB", "shmMB"))
    return f"export {' '.join(f'{name}={value}' for name, value in found.items())}"


def _role_name(name: str) -> str:
    short = re.sub("[^a-z0-9]", "", name.lower())
    return short if short[:1].isalpha() else f"role{short}"


def _role(role: Mapping[str, Any], index: int, note: _Note, where: str) -> dict[str, Any]:
    ports: dict[str, int] = {}
    for number, port in enumerate(role["portList"]):
        label = re.sub("[^a-zA-Z0-9_]", "_", port["label"])
        label = label if not label[0].isdigit() else f"_{label}"
        if label in ports:
            raise DataError(f"two ports of role {role['name']} would be called {label}", url=where)
        field = f"taskRoles[{index}].portList[{number}]"
        if label != port["label"]:
            note(f"{field}.label", f"{port['label']} is called {label}")
        if port["beginAt"]:
            note(f"{field}.beginAt", f"{_NO_FIELD}; OpenPAI chooses the ports")
        if port["portNumber"] > 0:
            ports[label] = port["portNumber"]
    return {
        "instances": role["taskNumber"],
        "completion": {
            "minFailedInstances": _or_never(role["minFailedTaskCount"]),
            "minSucceededInstances": _or_never(role["minSucceededTaskCount"]),
        },
        "dockerImage": "image",
        "extraContainerOptions": {"shmMB": role["shmMB"]},
        "resourcePerInstance": {
            "cpu": role["cpuNumber"],
            "memoryMB": role["memoryMB"],
            "gpu": role["gpuNumber"],
            **({"ports": ports} if ports else {}),
        },
        # Version 1 evaluates one text without errexit.
        "commands": ["set +o errexit +o nounset +o pipefail", role["command"]],
    }


def _or_never(count: int | None) -> int:
    return -1 if count is None else count
