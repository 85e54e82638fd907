"""What a kubelet does for a pod, here: its folders, and its container as a process group (and session) of its own.

Nothing is mounted: words and values that are a mount path, or lie in one, are rewritten; so are those that are the
address of a service. A script is left alone, whatever it names: changed text would be another command, with other
done records. Exit codes are as a kubelet gives them: a signal is 128 plus its number, and so is 137 for more memory
than the limit."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tarkit.errors import EXIT_CANNOT_RUN, EXIT_NOT_FOUND, CommandNotRunnableError, UsageError, printable, quoted
from tarkit.k8s.apiobject import Object, name_of, part_of, spec_of
from tarkit.k8s.local.env import LocalNode, Sources, container_env
from tarkit.k8s.local.policy import PodEnd
from tarkit.k8s.local.processes import MARK, Watchdog, memory_of, signal_group
from tarkit.k8s.podfields import names_left, substitute
from tarkit.k8s.quantity import parse_quantity

_OPTION = re.compile(r"(@|--?[A-Za-z][\w-]*=@?)(/.*)", re.DOTALL)
_SCRIPT = re.compile(r"\s")
"""More than one word is not a path."""
_DEFAULT_GRACE = 30.0
_TAIL_BYTES = 2048
_TAIL_LINES = 80
_START_ERROR = 128
_SOURCE_KINDS = (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"))


class Process(NamedTuple):
    """A container as a process to start. memory: its limit in bytes, or None."""

    name: str
    words: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    memory: int | None


class PodFolders(NamedTuple):
    """Where a pod's files are. own: its folder, for what it writes. files: of ConfigMaps and Secrets, the same path for
    all pods of its Job, as it may be part of a command and so of done records. claims: of all pods of the run."""

    own: str
    files: str
    claims: str


class MountMap:
    """Mount paths of one container -> folders here. Longest first, as mounts lie in one another."""

    def __init__(self, mounts: Mapping[str, str]) -> None:
        named = ((path.rstrip("/") or "/", real) for path, real in mounts.items())
        self._mounts = sorted(named, key=lambda entry: len(entry[0]), reverse=True)

    def word(self, text: str) -> str:
        """A word of a command, or a value of a variable: ``/scratch/x``, ``@/scratch/x``, ``--opt=/scratch/x``."""
        if _SCRIPT.search(text):
            return text
        match = _OPTION.fullmatch(text)
        return match[1] + self.path(match[2]) if match else self.path(text)

    def path(self, text: str) -> str:
        """The same file, as it is called here."""
        for mount, real in self._mounts:
            if text == mount or text.startswith(mount + "/"):
                return real + text[len(mount) :]
        return text

    def named_in(self, script: str) -> Iterator[str]:
        """Mount paths that a script names."""
        for mount, _ in self._mounts:
            if _SCRIPT.search(script) and re.search(rf"(?<![\w./-]){re.escape(mount)}(?![\w-])", script):
                yield mount


def process_of(pod: Object, folders: PodFolders, sources: Sources, node: LocalNode) -> Process:
    """A pod's container; the folders of its volumes are made. What it needs and does not find is an error."""
    name, spec = name_of(pod), spec_of(pod)
    folder = os.path.join(folders.own, "work")
    os.makedirs(folder, 0o700, exist_ok=True)
    volumes = {
        str(each.get("name")): _folder_of(each, folders, sources, node, printable(name))
        for each in spec.get("volumes") or ()
    }
    container = spec["containers"][0]
    where = f"container {printable(str(container.get('name')))} of {printable(name)}"
    variables = container_env(pod, container, sources, node, where)
    mounts = _mounts_of(container, volumes, variables, where)
    env = {**node.env, "HOSTNAME": str(spec.get("hostname") or name)}
    env.update((key, sources.address(mounts.word(value))) for key, value in variables.items())
    env[MARK] = os.path.abspath(folder)
    words, cwd = _command_of(container, mounts, variables, folder, env.get("PATH"), where)
    words = [sources.address(word) for word in words]
    memory = part_of(container, "resources", "limits").get("memory")
    limit = None if memory is None else int(parse_quantity(str(memory)))
    return Process(str(container.get("name")), words, env, cwd, limit)


def _command_of(
    container: Object, mounts: MountMap, variables: Mapping[str, str], folder: str, path: str | None, where: str
) -> tuple[list[str], str]:
    """Its words, and the folder in which it starts. path: where programs are looked up."""
    if not container.get("command"):
        raise UsageError(f"{where} has no command; what its image would run is not known here, so write it out")
    # As a kubelet does it: what comes with the image or this machine is not known to $(NAME).
    words = [mounts.word(substitute(word, variables)) for word in command_words(container)]
    if any("\0" in each for each in (*words, *variables, *variables.values())):
        raise UsageError(f"{where}: its command or a variable has a zero byte in it, where Linux ends it; leave it out")
    wanted = container.get("workingDir")
    cwd = mounts.path(str(wanted)) if wanted else folder
    if not os.path.isdir(cwd):
        cwd = folder
    if shutil.which(os.path.join(cwd, words[0]) if "/" in words[0] else words[0], path=path) is None:
        raise CommandNotRunnableError(
            f"{where}: {printable(words[0])} is not on this machine; images are not used here, so install it",
            EXIT_NOT_FOUND,
        )
    return words, cwd


def command_words(container: Object) -> list[str]:
    """Command and arguments."""
    return [str(each) for key in ("command", "args") for each in container.get(key) or ()]


def _mounts_of(container: Object, volumes: Mapping[str, str], variables: Mapping[str, str], where: str) -> MountMap:
    mounts: dict[str, str] = {}
    for mount in container.get("volumeMounts") or ():
        name = str(mount.get("name"))
        if name not in volumes:
            raise UsageError(f"{where} mounts the volume {printable(name)}, which the pod does not have")
        real = volumes[name]
        expression = mount.get("subPathExpr") or ""
        if unknown := names_left(expression, variables):
            raise UsageError(f"{where}: subPathExpr names {printable(unknown[0])}, a variable that it does not have")
        if below := mount.get("subPath") or substitute(expression, variables):
            real = os.path.normpath(os.path.join(real, below))
            if os.path.relpath(real, volumes[name]).split(os.sep)[0] == os.pardir:
                found = f"the subPath {quoted(below)} leaves the volume {printable(name)}"
                raise UsageError(f"{where}: {found}; write it without ..")
            if not os.path.exists(real):
                os.makedirs(real)
        mounts[str(mount.get("mountPath"))] = real
    return MountMap(mounts)


def _folder_of(volume: Object, folders: PodFolders, sources: Sources, node: LocalNode, pod: str) -> str:
    """The folder of a volume, which is made: empty, or with the files of a ConfigMap or Secret."""
    name = str(volume.get("name"))
    where = f"{pod}: volume {printable(name)}"
    if name in node.volumes:
        return node.volumes[name]
    if path := part_of(volume, "hostPath").get("path"):
        return str(path)
    if (claim := part_of(volume, "persistentVolumeClaim").get("claimName")) in sources.claims:
        folder = os.path.join(folders.claims, str(claim))
        os.makedirs(folder, 0o700, exist_ok=True)
        return folder
    source = next((each for each in _SOURCE_KINDS if volume.get(each[0]) is not None), None)
    if source is None and "emptyDir" not in volume:
        kind = printable(next((key for key in volume if key != "name"), "none"))
        raise UsageError(f"{where} is a {kind}, which is not here; give its folder with --volume NAME=FOLDER")
    folder = os.path.join(folders.own, "volumes", name) if source is None else os.path.join(folders.files, name)
    os.makedirs(folder, 0o700, exist_ok=True)
    if source is not None:
        key, kind, name_field = source
        reference = volume[key]
        named = str(reference.get(name_field) or reference.get("name"))
        content = sources.content(kind, named, reference, where)
        items = reference.get("items") or [{"key": each, "path": each} for each in content]
        missing = next((str(item.get("key")) for item in items if item.get("key") not in content), None)
        if missing is not None and not reference.get("optional"):
            raise UsageError(f"{where} of {kind} {named}: no key {printable(missing)}")
        files = {str(item.get("path") or ""): content[item["key"]] for item in items if item.get("key") in content}
        # Everything is its owner's here; of the mode only matters whether it can be executed.
        _write(folder, files, 0o600 | 0o100 & int(reference.get("defaultMode") or 0))
    return folder


def _write(folder: str, files: Mapping[str, bytes], mode: int) -> None:
    """Files that all pods of a Job may read at once: the same content each time, so written once."""
    for path, content in files.items():
        full = os.path.normpath(os.path.join(folder, path))
        if not full.startswith(folder + os.sep):
            raise UsageError(f"{quoted(path)}: a file of a volume must be inside of it")
        if os.path.exists(full):
            continue
        os.makedirs(os.path.dirname(full), 0o700, exist_ok=True)
        with open(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(content)


class LocalPod:
    """A pod that runs. Poll it until it gives its end.
    pod: its name, grace and deadline count. process: its container. log: path of its log. reason: Completed, Error,
    OOMKilled, StartError or DeadlineExceeded, once it has ended."""

    def __init__(self, pod: Object, process: Process, log: str, watchdog: Watchdog, now: float) -> None:
        self.name = name_of(pod)
        self.reason = ""
        self.memory_limit = process.memory
        self._process = process
        self._log = log
        self._watchdog = watchdog
        grace, deadline = (spec_of(pod).get(key) for key in ("terminationGracePeriodSeconds", "activeDeadlineSeconds"))
        self._grace = _DEFAULT_GRACE if grace is None else float(grace)
        self._deadline = float("inf") if deadline is None else now + deadline
        self._begin_at = now
        self._kill_at: float | None = None
        self._over_memory = self._over_time = False
        self._popen: subprocess.Popen[bytes] | None = None

    def poll(self, now: float) -> PodEnd | None:
        """Start it if that is due; its end, once all has ended."""
        if self._popen is not None and _has_ended(self._popen):
            return self._ended(self.close())
        if now >= self._deadline:
            self._over_time = True
            self.terminate(now)
        if self._kill_at is not None and now >= self._kill_at:
            self.kill()
        if self._popen is not None:
            return None
        if self._kill_at is not None:
            return self._ended(-signal.SIGTERM)
        return self._start() if now >= self._begin_at else None

    def _start(self) -> PodEnd | None:
        process = self._process
        with open(self._log, "ab") as stream:
            try:
                self._popen = subprocess.Popen(
                    process.words, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=process.cwd,
                    env=process.env, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                stream.write(f"{process.words[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
                known = {FileNotFoundError: EXIT_NOT_FOUND, PermissionError: EXIT_CANNOT_RUN}
                self.reason = "StartError"
                return PodEnd(self.name, {process.name: known.get(type(error), _START_ERROR)})
        self._watchdog.watch(self._popen.pid)
        return None

    def close(self) -> int:
        """Kill what is alive, and wait for it: nothing is left of the pod afterwards. The status of its process."""
        if self._popen is None:
            return 0
        # Before it is reaped, no other process can have this number.
        signal_group(self._popen.pid, signal.SIGKILL, self._process.env[MARK])
        status = self._popen.wait()
        self._watchdog.watch(self._popen.pid, "-")
        self._popen = None
        return status

    def _ended(self, status: int) -> PodEnd:
        killed = self._over_memory and status == -signal.SIGKILL
        self.reason = "OOMKilled" if killed else "Error" if status else "Completed"
        if self._over_time:
            # It has failed, also if its command ends with 0 when it is told to end.
            self.reason, status = "DeadlineExceeded", status or -signal.SIGTERM
        return PodEnd(
            self.name, {self._process.name: 128 - status if status < 0 else status}, over_time=self._over_time
        )

    def restart(self, now: float, delay: float) -> None:
        """Start its container again in a while, in the same folders."""
        self._begin_at = now + delay
        self._kill_at = None
        self._over_memory = False

    def age(self, now: float) -> float:
        """Seconds since its container was to be started last."""
        return now - self._begin_at

    def terminate(self, now: float) -> None:
        """Ask all processes to end; those that do not are killed after the time of grace."""
        if self._kill_at is None:
            self._kill_at = now + self._grace
            self.kill(signal.SIGTERM)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End all processes now, or ask them to."""
        if self._popen is not None:
            signal_group(self._popen.pid, number)

    def check_memory(self, table: Mapping[int, tuple[int, int]]) -> None:
        """End it if it has more memory than its limit, as the kernel does in a cluster. table: all processes."""
        limit = self.memory_limit
        if limit is not None and self._popen is not None and memory_of(self._popen.pid, limit, table) > limit:
            self._over_memory = True
            self.kill()

    def last_words(self) -> str:
        """The end of its log, as it goes to a pod's status: at most 80 lines and 2048 bytes."""
        with open(self._log, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-_TAIL_LINES:])


def _has_ended(popen: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):
        return popen.poll() is not None
    return os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
