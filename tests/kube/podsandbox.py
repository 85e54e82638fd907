"""A process with a root of its own: private mounts, an overlay over the host, its own process ids, and a memory limit.

Everything is mounted inside a private mount namespace on a tmpfs that lives as long as the process: nothing is left on
the host. As in a real container the command is process 1: a SIGTERM for which it has no handler does nothing, and when
it ends the kernel ends all that it started. Network and users are those of the host: runAsUser is not honoured (a
test's folders belong to who runs the test).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from podvolumes import Mount

_SKIPPED = ("/proc", "/sys", "/dev", "/run")
_KEPT_KINDS = {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "securityfs", "tracefs", "debugfs"}
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def unshare_command() -> list[str] | None:
    """How a private mount namespace is to be had here: as root, by a user namespace, or not at all (None)."""
    probe = (
        "set -e; mount -t tmpfs tmpfs {0}; mkdir {0}/u {0}/w {0}/m; "
        "mount -t overlay overlay -o lowerdir=/,upperdir={0}/u,workdir={0}/w {0}/m; mount -t proc proc {0}/m/proc"
    )
    for more in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *more, "--mount", "--uts", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        if shutil.which("setpriv"):
            # So that a killed test run takes its pods with it.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError):
            done = subprocess.run(
                [*command, "/bin/sh", "-c", probe.format(shlex.quote(folder))], capture_output=True, check=False
            )
            if done.returncode == 0:
                return command
    return None


def chroot_command() -> str:
    """Where chroot is: Debian has it in a folder that is not on the PATH of ordinary users."""
    folders = [*os.get_exec_path(), "/usr/sbin", "/sbin"]
    return shutil.which("chroot", path=os.pathsep.join(folders)) or "chroot"


def other_mounts() -> list[str]:
    """Mounted folders of the host that an overlay of / does not show."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind = line.split()[:3]
        place = place.encode().decode("unicode_escape")
        inside = any(place == one or place.startswith(one + "/") for one in _SKIPPED)
        if place != "/" and not inside and kind not in _KEPT_KINDS and os.path.isdir(place):
            found.append(place)
    return found


@dataclass
class Sandbox:
    """What one container sees."""

    folder: Path
    mounts: list[Mount]
    shared: list[Path]
    hostname: str
    read_only: bool
    message_path: str
    extra: list[str] = field(default_factory=list)

    @property
    def message_file(self) -> Path:
        return self.folder / "termination-log"

    def script(self, argv: list[str], env: dict[str, str], workdir: str, procs: str) -> str:
        """The shell commands that build it and become the container's process."""
        base, root = str(self.folder / "base"), str(self.folder / "base" / "root")
        q = shlex.quote
        lines = ["set -e"]
        if procs:
            lines.append(f"echo 0 > {q(procs)}")
        lines += [
            f"mkdir -p {q(base)}",
            f"mount -t tmpfs tmpfs {q(base)}",
            f"mkdir {q(base)}/up {q(base)}/work {q(root)}",
            f"mount -t overlay overlay -o lowerdir=/,upperdir={q(base)}/up,workdir={q(base)}/work {q(root)}",
            f"mount -t proc proc {q(root)}/proc",
            f"mount --rbind /sys {q(root)}/sys",
            f"mount -t tmpfs tmpfs {q(root)}/dev",
            f"mkdir {q(root)}/dev/shm {q(root)}/dev/pts",
            f"ln -s /proc/self/fd {q(root)}/dev/fd",
        ]
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            lines.append(f"ln -s /proc/self/fd/{number} {q(root)}/dev/{name}")
        for name in _DEVICES:
            lines.append(f"touch {q(root)}/dev/{name}; mount --bind /dev/{name} {q(root)}/dev/{name}")
        for place in [*self.extra, *map(str, self.shared)]:
            # What was mounted when the cluster started may be gone: a test's own mount, say.
            lines.append(f"if [ -d {q(place)} ]; then mkdir -p {q(root + place)}")
            lines.append(f"mount --rbind {q(place)} {q(root + place)}; fi")
        for mount in self.mounts:
            lines += self._bind(mount, root)
        lines.append(f"hostname {q(self.hostname)} 2>/dev/null || true")
        lines += self._bind(Mount(self.message_file, self.message_path, False), root)
        words = " ".join(q(f"{key}={value}") for key, value in env.items())
        # env -C fails with 125 where the folder is missing; a real runtime makes it.
        lines.append(f"mkdir -p {q(root + workdir)} 2>/dev/null || true")
        if self.read_only:
            lines.append(f"mount -o remount,ro {q(root)}")
        lines.append(f"exec {q(chroot_command())} {q(root)} env -i -C {q(workdir)} {words} {' '.join(map(q, argv))}")
        return "\n".join(lines)

    @staticmethod
    def _bind(mount: Mount, root: str) -> list[str]:
        source, target = shlex.quote(str(mount.source)), shlex.quote(root + mount.target)
        make = f"mkdir -p {target}"
        if mount.source.is_file():
            make = f"mkdir -p {shlex.quote(os.path.dirname(root + mount.target))}; touch {target}"
        lines = [f"{make}; mount --bind {source} {target}"]
        return lines + [f"mount -o remount,bind,ro {target}"] if mount.read_only else lines


class MemoryGroup:
    """A memory cgroup (v2 or v1) for one container; `limit` in bytes or None. Without cgroups memory is polled."""

    _V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")

    @classmethod
    def remove_stale(cls) -> None:
        """What a killed test run left: empty groups that carry the number of its process."""
        for parent in (cls._V2, cls._V1):
            for folder in parent.glob("standin-*-*"):
                if not Path("/proc", folder.name.split("-")[1]).exists():
                    with contextlib.suppress(OSError):
                        folder.rmdir()

    def __init__(self, name: str, limit: int | None) -> None:
        self.limit, self.killed = limit, False
        self._folder: Path | None = None
        v2 = "memory" in _words(self._V2 / "cgroup.subtree_control")
        parent = self._V2 if v2 else self._V1
        if not v2 and not (parent / "memory.limit_in_bytes").exists():
            return
        folder = parent / name
        try:
            folder.mkdir()
            if limit is not None:
                (folder / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(str(limit))
            if v2:
                (folder / "memory.oom.group").write_text("1")
            self._folder = folder
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
        self._events = folder / ("memory.events" if v2 else "memory.oom_control")

    @property
    def procs(self) -> str:
        """The file to which a process writes itself, "" without a cgroup."""
        return str(self._folder / "cgroup.procs") if self._folder else ""

    def members(self) -> list[int]:
        return [int(pid) for pid in _words(self._folder / "cgroup.procs")] if self._folder else []

    def out_of_memory(self, group: int) -> bool:
        """True once the limit has killed something (the whole container then goes, as with memory.oom.group)."""
        if self.limit is None or self.killed:
            return self.killed
        if self._folder:
            words = _words(self._events)
            at = words.index("oom_kill") if "oom_kill" in words else -1
            self.killed = at >= 0 and int(words[at + 1]) > 0
        else:
            self.killed = _resident(group) > self.limit
        return self.killed

    def remove(self) -> None:
        """Kills what is still in it, and takes it away."""
        for _ in range(200):
            if not self._folder:
                return
            for pid in self.members():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                self._folder.rmdir()
                return
            except OSError:
                # Killed processes take a moment to leave.
                time.sleep(0.01)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _resident(group: int) -> int:
    """Bytes of memory of a process group."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total
