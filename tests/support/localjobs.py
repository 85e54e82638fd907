"""Jobs to run on this machine, and the processes that are left of them."""

from __future__ import annotations

import subprocess
from typing import Any

CODES = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [2, 64, 78]}},
        {"action": "FailIndex", "onExitCodes": {"containerName": "main", "operator": "In", "values": [3, 65, 66]}},
    ]
}


def plain(script: str, *, pod: dict[str, Any] | None = None, name: str = "j", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "command": ["/bin/sh", "-c", script]}
    template = {"restartPolicy": "Never", "containers": [container], **(pod or {})}
    return {"kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": template}, **spec}}


def job(script: str, *, main: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    indexed = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 2}
    document = plain(script, **{**indexed, "podFailurePolicy": CODES, **more})
    document["spec"]["template"]["spec"]["containers"][0].update(main or {})
    return document


def living(*groups: str) -> list[str]:
    """The processes of groups that are more than a zombie."""
    ps = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in ps.splitlines()]
    return [row[2] for row in rows if row[0] in groups and not row[1].startswith("Z")]
