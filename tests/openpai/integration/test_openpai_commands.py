"""Commands of jobs of OpenPAI, run by bash."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import paijobs

from tarkit.openpai.convert import converted


def test_folders_are_those_of_version_1(tmp_path: Path) -> None:
    """The commands of the converted job, as protocol 2 runs them, see what version 1
    gave to them.
    """
    show = 'echo "$PAI_DATA_DIR,$PAI_OUTPUT_DIR,$PAI_JOB_NAME,$PAI_CURRENT_TASK_ROLE_TASK_COUNT,$PAI_RESOURCE,$A"'
    role = {"name": "map", "taskNumber": 4, "command": show}
    job = {**paijobs.V1, "jobName": "a.b", "dataDir": "$PAI_DEFAULT_FS_URI/`x`/$PAI_JOB_NAME", "taskRoles": [role],
           "jobEnvs": {"A": "$PAI_JOB_NAME"}}  # fmt: skip

    def run(default_fs: str | None, **given: str) -> subprocess.CompletedProcess[str]:
        found, _ = converted(job, "job", default_fs=default_fs)
        around = found["deployments"][0]["taskRoles"]["map"]["preCommands"]
        script = "\n".join([*around, *found["taskRoles"]["map"]["commands"]])
        bash = ["bash", "-o", "errexit", "-o", "nounset", "-o", "pipefail", "-c", script]
        env = {"PATH": os.environ["PATH"], "PAI_USER_NAME": "ada", "PAI_JOB_NAME": "ada~a_b", **given}
        return subprocess.run(bash, env=env, capture_output=True, text=True, timeout=30)

    wanted = "hdfs://nn:9/`x`/a.b,{},a.b,4,0,1,100,64,$PAI_JOB_NAME\n"
    assert run("hdfs://nn:9/").stdout == wanted.format("hdfs://nn:9/Output/ada/a.b")
    assert run(None, PAI_DEFAULT_FS_URI="hdfs://nn:9").stdout == wanted.format("")
    # As on a cluster of protocol 2; else /`x`/a.b would be a folder of the container.
    failed = run(None, PAI_DEFAULT_FS_URI="")
    assert (failed.returncode != 0, failed.stdout, "PAI_DEFAULT_FS_URI" in failed.stderr) == (True, "", True)
