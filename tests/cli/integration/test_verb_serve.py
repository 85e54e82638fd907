"""tarkit serve: its exit codes, its state, what it prints."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shardservice import Caller, Service
from tarkit.cli.shared.serviceprogress import show_outcome, watch_service
from tarproc_support import numbered, tar_bytes

from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal, change_of, declaration_of
from tarkit.service.leases import LeaseRules
from tarkit.service.ledger import Ledger
from tarkit.service.progress import DataSetProgress, DeadShard
from tarkit.service.serve import NO_STATE, ServeSettings, _withdraw, serve

grpc = pytest.importorskip("grpc", reason="the shard service needs grpcio")

Run = Callable[..., Any]
SIZED = ("--dataset", "iris=22", "--records-per-shard", "8")
QUICK = ("--drain", "0.1")
"""For runs that wait for no worker at the end."""


def drain(address: str, worker: str = "a") -> list[tuple[str, int, int]]:
    """All that a worker is handed; it reports each shard, and is told of the end."""
    got = []
    with Caller(address) as call:
        reply = call("Exchange", worker=worker, want=1)
        while not reply.end:
            lease = reply.leases[0]
            got.append((lease.name, lease.start, lease.end))
            reply = call("Exchange", worker=worker, want=1, reports=[{"token": lease.token}])
    return got


def test_complete_and_started_again(tmp_path: Path) -> None:
    with Service(tmp_path, *SIZED, "--epochs", "2", "--drain", "0.2") as running:
        assert drain(running.address) == [("iris", 0, 8), ("iris", 8, 16), ("iris", 16, 22)] * 2
        code, out, err = running.end()
    assert (code, out) == (0, ["iris: shards: done 6, dead 0; records done 44; epochs begun 2"])
    assert err[0] == f"tarkit serve: listening on {running.address}, state in tarkit-serve.state"
    assert err[1] == "tarkit serve: all data sets have ended; workers get this answer for 0.2 s at most"
    assert {path.name for path in tmp_path.iterdir()} == {"tarkit-serve.state", "tarkit-serve.state-ack"}
    with Service(tmp_path, *SIZED, "--epochs", "2", "--drain", "300") as running:
        # A worker that was not told before is told now.
        assert drain(running.address, "late") == []
        running.process.terminate()
        assert running.end()[0] == 0
    # For as long as it was asked to, and no longer.
    with Service(tmp_path, *SIZED, "--epochs", "2", "--drain", "0.2") as running:
        code, out, err = running.end()
    assert err[-1] == (
        "tarkit serve: in tarkit-serve.state, all data sets have ended before; workers get this answer for 0.2 s; to "
        "begin anew, give another --state"
    )
    assert (code, out) == (0, ["iris: shards: done 6, dead 0; records done 44; epochs begun 2"])


@pytest.mark.parametrize(("before", "shown"), [("uid-1", "in run uid-1"), ("", "in a run without an identity")])
def test_a_state_that_has_ended_in_another_run_is_refused(tmp_path: Path, run: Run, before: str, shown: str) -> None:
    state = str(tmp_path / "state")

    def write(done: int) -> None:
        """A state of the run before, with so many of its 3 shards done."""
        ledger = Ledger(DataSet("iris", 22, 8))
        ledger.run = before
        for token in range(1, done + 1):
            ledger.lease("a", 0.0)
            ledger.complete(token, 0.0)
        with closing(Journal(state)) as journal:
            journal.write([declaration_of(ledger.dataset), change_of(ledger)])

    def serve(name: str) -> Any:
        return run("tarkit", "serve", *SIZED, *QUICK, "--state", state, "--listen", "127.0.0.1:0", "--run", name)

    write(3)
    assert serve(before).code == 0
    result = serve("uid-2")
    assert (result.code, result.stderr) == (
        2,
        f"tarkit: {state}: all data sets have ended, {shown}, and run uid-2 would hand out nothing; give another "
        "--state, or move this one away\n",
    )
    # What has not ended is resumed, by the run that does so.
    write(2)
    with closing(Journal(state)) as journal:
        assert Dispatcher(journal, run="uid-2").ledgers["iris"].run == "uid-2"


def test_a_service_whose_workers_are_gone_ends_with_1_and_goes_on_from_its_state(tmp_path: Path) -> None:
    words = (*SIZED, "--state", "state", "--lease-ceiling", "60", *QUICK)
    with Service(tmp_path, *words, "--desertion", "0.2") as running:
        with Caller(running.address) as call:
            assert call("Exchange", worker="a", want=1).leases
        code, out, err = running.end()
    assert code == 1
    assert err[-1].endswith(
        "no worker has called for 0.2 s (--desertion), and records are left: the state is kept, and the same command "
        "resumes"
    )
    assert out == [
        "iris: aborted, as no worker has called for 0.2 s (--desertion); shards: done 0, dead 0, left 3; records "
        "done 0; epochs begun 1"
    ]
    with Service(tmp_path, *words) as running:
        assert len(drain(running.address)) == 3
        assert running.end()[0] == 0


def test_a_service_whose_workers_end_before_they_declare_a_data_set_ends_with_1(tmp_path: Path) -> None:
    words = ("--until-ended", "--state", "none", "--desertion", "0.2", "--drain", "60")
    with Service(tmp_path, *words) as running:
        assert watch_service(running.address, None, None, "worker-0", quiet=True) == 1
        assert running.end()[0] == 1


def test_a_service_of_trainers_ends_as_soon_as_each_has_seen_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that comes late.

    It does not wait for all the time that a lost one would have.
    """
    monkeypatch.setattr("tarkit.service.serve._REJOIN", 0.1)
    names = frozenset(["worker-0", "worker-1"])
    settings = ServeSettings("127.0.0.1:0", NO_STATE, drain=600.0, until_ended=True, trainers=names)
    codes = []

    def train(address: str) -> None:
        with Caller(address) as call:
            call("Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        drain(address)
        codes.extend(watch_service(address, None, None, name, quiet=True) for name in sorted(names))

    def ignored(*_: object) -> None:
        pass

    def listening(address: str, http: str) -> None:
        training.append(threading.Thread(target=train, args=(address,), daemon=True))
        training[0].start()

    training: list[threading.Thread] = []
    reporter = SimpleNamespace(listening=listening, progressed=ignored, ended=ignored, stopped=ignored)
    asyncio.run(asyncio.wait_for(serve([], settings, reporter), 120))
    training[0].join(120)
    assert codes == [0, 0]


def test_dead_shards_are_listed_and_the_code_is_3(tmp_path: Path) -> None:
    with Service(tmp_path, *SIZED, "--max-errors", "1", "--state", "none", *QUICK) as running:
        with Caller(running.address) as call:
            lease = call("Exchange", worker="a", want=1).leases[0]
            call("Exchange", worker="a", reports=[{"token": lease.token, "error": "a row has no label"}])
        assert len(drain(running.address)) == 2
        code, out, _ = running.end()
    assert code == 3
    assert out == [
        "dead iris 0-8 of epoch 1: a row has no label (1 error, 0 lost workers)",
        "iris: shards: done 2, dead 1; records done 14; epochs begun 1",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_shard_whose_workers_hang_is_listed_at_last(tmp_path: Path) -> None:
    """They are connected all the time."""
    leases = ("--lease-floor", "0.2", "--lease-ceiling", "0.4", "--max-losses", "2")
    with Service(tmp_path, "--dataset", "iris=8", *leases, "--state", "none", *QUICK) as running:
        with Caller(running.address) as call:
            attending = []
            for worker in "ab":
                attending.append(call("Attend", timeout=None, worker=worker))
                next(attending[-1])
                assert call("Exchange", worker=worker, want=1).leases[0].end == 8
            assert call("Exchange", worker="c", want=1).end
        code, out, _ = running.end()
    reason = "the worker was given no shard and reported none for 0.4 s"
    assert (code, out[0]) == (3, f"dead iris 0-8 of epoch 1: {reason} (0 errors, 2 lost workers)")


def test_dead_shards_are_listed_without_the_secrets_of_their_urls(capfd: pytest.CaptureFixture[str]) -> None:
    dead = [DeadShard(1, "https://me:c4n4ry@h/a.tar?sig=c4n4ry", 0, 4, 1, 0, "no label")]
    show_outcome([DataSetProgress("photos", 1, 1, 1, 0, 0, 0, 1, 0, True, 0, dead)])
    assert capfd.readouterr().out.splitlines()[0] == (
        "dead https://h/a.tar?sig=… 0-4 of epoch 1: no label (1 error, 0 lost workers)"
    )


def test_too_many_dead_shards_end_the_service_with_1(tmp_path: Path) -> None:
    state = ("--state", "state", "--max-errors", "1", "--max-dead")
    with Service(tmp_path, *SIZED, *state, "2", *QUICK) as running:
        with Caller(running.address) as call:
            for _ in range(2):
                lease = call("Exchange", worker="a", want=1).leases[0]
                call("Exchange", worker="a", reports=[{"token": lease.token, "error": "no such file"}])
            with pytest.raises(grpc.RpcError, match="2 dead shards, and the limit is 2: no more are"):
                call("Exchange", worker="a", want=1)
        code, out, _ = running.end()
    assert code == 1
    assert out[2:] == [
        "iris: aborted, as too many shards are dead (--max-dead); shards: done 0, dead 2, left 1; records done 0; "
        "epochs begun 1"
    ]
    # With more allowed, it goes on.
    with Service(tmp_path, *SIZED, *state, "3", *QUICK) as running:
        assert drain(running.address) == [("iris", 16, 22)]
        assert running.end()[0] == 3


def test_stopped_and_begun_again_with_the_same_data_set_alone(tmp_path: Path, run: Run) -> None:
    with Service(tmp_path, *SIZED) as running:
        with Caller(running.address) as call:
            lease = call("Exchange", worker="a", want=1).leases[0]
            call("Exchange", worker="a", reports=[{"token": lease.token}])
        running.process.terminate()
        assert running.end()[:2] == (143, ["iris: shards: done 1, dead 0, left 2; records done 8; epochs begun 1"])
    command = ("tarkit", "serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "tarkit-serve.state")
    for arguments, reason in (
        (("--dataset", "iris=23", "--records-per-shard", "8"), "size 22, not 23"),
        (("--dataset", "rose=22"), "the state is of data set 'iris', not of 'rose'"),
    ):
        result = run(*command, *arguments)
        assert (result.code, result.stdout) == (2, b"")
        assert reason in result.stderr and "give another --state" in result.stderr
    with Service(tmp_path, *SIZED, *QUICK) as running:
        assert drain(running.address) == [("iris", 8, 16), ("iris", 16, 22)]
        assert running.end()[0] == 0


def test_a_service_that_cannot_start_leaves_the_ready_file_of_the_one_that_runs(tmp_path: Path, run: Run) -> None:
    """It removed it: who waited for the file, or read the address from it, found none."""
    with Service(tmp_path, *SIZED, *QUICK) as running:
        ready = tmp_path / "ready"
        again = ("tarkit", "serve", *SIZED, "--ready-file", ready)
        state = ("--state", tmp_path / "tarkit-serve.state")
        for others, reason in (
            ((*state, "--listen", "127.0.0.1:0"), "another process uses this state"),
            (("--state", "none", "--listen", running.address), "cannot listen there: Address already in use"),
        ):
            result = run(*again, *others)
            assert (result.code, result.stdout, result.stderr.count("\n")) == (2, b"", 1) and reason in result.stderr
            assert ready.read_text().split() == [running.address]
        drain(running.address)
        assert running.end()[0] == 0
        assert not ready.exists()


def test_the_ready_file_of_a_service_that_came_later_stays(tmp_path: Path) -> None:
    (tmp_path / "ready").write_text("127.0.0.1:9\n\n")
    _withdraw(str(tmp_path / "ready"), b"127.0.0.1:8\n\n")
    assert (tmp_path / "ready").read_text() == "127.0.0.1:9\n\n"


def test_a_reader_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "reader.py").write_text(
        "from tarkit.readers.reader import AbstractDataReader\n"
        "class Words(AbstractDataReader):\n"
        "    def __init__(self, data_origin, number):\n"
        "        self.number = number\n"
        "    def read_records(self, task): yield from ()\n"
        "    def create_shards(self): return {'words': self.number}\n"
    )
    arguments = ("--custom_data_reader", "reader.py:Words", "--data_reader_params", "number=4")
    with Service(tmp_path, *arguments, "--records_per_shard", "3", "--num_epochs", "1", *QUICK) as running:
        assert drain(running.address) == [("words", 0, 3), ("words", 3, 4)]
        assert running.end()[0] == 0


def test_an_error_of_a_reader_of_ones_own_is_not_a_bug_of_tarkit(tmp_path: Path, run: Run) -> None:
    (tmp_path / "reader.py").write_text("import sqlite3\ndef Reader(data_origin): sqlite3.connect('nosuch/a.db')\n")
    result = run("tarkit", "serve", "--state", "none", "--custom_data_reader", f"{tmp_path}/reader.py:Reader")
    assert result.code == 1
    assert "reader.py:Reader could not list its shards: OperationalError: unable to open" in result.stderr
    assert "bug" not in result.stderr


def test_watch_shards_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_bytes(numbered(5)))
    (tmp_path / "b.tar").write_bytes(tar_bytes(numbered(3)))
    data = ("--data", "{a,b}.tar", "--records-per-shard", "3", "--name", "photos")
    with Service(tmp_path, *data, "--drain", "300") as running:
        command = [sys.executable, "-m", "tarkit.cli.tarkit", "serve", "--watch", running.address, "-q"]
        with Caller(running.address) as call:
            # A second worker, for whom the service waits at the end.
            call("Exchange", worker="b")
            watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert drain(running.address) == [("a.tar", 0, 3), ("a.tar", 3, 5), ("b.tar", 0, 3)]
            line = "photos: shards: done 3, dead 0; records done 8; epochs begun 1\n"
            assert watcher.communicate(timeout=120)[0] == line
            assert call("Exchange", worker="b", want=1).end
        assert (watcher.returncode, running.end()[0]) == (0, 0)


def test_data_sets_that_clients_declare(tmp_path: Path) -> None:
    with Service(tmp_path) as running:
        with Caller(running.address) as call:
            call("Declare", name="iris", size=22, records_per_shard=8, epochs=1)
        drain(running.address)
        time.sleep(0.5)
        assert running.process.poll() is None
        running.process.terminate()
        code, out, _ = running.end()
    assert (code, out) == (143, ["iris: shards: done 3, dead 0; records done 22; epochs begun 1"])


@pytest.mark.parametrize("taken", ["--listen", "--http"])
def test_a_start_that_failed_leaves_no_data_set_in_the_state(taken: str, tmp_path: Path, run: Run) -> None:
    state = str(tmp_path / "state")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = run(
            "tarkit", "serve", "--state", state, "--dataset", "iris=22", "--listen", "127.0.0.1:0", taken, address
        )
        assert result.code == 2 and "already in use" in result.stderr
    with closing(Journal(state)) as journal:
        assert journal.load(LeaseRules(), 0.0) == []


def test_files_that_were_replaced_while_no_service_ran_are_refused(tmp_path: Path, run: Run) -> None:
    """Of an epoch, some shards would be of other data.

    A file that was only touched is the same.
    """
    data = tmp_path / "a.csv"
    data.write_text("1\n2\n")
    with Service(tmp_path, "--data", str(data)) as running:
        running.kill()
        os.utime(data, (7, 7))
        running.start()
        running.kill()
        data.write_text("3\n4\n")
        with pytest.raises(
            AssertionError, match=r"a\.csv'\) was replaced since its records were counted; give another --s"
        ):
            running.start()
        assert running.process.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("--data", "nosuch.tar"), 66, "nosuch.tar"),
        (("--token-file", "nosuch"), 66, "nosuch"),
        (("--state", "nosuch/state"), 2, "nosuch/state"),
        (("--state", "state"), 65, "not the state of a shard service"),
        (("--watch", "127.0.0.1:1", "--token-file", "nosuch"), 66, "nosuch"),
        (("--watch", "50001"), 2, "'50001' is not HOST:PORT"),
        (("--watch", "127.0.0.1:99999"), 2, "is not HOST:PORT of a shard service"),
    ],
)
def test_files_that_are_missing_or_damaged(
    arguments: tuple[str, ...], code: int, reason: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").write_bytes(b"not a database" * 100)
    result = run("tarkit", "serve", *arguments)
    assert (result.code, result.stdout) == (code, b"")
    assert reason in result.stderr and result.stderr.count("\n") == 1


def test_what_does_not_speak_grpc_is_not_taken_for_a_service_that_is_away() -> None:
    from tarkit.errors import ServiceLostError
    from tarkit.service.connection import watched_progress

    def answer() -> None:
        with suppress(OSError):
            while True:
                caller, _ = listening.accept()
                with caller:
                    caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ServiceLostError, match="what listens there is not a shard service"):
            next(watched_progress(f"127.0.0.1:{listening.getsockname()[1]}", patience=0))
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_watching_nothing_ends_with_75() -> None:
    from tarkit.errors import ServiceLostError
    from tarkit.service.connection import watched_progress

    with pytest.raises(ServiceLostError, match="has not answered") as caught:
        next(watched_progress("127.0.0.1:1", patience=0))
    assert caught.value.exit_code == 75


def test_progress_lines() -> None:
    from tarkit.cli.shared.serviceprogress import progress_line

    from tarkit.service.progress import DataSetProgress, Rate

    iris = DataSetProgress(
        "iris",
        shards=100,
        epochs=3,
        epoch=2,
        todo=50,
        leased=5,
        done=140,
        dead=5,
        records=1400,
        ended=False,
        workers=4,
        epochs_done=1,
    )
    endless = DataSetProgress(
        "rose",
        shards=10,
        epochs=0,
        epoch=7,
        todo=0,
        leased=1,
        done=69,
        dead=0,
        records=690,
        ended=False,
        workers=1,
        epochs_done=6,
    )
    assert progress_line([]) == "no data set was declared yet"
    line = "iris: epoch 2 of 3, 140 of 300 shards done (48%), 5 dead, 4 workers"
    assert progress_line([iris]) == line
    assert progress_line([replace(iris, epochs_done=0)]) == line.replace("2 of 3", "1 of 3 (leased ahead to 2)")
    assert progress_line([replace(iris, rate=10.0)]) == f"{line}, 10.0 shards/s, about 0:00:15 left"
    assert progress_line([replace(endless, rate=200.0)]) == "rose: epoch 7, 69 shards done, 1 worker, 200.0 shards/s"
    times = iter([0.0, 10.0, 20.0, 130.0])
    rate = Rate(lambda: next(times))
    for done, expected in ((100, 0.0), (150, 5.0), (50, 0.0), (270, 2.0)):
        rate.add(done)
        assert rate.per_second == expected


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--dataset", "iris"), "'iris' is not NAME=SIZE"),
        (("--dataset", "iris=0"), "size is 0"),
        (("--dataset", "iris=1", "--data", "x.tar"), "--dataset goes without --data"),
        (("--reader-type", "CSV"), "--reader-type goes with --data"),
        (("--data_reader_params", "a=1"), "--custom_data_reader_params with --custom_data_reader"),
        (("--dataset", "iris=1", "--dataset", "iris=2"), "'iris' is given 2 times"),
        (("--watchers", "ps"), "'ps' is not NAME=N, such as worker=2"),
        (("--trainers", "a=1", "--trainers", "a=2"), "'a' is given 2 times; give each a name of its own"),
        (("--dataset", "iris=1", "--name", "rose"), "--name goes with --data"),
        (("--epochs", "2"), "--epochs goes with --data or --dataset; without one, clients declare"),
        (("--watch", "127.0.0.1:1"), "--state is an option of a service; --watch starts none"),
        (
            ("--lease-floor", "10", "--lease-ceiling", "5"),
            "the shortest lease (floor) is 10 s and the longest (ceiling) 5 s",
        ),
        (("--state", ""), "--state is ''; give a file, or 'none'"),
        (("--state", ":memory:"), "--state is ':memory:'; give a file"),
        (("--listen", "50001"), "'50001' is not HOST:PORT"),
        (("--listen", "0.0.0.0:0"), "can be reached from other machines"),
        (("--tls-key", "nosuch"), "TLS needs both"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], reason: str, tmp_path: Path, run: Run) -> None:
    result = run("tarkit", "serve", "--state", "none", *arguments)
    assert (result.code, result.stdout) == (2, b"")
    assert reason in result.stderr and result.stderr.count("\n") == 1
