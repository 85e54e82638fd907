"""The life of one pod on the node: volumes, images, containers, restarts, the end, deletion."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import apideletion
from apierrors import ApiError
from apiquantity import amount
from apiresources import PODS
from apiservice import Manner
from apistore import Json, stamp
from podcontainer import Container, Ended, find_program
from podenv import ConfigError, environment, expand
from podimages import entrypoint, pull_error
from podlogs import ContainerLog
from podsandbox import MemoryGroup, Sandbox
from podstatus import PodStatus
from podvolumes import MountError, mounts, prepare

if TYPE_CHECKING:
    from processkubelet import ProcessKubelet

_RETRY = 0.2


class PodRun:
    """A thread that runs a pod until it ends or is deleted."""

    def __init__(self, kubelet: ProcessKubelet, pod: Json) -> None:
        self.kubelet, self.api = kubelet, kubelet.api
        self.pod = pod
        self.namespace, self.name, self.uid = (pod["metadata"][key] for key in ("namespace", "name", "uid"))
        self.folder = kubelet.folder / self.uid
        self.logs: dict[str, ContainerLog] = {}
        self.before: dict[str, ContainerLog] = {}
        self.status = PodStatus(self.api, pod)
        self.waiting: dict[str, str] = {}
        self._kill = threading.Event()
        self._grace = 30.0
        self._abandoned = False
        self._thread = threading.Thread(target=self._main, name=f"pod-{self.name}")
        self._thread.start()

    def stop(self, grace: float, abandon: bool = False) -> None:
        """SIGTERM, `grace` seconds, SIGKILL. `abandon`: write nothing down any more (the whole cluster ends)."""
        self._grace = min(self._grace, grace) if self._kill.is_set() else grace
        self._abandoned = self._abandoned or abandon
        self._kill.set()

    def join(self) -> None:
        self._thread.join()

    def say(self, reason: str, message: str, kind: str = "Normal", container: str = "") -> None:
        field = f"spec.containers{{{container}}}" if container else ""
        if not self._abandoned:
            self.kubelet.event(self.pod, reason, message, kind, field)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A pod that is deleted without grace is gone while its containers still run: that ends them, quietly."""
        try:
            yield
        except ApiError as error:
            if error.reason != "NotFound":
                self.kubelet.failures.append(f"pod {self.name}: {error}")
        except Exception as error:
            self.kubelet.failures.append(f"pod {self.name}: {type(error).__name__}: {error}")

    def _main(self) -> None:
        try:
            with self._guarded():
                self._live()
        finally:
            for log in [*self.logs.values(), *self.before.values()]:
                log.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(ApiError):
                self._gone()

    def _gone(self) -> None:
        """After the last status: the object itself, if it is to go.

        That is asked of the object: it may be deleted just as its containers end, before the kubelet has told this run.
        """
        with self.api.store.lock:
            live = self.api.store.find(PODS, self.namespace, self.name)
            if self._abandoned or live is None or not live["metadata"].get("deletionTimestamp"):
                return
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            apideletion.delete(self.api, PODS, self.namespace, self.name, options, Manner())

    def _live(self) -> None:
        self.folder.mkdir(parents=True)
        self.status.creating()
        volumes = self._volumes()
        if volumes is None:
            return self.status.never_ran()
        for container in self.pod["spec"].get("initContainers", []):
            ended = self._one(container, volumes, "initContainers")
            if ended is None or ended.code:
                return self.status.never_ran() if ended is None else self.status.over(None)
        self.status.initialized()
        ends: dict[str, Ended | None] = {}
        threads = []
        for container in self.pod["spec"]["containers"]:

            def run(container: Json = container) -> None:
                ends[container["name"]] = None
                with self._guarded():
                    ends[container["name"]] = self._one(container, volumes, "containers")

            threads.append(threading.Thread(target=run))
            threads[-1].start()
        for thread in threads:
            thread.join()
        if not self._abandoned:
            self.status.over(list(ends.values()))

    def _volumes(self) -> dict[str, Path] | None:
        """Waits until all volumes can be had; None when the pod is deleted meanwhile."""
        needs = any(container.get("volumeMounts") for container in self.pod["spec"]["containers"])
        while not self._kill.is_set():
            try:
                if needs and not self.kubelet.unshare:
                    raise MountError("the stand-in cannot mount anything here: no root and no user namespaces")
                return prepare(self.api.store, self.pod, self.folder / "volumes")
            except MountError as error:
                self.say("FailedMount", str(error), "Warning")
            self._kill.wait(_RETRY)
        return None

    def _one(self, spec: Json, volumes: dict[str, Path], kind: str) -> Ended | None:
        """Runs a container, again and again if its pod says so. None: it never started and never will."""
        policy, restarts = self.pod["spec"]["restartPolicy"], 0
        if kind == "initContainers" and policy == "Always":
            policy = "OnFailure"
        while True:
            ended = self._attempt(spec, volumes, restarts)
            done = ended is None or policy == "Never" or (policy == "OnFailure" and ended.code == 0)
            if done or self._kill.is_set():
                return ended
            restarts += 1
            said = (
                f"Back-off restarting failed container {spec['name']} in pod {self.name}_{self.namespace}({self.uid})"
            )
            self.say("BackOff", said, "Warning", spec["name"])
            delay = min(self.kubelet.backoff * 30, self.kubelet.backoff * 2 ** (restarts - 1))
            self.status.waiting(spec["name"], "CrashLoopBackOff", said, restarts, ended)
            if self._kill.wait(delay):
                return ended

    def _attempt(self, spec: Json, volumes: dict[str, Path], restarts: int) -> Ended | None:
        name = spec["name"]
        env = self._ready(spec)
        if env is None:
            return None
        known = dict(env)
        words = [expand(one, known) for one in spec.get("command") or entrypoint(spec["image"])]
        words += [expand(one, known) for one in spec.get("args", [])]
        sandbox = self._sandbox(spec, volumes, env, restarts)
        if not words or not find_program(words[0], env["PATH"], sandbox):
            return self._start_error(spec, words)
        if name in self.logs:
            self.before[name] = self.logs[name]
        log = self.logs[name] = ContainerLog()
        limit = spec.get("resources", {}).get("limits", {}).get("memory")
        memory = MemoryGroup(f"standin-{os.getpid()}-{uuid.uuid4().hex[:12]}", int(amount(limit)) if limit else None)
        try:
            container = Container(words, env, spec, log, memory, sandbox, self.kubelet.unshare or [])
        except OSError:
            memory.remove()
            raise
        try:
            self.say("Created", f"Created container: {name}", container=name)
            self.say("Started", f"Started container {name}", container=name)
            self.status.started(name, container.started, restarts)
            self._watch(container, name)
        finally:
            ended = container.end()
            log.close()
        if not self._abandoned:
            self.status.ended(name, ended, restarts)
        return ended

    def _ready(self, spec: Json) -> dict[str, str] | None:
        """Waits for the image and for what the environment refers to; None when the pod is deleted meanwhile."""
        name, image, times = spec["name"], spec["image"], 0
        while not self._kill.is_set():
            error = pull_error(image)
            if error is None:
                try:
                    env = environment(
                        self.api.store, self.pod, spec, self.kubelet.node, self.kubelet.base_env(self.pod)
                    )
                    said = f'Container image "{image}" already present on machine and can be accessed by the pod'
                    self.say("Pulled", said, container=name)
                    return env
                except ConfigError as problem:
                    self.waiting[name] = "CreateContainerConfigError"
                    self.status.waiting(name, "CreateContainerConfigError", str(problem))
                    self.say("Failed", f"Error: {problem}", "Warning", name)
            else:
                self._no_image(name, image, error, times)
            times += 1
            self._kill.wait(_RETRY)
        return None

    def _no_image(self, name: str, image: str, error: tuple[str, str], times: int) -> None:
        """ErrImagePull and ImagePullBackOff in turn, as a kubelet shows it."""
        reason, message = error
        if reason == "InvalidImageName":
            self.status.waiting(name, reason, message)
            self.say("InspectFailed", message, "Warning", name)
            self.say("Failed", f"Error: {reason}", "Warning", name)
            self.waiting[name] = reason
            return
        if times == 0:
            self.say("Pulling", f'Pulling image "{image}"', container=name)
            self.say("Failed", f'Failed to pull image "{image}": {message}', "Warning", name)
            self.say("Failed", "Error: ErrImagePull", "Warning", name)
            self.status.waiting(name, "ErrImagePull", message)
        elif times == 1:
            self.say("BackOff", f'Back-off pulling image "{image}"', "Normal", name)
            self.say("Failed", "Error: ImagePullBackOff", "Warning", name)
            self.status.waiting(name, "ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {message}')
        self.waiting[name] = "trying and failing to pull image"

    def _sandbox(self, spec: Json, volumes: dict[str, Path], env: dict[str, str], restarts: int) -> Sandbox | None:
        if not self.kubelet.unshare:
            return None
        folder = self.folder / f"{spec['name']}-{restarts}"
        folder.mkdir()
        sandbox = Sandbox(
            folder,
            mounts(spec, volumes, self.pod, env),
            self.kubelet.shared,
            env["HOSTNAME"],
            bool(spec.get("securityContext", {}).get("readOnlyRootFilesystem")),
            spec.get("terminationMessagePath") or "/dev/termination-log",
            self.kubelet.other_mounts,
        )
        sandbox.message_file.touch()
        return sandbox

    def _start_error(self, spec: Json, words: list[str]) -> Ended:
        word = words[0] if words else ""
        said = (
            f'exec: "{word}": executable file not found in $PATH'
            if "/" not in word
            else f'exec: "{word}": stat {word}: no such file or directory'
        )
        if not words:
            said = "no command specified"
        message = (
            f"failed to create containerd task: failed to create shim task: OCI runtime create failed: {said}: unknown"
        )
        self.say("Failed", f"Error: {message}", "Warning", spec["name"])
        ended = Ended(128, "StartError", message, "1970-01-01T00:00:00Z", stamp())
        self.logs.setdefault(spec["name"], ContainerLog()).close()
        self.status.ended(spec["name"], ended, 0)
        return ended

    def _watch(self, container: Container, name: str) -> None:
        """Until the process has ended, by itself or because the pod is to go or has run too long."""
        deadline = self.pod["spec"].get("activeDeadlineSeconds")
        began = time.monotonic()
        while not container.wait(0.1):
            if deadline is not None and time.monotonic() - began > deadline and not self._kill.is_set():
                container.kill()
            if not self._kill.is_set():
                continue
            self.say("Killing", f"Stopping container {name}", container=name)
            container.terminate()
            told = time.monotonic()
            while not container.wait(0.05):
                # A second deletion may shorten the grace.
                if time.monotonic() - told >= self._grace:
                    container.kill()
