"""Check of a job by OpenPAI's rules, before it is submitted."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from tarkit.openpai.jobfile import JobFile
from tarkit.openpai.schema import Problem, problems_of, schema

T = TypeVar("T")
_PREREQUISITES = {"script": "script", "output": "output", "data": "data", "dockerImage": "dockerimage"}
"""Field of a role -> type of the prerequisite that it names."""

_NUMBER = re.compile(r"\s*[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\s*")
_QUOTED = re.compile(r"'[^']*(?:'|\Z)|\"(?:\\.|[^\"\\])*(?:\"|\\?\Z)", re.DOTALL)
_UNNOTICED = re.compile(r"(?<![\\;]);(?!\s*(?:$|;|(?:then|do|else|elif|fi|done)\b))")
# Upper-case letters and underscores of a role are lost in the names that OpenPAI's runtime makes.
_PORTABLE = re.compile("[a-z][a-z0-9]{0,62}")


def problems_in(file: JobFile) -> list[Problem]:
    """Return the reasons why OpenPAI would refuse the job; empty if it would accept it."""
    return (_json_problems if file.protocol == 1 else _yaml_problems)(file.job)


def warnings_of(file: JobFile) -> list[Problem]:
    """Return warnings about values that OpenPAI accepts, but that are probably wrong.

    The job must have no problems.
    """
    return list((_json_warnings if file.protocol == 1 else _yaml_warnings)(file.job))


def completed(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job JSON as OpenPAI completes it: with numbers for texts, and with defaults."""
    found: dict[str, Any] = _completed(job, schema(1))
    return found


def _completed(value: Any, part: Mapping[str, Any]) -> Any:
    """Return a value with the defaults and integers of a part of the schema."""
    if isinstance(value, list):
        return [_completed(each, part.get("items", {})) for each in value]
    if isinstance(value, Mapping):
        fields = part.get("properties", {})
        defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
        return {name: _completed(each, fields.get(name, {})) for name, each in {**defaults, **value}.items()}
    if part.get("type") == "integer" or "anyOf" in part:
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            return int(value)
    return value


def _json_problems(job: dict[str, Any]) -> list[Problem]:
    full = completed(job)
    found = problems_of(full, schema(1))
    roles = full.get("taskRoles")
    names = [role.get("name") for role in roles if isinstance(role, dict)] if isinstance(roles, list) else []
    for name, number in _repeated(name for name in names if isinstance(name, str)):
        found.append(Problem("taskRoles", f"{number} roles are called {name}"))
    if found:
        return found
    for index, (given, role) in enumerate(zip(job["taskRoles"], full["taskRoles"], strict=True)):
        for field, most in (
            ("shmMB", "memoryMB"),
            ("minFailedTaskCount", "taskNumber"),
            ("minSucceededTaskCount", "taskNumber"),
        ):
            # A default is not compared, but for that of minFailedTaskCount.
            is_compared = field in given or field == "minFailedTaskCount"
            if is_compared and (role[field] or 0) > role[most]:
                found.append(Problem(f"taskRoles[{index}].{field}", f"it is {role[field]}, and {most} is {role[most]}"))
    return found


def _repeated(names: Iterable[T]) -> Iterator[tuple[T, int]]:
    """Yield names that are repeated, and their number."""
    return ((name, number) for name, number in Counter(names).items() if number > 1)


def _yaml_problems(job: dict[str, Any]) -> list[Problem]:
    found = problems_of(job, schema(2))
    if found:
        return found
    names = [(each["type"], each["name"]) for each in job.get("prerequisites", [])]
    for (kind, name), number in _repeated(names):
        found.append(Problem("prerequisites", f"{number} of type {kind} are called {name}"))
    there, known = set(names), {name for _, name in names}
    deployments = [each["name"] for each in job.get("deployments", [])]
    found += [Problem("deployments", f"{number} are called {name}") for name, number in _repeated(deployments)]
    for name, role in job["taskRoles"].items():
        for field, kind_of_field in _PREREQUISITES.items():
            if field in role and (kind_of_field, role[field]) not in there:
                reason = f"no prerequisite of type {kind_of_field} is called {role[field]}"
                found.append(Problem(f"taskRoles.{name}.{field}", reason))
        for index, each in enumerate(role.get("prerequisites", [])):
            if each not in known:
                found.append(Problem(f"taskRoles.{name}.prerequisites[{index}]", f"no prerequisite is called {each}"))
    wanted = job.get("defaults", {}).get("deployment")
    if wanted is not None and wanted not in deployments:
        found.append(Problem("defaults.deployment", f"no deployment is called {wanted}"))
    return found


def _json_warnings(job: dict[str, Any]) -> Iterator[Problem]:
    if "killAllOnCompletedTaskNumber" in job:
        yield Problem("killAllOnCompletedTaskNumber", "it has no effect; use minFailedTaskCount, minSucceededTaskCount")
    for index, role in enumerate(completed(job)["taskRoles"]):
        where = f"taskRoles[{index}]"
        command = role["command"]
        if _UNNOTICED.search(_QUOTED.sub("", command)) and "set -e" not in command and "bash -e" not in command:
            yield Problem(f"{where}.command", "a command that fails before a ; is not noticed: no errexit is set")


def _yaml_warnings(job: dict[str, Any]) -> Iterator[Problem]:
    for name, role in job["taskRoles"].items():
        where = f"taskRoles.{name}"
        if not _PORTABLE.fullmatch(name):
            hint = "use small letters and digits only"
            yield Problem(where, f"PAI_HOST_IP_* and other variables have another name than the role; {hint}")
        completion = role.get("completion", {})
        if completion.get("minSucceededInstances") in (None, 0) and len(job["taskRoles"]) > 1:
            reason = "the job succeeds as soon as all of this role have; write minSucceededInstances: -1"
            yield Problem(f"{where}.completion", reason)
        if role.get("taskRetryCount") and job.get("extras", {}).get("gangAllocation", True) is not False:
            yield Problem(f"{where}.taskRetryCount", "it has no effect without extras.gangAllocation: false")
    for name, value in job.get("secrets", {}).items():
        if isinstance(value, str) and re.search("[&<>\"']", value):
            yield Problem(f"secrets.{name}", "commands get & < > \" ' of a secret as &amp; and the like; use base64url")
