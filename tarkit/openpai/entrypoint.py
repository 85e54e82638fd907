"""The commands of a role as OpenPAI's server and runtime make one text of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tarkit.errors import DataError
from tarkit.openpai.check import PREREQUISITES, prerequisites_of
from tarkit.openpai.jobfile import MOST_CHARACTERS, javascript_text

# Mustache's tags with other marks: a name, after & or not; what begins with another sign is dropped.
_TAG = re.compile(r"<%\s*([#^/!>=&{]?)(.*?)%>", re.DOTALL)
_DIGITS = re.compile("[0-9]{1,9}")
_INDEX = re.compile(r"\[([0-9]+)\]")


def entrypoint(job: Mapping[str, Any], role: str) -> str:
    """The script of a role of a job YAML: what a container of protocol 2 runs with errexit, nounset and pipefail.

    ``$parameters`` and the role's own ``$script``, ``$output`` and ``$data`` are filled in, without quotes for a shell;
    ``$secrets`` stay, and so does an unknown name.
    """
    wanted = job["taskRoles"][role]
    lines = list(wanted["commands"])
    chosen = job.get("defaults", {}).get("deployment")
    for deployment in job.get("deployments", []):
        if deployment["name"] == chosen:
            around = deployment["taskRoles"].get(role, {})
            lines = [*around.get("preCommands", []), *lines, *around.get("postCommands", [])]
    known = prerequisites_of(job)
    values: dict[str, Any] = {"$parameters": job.get("parameters")}
    for field in ("script", "output", "data"):
        values[f"${field}"] = known.get((PREREQUISITES[field], wanted.get(field, "")))
    return fill("\n".join(line.strip() for line in lines), values)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """``<% name.name[0] %>`` replaced by what it names. Raises: DataError: that is too long."""
    room = MOST_CHARACTERS

    def found(match: re.Match[str]) -> str:
        nonlocal room
        mark, name = match[1], _INDEX.sub(r".\1", match[2].strip())
        if mark:
            # Only names are filled in; other tags of Mustache are dropped.
            return ""
        value: Any = values
        for part in name.split("."):
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, (list, str)) and _DIGITS.fullmatch(part) and int(part) < len(value):
                value = value[int(part)]
            elif isinstance(value, (list, str)) and part == "length":
                value = len(value)
            else:
                value = None
        text = f"<% {name} %>" if value is None else javascript_text(value)
        room -= len(text)
        if room < 0:
            raise DataError(f"commands with what <% %> stand for have more than {MOST_CHARACTERS} characters")
        return text

    # What follows the last end of a tag has none: to look for it there would take as long as the square of its length.
    head, end, rest = template.rpartition("%>")
    return f"{_TAG.sub(found, head + end)}{rest}".strip()
