"""A run of tarproc over shards as one job of OpenPAI, a task for each slice of them."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tarkit.errors import UsageError, printable
from tarkit.openpai.check import problems_in
from tarkit.openpai.jobfile import JobFile
from tarkit.runs.work import PROGRAM, Work

if TYPE_CHECKING:
    from tarkit.k8s.plan.sliceplan import ShardPlan

_INDEX = "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"
_TASKS = 128
"""Default of the number of tasks."""


class Resources(NamedTuple):
    """Resources of one task.

    Attributes:
        cpu: number of cores.
        memory, shm: sizes in MiB.
    """

    cpu: int = 1
    memory: int = 4096
    shm: int = 512


def fan_out(
    work: Work, name: str, image: str, tasks: int, resources: Resources, *,
    protocol: int = 2, retries: int = 3, virtual_cluster: str = "default",
) -> dict[str, Any]:  # fmt: skip
    """Return a job whose tasks share the inputs of a work.

    Args:
        work: work with inputs and ``outdir``; each task does one slice of it.
        retries: retries of each task; in protocol 1, of the whole job, which skips what is done.

    Raises:
        UsageError: a word has ``<%``, which OpenPAI would replace, or OpenPAI would reject the job,
            for example its name.
    """
    sliced = dataclasses.replace(work, slice=f"@/{tasks}")
    # The index is OpenPAI's variable, so this one word is not quoted like the others.
    words = [
        f'"${_INDEX}"/{tasks}' if word == f"@/{tasks}" else shlex.quote(word) for word in [PROGRAM, *sliced.to_args()]
    ]
    line = " ".join(words)
    if "<%" in line:
        raise UsageError("<% in the command is OpenPAI's own: it would be filled in; write it another way")
    job = (_job_json if protocol == 1 else _job_yaml)(line, name, image, tasks, resources, retries, virtual_cluster)
    if problems := problems_in(JobFile(protocol, job)):
        raise UsageError(f"OpenPAI would refuse it: {problems[0]}")
    return job


def _job_json(
    line: str, name: str, image: str, tasks: int, resources: Resources, retries: int, virtual_cluster: str
) -> dict[str, Any]:
    role = {
        "name": "map",
        "taskNumber": tasks,
        "cpuNumber": resources.cpu,
        "memoryMB": resources.memory,
        "shmMB": resources.shm,
        "gpuNumber": 0,
        "minFailedTaskCount": 1,
        "minSucceededTaskCount": None,
        "command": line,
    }
    job = {"jobName": name, "image": image, "virtualCluster": virtual_cluster, "retryCount": retries}
    return {**job, "taskRoles": [role]}


def _job_yaml(
    line: str, name: str, image: str, tasks: int, resources: Resources, retries: int, virtual_cluster: str
) -> dict[str, Any]:
    role = {
        "instances": tasks,
        # Both written out: without, one role of several that has succeeded ends the job.
        "completion": {"minFailedInstances": 1, "minSucceededInstances": -1},
        "taskRetryCount": retries,
        "dockerImage": "image",
        "extraContainerOptions": {"shmMB": resources.shm},
        "resourcePerInstance": {"cpu": resources.cpu, "memoryMB": resources.memory, "gpu": 0},
        "commands": [line],
    }
    return {
        "protocolVersion": 2,
        "name": name,
        "type": "job",
        "prerequisites": [{"type": "dockerimage", "name": "image", "uri": image}],
        "taskRoles": {"map": role},
        "defaults": {"virtualCluster": virtual_cluster},
        # Else no task begins before all have a place, and the retries of a task have no effect.
        "extras": {"gangAllocation": False, "submitFrom": "tarkit"},
    }


def job_text(job: dict[str, Any], protocol: int) -> str:
    """Return a job as JSON of protocol 1 or YAML of protocol 2."""
    if protocol == 1:
        return f"{json.dumps(job, indent=2, ensure_ascii=False)}\n"
    from tarkit.k8s.yamltext import dump_documents

    return dump_documents([job])


def task_plan(specs: Sequence[str], tasks: int | None, outdir: str) -> ShardPlan:
    """Cut shards into slices, one for each task.

    Args:
        tasks: number of tasks, if it is given.

    Raises:
        UsageError: the specs name shards that can only be found on this machine, and not by a task.
    """
    from tarkit.k8s.plan.sliceplan import plan_shards

    plan = plan_shards(specs, slices=tasks, most=_TASKS, outdir=outdir)
    if plan.entries is not None:
        shown = printable(" ".join(specs))
        raise UsageError(
            f"{shown}: tasks cannot see what it names here; write a pattern such as raw-{{0000..0147}}.tar"
        )
    return plan
