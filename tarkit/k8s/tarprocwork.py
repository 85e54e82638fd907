"""What a container's tarproc does: its arguments as :class:`~tarkit.runs.work.Work`, every text as in the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tarkit.errors import TarkitError
from tarkit.k8s.podfields import main_container, substitute
from tarkit.runs.work import Work


def work_in(container: Mapping[str, Any]) -> Work | None:
    """What a container runs tarproc for; None if it runs another program. ``$(NAME)`` is in it as it is.

    Arguments that this tarproc does not have are a UsageError.
    """
    command = container.get("command") or [""]
    if str(command[0]).rpartition("/")[2] != "tarproc":
        return None
    return Work.from_args([str(each) for each in (*command[1:], *(container.get("args") or ()))])


def expected_fingerprint(job: Mapping[str, Any]) -> str | None:
    """The fingerprint that the done records of a Job have; None if the manifest alone does not decide it.

    A record with another one is of another command over the same shards, so it is not this Job's.
    """
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    try:
        container = main_container(dict(pod))
        env = {str(each.get("name")): each.get("value") for each in container.get("env") or []}
        args = [substitute(str(each), {}) for each in container.get("args") or ()]
        work = work_in({"command": container.get("command"), "args": args})
        if work is None or work.script is not None or work.files():
            # The content of files counts, and is in the container.
            return None
        if work.mtime is None:
            # Pods do not know this machine's environment.
            work = replace(work, mtime=int(str(env.get("SOURCE_DATE_EPOCH", "0"))))
        return work.fingerprint()
    except (TarkitError, ValueError):
        return None
