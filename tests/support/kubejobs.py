"""Small manifests for the tests here, and Jobs whose work is really done, by processes of this
machine.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import warmprogram

from tarkit.k8s.podfields import substitute
from tarkit.writer import TarWriter

if TYPE_CHECKING:
    from kubecluster import Cluster, Said

Json = dict[str, Any]
BIN = Path(sys.executable).parent


def job(name: str, command: str = "true", **spec: Any) -> Json:
    """A Job with one container `main` that runs a shell command.

    `pod` and `container` are merged into those.
    """
    pod, container = spec.pop("pod", {}), spec.pop("container", {})
    main = {"name": "main", "image": "busybox:1", "command": ["sh", "-c", command], **container}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [main], **pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def indexed(name: str, completions: int, **spec: Any) -> Json:
    """The same with indexes; four at once unless told."""
    return job(name, completionMode="Indexed", completions=completions, **{"parallelism": 4, **spec})


def shards(folder: Path, count: int, samples: int = 2) -> str:
    """Small shards; the spec that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        with TarWriter(str(folder / f"in-{number}.tar")) as writer:
            for each in range(samples):
                writer.write({"__key__": f"{number}-{each}", "txt": f"{number}"})
    return f"{folder}/in-{{0..{count - 1}}}.tar"


def manifest(kubetpl: Callable[..., Said], name: str, command: str, spec: str, out: Path, *more: str) -> str:
    """What kubetpl indexed prints."""
    words = ("-n", name, "-I", "host:1", "-c", command, "--shards", spec, "-O", out, "--max-failed", "9", *more)
    said = kubetpl("indexed", *words)
    assert said.code == 0, said.err
    return said.out


def run_pods(cluster: Cluster, name: str, folder: Path) -> dict[int, int]:
    """Run the container of a Job once for each of its pods, one after the other, as a process:
    their exit codes.

    Its pods and its status in the cluster are those that a kubelet and a Job controller would
    write.
    """
    spec = cluster.get("jobs", name)["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    paths = {}
    for mount in container.get("volumeMounts", ()):
        volume = next(each for each in pod["volumes"] if each["name"] == mount["name"])
        paths[mount["mountPath"]] = _volume(cluster, volume, folder / f"{name}-{mount['name']}")

    def here(text: str) -> str:
        for path, real in paths.items():
            text = text.replace(path, str(real))
        return text

    is_indexed = spec["completionMode"] == "Indexed"
    codes = {}
    for index in range(int(spec["completions"])):
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder), "JOB_COMPLETION_INDEX": str(index)}
        for each in container.get("env", ()):
            env[each["name"]] = (
                here(each["value"]) if "value" in each else "1" if "CPUS" in each["name"] else str(index)
            )
        words = [here(substitute(each, env)) for each in (*container["command"], *container.get("args", ()))]
        if words[0] in ("tarkit", "tarproc") and warmprogram.can_run(env):
            ended = warmprogram.run(words, folder, env, None)
        else:
            ended = subprocess.run(words, env=env, cwd=folder, capture_output=True, check=False)
        codes[index], text = ended.returncode, (ended.stdout + ended.stderr).decode("utf-8", "replace")
        log = text if cluster.server is not None else None
        cluster.add_pod(name, index if is_indexed else None, code=codes[index], message=text[-2048:], log=log)
    if is_indexed:
        cluster.end_indexes(name, codes)
    else:
        failed = sum(map(bool, codes.values()))
        cluster.set_job(name, "failed" if failed else "complete", succeeded=len(codes) - failed, failed=failed)
    return codes


def _volume(cluster: Cluster, volume: Json, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    if "configMap" in volume:
        data = cluster.get("configmaps", volume["configMap"]["name"])
        for key, content in (data.get("binaryData") or {}).items():
            (folder / key).write_bytes(base64.b64decode(content))
    return folder
