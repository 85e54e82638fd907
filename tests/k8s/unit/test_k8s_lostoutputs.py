"""Outputs that would be gone with their pods: which are certain, which are doubtful, and which
stay.
"""

from __future__ import annotations

from typing import Any

import pytest

from tarkit.k8s.lostoutputs import lost_outputs

SCRATCH = {"name": "scratch", "emptyDir": {}}
MOUNT = {"name": "scratch", "mountPath": "/scratch"}
IN_SCRATCH = "is in the volume scratch, which is gone with its pod"
NO_VOLUME = "is in no volume"
STARTS = "is in the folder in which the command starts"


def container(*words: str, **fields: Any) -> dict[str, Any]:
    return {"name": "main", "command": [*words], "volumeMounts": [MOUNT, {"name": "d", "mountPath": "/data"}], **fields}


def tarproc(*words: str, **fields: Any) -> dict[str, Any]:
    return container("tarproc", "-c", "ls", *words, "--", "/in/a.tar", **fields)


def job(*containers: dict[str, Any], first: Any = (), scratch: dict[str, Any] | None = None) -> dict[str, Any]:
    volumes = [scratch or SCRATCH, {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]
    pod = {"containers": list(containers), "initContainers": list(first), "volumes": volumes}
    return {"kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {"spec": pod}}}


VARIABLES = [{"name": "OUT", "value": "/scratch"}, {"name": "AT", "value": "$(OUT)/out"}]
UNKNOWN = [{"name": "AT", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


@pytest.mark.parametrize(
    ("document", "certain", "why"),
    [
        (job(tarproc("-O", "/scratch/out")), True, IN_SCRATCH),
        (job(tarproc("-O/scratch/../scratch/out")), True, IN_SCRATCH),
        (job(tarproc("-O", "//scratch/out")), True, IN_SCRATCH),
        (job(tarproc("--outdir=file://localhost/scratch/out")), True, IN_SCRATCH),
        (job(tarproc("-o", "local:///scratch/out.tar")), True, IN_SCRATCH),
        (job(tarproc("-o", "out.tar", workingDir="/scratch")), True, IN_SCRATCH),
        (job(tarproc("-O", "$(AT)", env=VARIABLES)), True, IN_SCRATCH),
        (job(tarproc("-O", "/scratch"), scratch={"name": "scratch", "ephemeral": {}}), True, IN_SCRATCH),
        (job(tarproc("-O", "./out")), True, STARTS),
        (job(tarproc("-o", "out.tar")), True, STARTS),
        # A volume may be mounted by what admits the pod, and locally such a folder stays.
        (job(tarproc("-O", "/scratchy")), False, NO_VOLUME),
        # Other containers may copy what is there, as other programs may.
        (job(tarproc("-O", "/scratch/out"), container("rclone", name="copy")), False, IN_SCRATCH),
        (job(container("rclone", name="copy"), first=[tarproc("-O", "/scratch/out")]), False, IN_SCRATCH),
        (job(container("bash", env=[{"name": "TARKIT_OUT", "value": "/scratch/out"}])), False, IN_SCRATCH),
        (job(container("bash", env=[{"name": "TARKIT_OUT", "value": "/out"}])), False, NO_VOLUME),
    ],
)
def test_outputs_that_are_lost(document: dict[str, Any], certain: bool, why: str) -> None:
    ((is_certain, sentence),) = lost_outputs(document)
    assert (is_certain, sentence.startswith("Job x: the output '"), why in sentence) == (certain, True, True), sentence


@pytest.mark.parametrize(
    "document",
    [
        job(tarproc("-O", "s3://b/out")), job(tarproc("-O", "/data/out")), job(tarproc("-O", "/data")),
        job(tarproc("-O", "out", workingDir="/data")), job(tarproc("-o", "-")), job(tarproc("-o", "/dev/stdout")),
        job(tarproc("-o", "pipe:cat")), job(tarproc("-O", "$(AT)/out", env=UNKNOWN)), job(tarproc("--no-such")),
        job(container("bash")), {"kind": "ConfigMap", "data": {"a": "b"}},
    ],
)  # fmt: skip
def test_outputs_that_stay(document: dict[str, Any]) -> None:
    assert list(lost_outputs(document)) == []


def test_a_folder_that_is_given_for_a_volume_stays() -> None:
    assert list(lost_outputs(job(tarproc("-O", "/scratch/out")), kept=["scratch"])) == []
