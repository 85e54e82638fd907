"""The client of the shard service, against a real service."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shardservice import Service
from shardthread import InThread, held_back

from tarkit.errors import ServiceLostError, TarkitError, UsageError
from tarkit.readers.reader import Shard
from tarkit.service import pendingcalls
from tarkit.service.client import HeldShard, NoShard, ShardClient
from tarkit.service.connection import Security
from tarkit.service.dataset import DataSet
from tarkit.service.leases import LeaseRules
from tarkit.service.reports import Reports
from tarkit.service.server import ShardCalls

pytest.importorskip("grpc", reason="the shard service needs grpcio")

CANARY = "c4n4ry-t0k3n-4711"
IRIS = DataSet("iris", 22, 8, 2)
NOTHING = {"accepted": 0, "late": 0, "stale": 0, "unknown": 0, "repeated": 0}


def counted(**counts: int) -> dict[str, int]:
    return NOTHING | counts


def taken(client: ShardClient) -> HeldShard:
    shard = client.fetch(120)
    assert isinstance(shard, HeldShard), shard
    return shard


def read_all(client: ShardClient) -> list[int]:
    read: list[int] = []
    for shard in client:
        read += shard.records
        client.done(shard)
    return read


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


@pytest.mark.parametrize("prefetch", [0, 1, 5, None])
def test_each_record_once_and_the_end_is_the_end(tmp_path: Path, prefetch: int | None) -> None:
    with InThread(tmp_path / "state") as service, ShardClient(service.address, IRIS, prefetch=prefetch) as client:
        read = read_all(client)
        assert client.fetch() is NoShard.END and client.ended
        client.flush()
        assert client.counts == counted(accepted=6)
        assert client.progress().done == 6
    assert sorted(read) == sorted([*range(22)] * 2)


@pytest.mark.parametrize(("seconds", "number"), [(0.0, 64), (0.01, 10), (0.07, 1), (600.0, 1)])
def test_a_tenth_of_a_second_of_work_is_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, number: int
) -> None:
    now = [0.0]
    monkeypatch.setattr("tarkit.service.worker.time", SimpleNamespace(monotonic=lambda: now[0]))
    with InThread(tmp_path / "state") as service, ShardClient(service.address, DataSet("d", 100, 1)) as client:
        for _ in range(30):
            client.done(taken(client))
            now[0] += seconds
        assert abs(client._opened()._number - number) <= 1


def test_a_shard_that_comes_back_reaches_a_worker_that_never_waits(tmp_path: Path) -> None:
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 8, 8, 1)) as holder,
        ShardClient(service.address, "iris") as other,
    ):
        shard = taken(holder)
        for _ in range(3):
            assert other.fetch(0) is NoShard.WAIT
            time.sleep(0.05)
        holder.failed(shard, "cannot be decoded")
        until(lambda: other.fetch(0) is not NoShard.WAIT)


# What is refused.


def test_another_declaration_is_refused_at_once(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service, ShardClient(service.address, IRIS):
        began = time.monotonic()
        with pytest.raises(UsageError, match="size 22, not 23"):
            ShardClient(service.address, DataSet("iris", 23, 8, 2)).connect()
        with pytest.raises(UsageError, match="data set 'flowers' was not declared"):
            ShardClient(service.address, "flowers").connect()
        assert time.monotonic() - began < 60, "it was tried again"


@pytest.mark.parametrize("options", [{"prefetch": -1}, {"patience": -1.0}, {"patience": float("nan")}])
def test_numbers_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be 0 or more"):
        ShardClient("localhost:1", **options)


def test_a_reason_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    with (
        InThread(tmp_path / "state", LeaseRules(errors=1)) as service,
        ShardClient(service.address, DataSet("iris", 8, 8, 1), prefetch=0) as client,
    ):
        client.failed(taken(client), "cannot read a\udcff.jpg")
        client.flush()
        assert client.progress().dead_shards[0].reason == "cannot read a\\udcff.jpg"


def test_an_error_in_a_thread_of_the_client_is_raised_where_it_is_used(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service:
        client = ShardClient(service.address, IRIS)
        client.done(taken(client), [(0.0, 3.0)])  # type: ignore[list-item]
        for use in (client.flush, client.fetch, client.close):
            with pytest.raises(TarkitError, match=r"unexpected TypeError: .*; is a value wrong"):
                use()


# A service that is lost, and one that comes back.


def test_a_thread_that_waits_for_its_reports_goes_on_when_another_closes(tmp_path: Path) -> None:
    errors: list[Exception] = []

    def flush() -> None:
        try:
            client.flush()
        except ServiceLostError as error:
            errors.append(error)

    with InThread(tmp_path / "state") as service:
        client = ShardClient(service.address, IRIS)
        shard = taken(client)
    client.done(shard)
    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    until(lambda: client._worker._news._waiters)
    with pytest.raises(ServiceLostError, match="reports of 1 shard were not answered in time"):
        client._close(give_back=True, seconds=0.2)
    thread.join(120)
    assert len(errors) == 1


def test_a_lost_service_is_an_error_and_never_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.service.worker._GIVING_BACK", 300.0)
    with Service(tmp_path) as service:
        client = ShardClient(service.address, IRIS, patience=0.5, prefetch=0)
        shard = taken(client)
        service.kill()
        with pytest.raises(ServiceLostError):
            while client.fetch(5) is not NoShard.END:
                pass
        with pytest.raises(ServiceLostError):
            client.done(shard)
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < 60, "it was asked to take shards back"


def test_reports_that_a_lost_service_did_not_answer_are_an_error(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        client = ShardClient(service.address, IRIS, patience=0.5, prefetch=0)
        shard = taken(client)
        service.kill()
        client.done(shard)
        with pytest.raises(ServiceLostError):
            client.close()


def test_a_service_that_is_killed_and_started_again_is_ridden_out(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        with ShardClient(service.address, DataSet("iris", 40, 4, 2), prefetch=2) as client:
            read: list[int] = []
            for number, shard in enumerate(client):
                if number == 5:
                    service.kill()
                    threading.Timer(0.2, service.start).start()
                read += shard.records
                client.done(shard)
            client.flush()
            counts = client.counts
        assert sorted(read) == sorted([*range(40)] * 2)
        assert counts["accepted"] + counts["repeated"] == 20 and counts == counted(
            accepted=counts["accepted"], repeated=counts["repeated"]
        )


class Losing:
    """The service's Exchange, of which answers are lost once ``left`` is set.

    Args:
        which: "verdicts" or "leases".
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
        self._exchange, self._which, self.left = ShardCalls.Exchange, which, 0
        monkeypatch.setattr(ShardCalls, "Exchange", lambda calls, *arguments: self._answer(calls, *arguments))  # noqa: PLW0108

    async def _answer(self, calls: ShardCalls, request: Any, context: Any) -> Any:
        reply = await self._exchange(calls, request, context)
        if self.left and getattr(reply, self._which):
            self.left -= 1
            raise ConnectionError("the answer is lost")
        return reply


def test_a_report_whose_answer_was_lost_is_sent_again_and_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = Losing(monkeypatch, "verdicts")
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 22, 8, 1), prefetch=0) as client,
    ):
        shard = taken(client)
        losing.left = 2
        client.done(shard)
        client.flush()
        assert losing.left == 0
        assert client.counts == counted(repeated=1)
        assert client.progress().records == 8


def test_shards_whose_answer_was_lost_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losing = Losing(monkeypatch, "leases")
    with InThread(tmp_path / "state", LeaseRules(losses=1)) as service:
        with ShardClient(service.address, DataSet("iris", 80, 8, 1), prefetch=3) as client:
            first = taken(client)
            losing.left = 3
            client.done(first)
            read = [*first.records, *read_all(client)]
            client.flush()
            assert losing.left == 0 and client.counts == counted(accepted=10)
            # Given back, not lost: their worker is not to blame.
            assert client.progress().dead == 0
        assert sorted(read) == [*range(80)]


def test_a_worker_that_is_cut_off_longer_than_its_lease_reports_late_or_in_vain(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service:
        dataset = DataSet("iris", 16, 8, 1)
        with (
            ShardClient(service.address, dataset, prefetch=0) as slow,
            ShardClient(service.address, dataset, prefetch=0) as other,
        ):
            shards = [taken(slow), taken(slow)]
            ledger = service.dispatcher.ledgers["iris"]
            service.call(lambda: ledger.lose(slow.worker))
            taken_over = taken(other)
            other.done(taken_over)
            other.flush()
            for shard in shards:
                slow.done(shard)
            slow.flush()
            assert slow.counts == counted(late=1, stale=1)
            assert slow.fetch(120) is NoShard.END


class Stuck(threading.Thread):
    """A thread that fetches a shard, does nothing until it is let go, and then reports it."""

    def __init__(self, client: ShardClient) -> None:
        super().__init__(daemon=True)
        self.client, self.fetched, self.free = client, threading.Event(), threading.Event()
        self.start()
        assert self.fetched.wait(120)

    def run(self) -> None:
        self.shard = taken(self.client)
        self.fetched.set()
        self.free.wait(120)
        self.client.done(self.shard)


def test_a_thread_that_does_nothing_keeps_its_shard_up_to_the_longest_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever other threads of its process do."""
    with (
        InThread(tmp_path / "state", LeaseRules(0.3, 0.6, 0.6)) as service,
        ShardClient(service.address, DataSet("iris", 80, 8, 1)) as client,
    ):
        stuck = Stuck(client)
        assert {*stuck.shard.records} <= {*read_all(client)}
        assert client.ended
        stuck.free.set()
        stuck.join(120)
        client.flush()
        assert client.counts["stale"] >= 1
    assert "1 shard: the thread that holds it was given no shard and reported none for 0.6 s" in caplog.text


def test_a_thread_whose_shards_others_report_is_at_work() -> None:
    """One that fetches for others; and one that has ended is none."""
    reports = Reports()
    for token in range(1, 5):
        reports.lease(token, 2, [(0, 2)])

    def fetch(token: int, now: float) -> None:
        thread = threading.Thread(target=reports.given, args=(token, now))
        thread.start()
        thread.join()

    fetch(1, 0.0)
    reports.given(2, 0.0)
    reports.given(3, 5.0)
    assert (reports.idle(4.0), reports.idle(5.0)) == ([1], [1, 2, 3])
    reports.works(1, 9.0)
    assert (reports.idle(8.0), reports.idle(9.0)) == ([], [1, 2, 3])
    reports.add(2, None, "")
    reports.lost([1])
    assert reports.idle(9.0) == [3]


# How a worker ends.


def test_closing_gives_back_what_was_not_used(tmp_path: Path) -> None:
    with InThread(tmp_path / "state", LeaseRules(losses=1)) as service:
        with ShardClient(service.address, DataSet("iris", 80, 8, 1), prefetch=4) as client:
            client.done(taken(client))
            taken(client)
            client.done(taken(client), [(0, 2), (5, 8)])
        with ShardClient(service.address, "iris") as other:
            progress = other.progress()
            assert (progress.done, progress.leased, progress.dead) == (1, 0, 0)
            rest = read_all(other)
        assert sorted(rest) == [8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, *range(24, 80)]


def test_after_an_exception_only_the_shards_in_hand_count_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with InThread(tmp_path / "state", LeaseRules(losses=1)) as service:
        graces = held_back(service.loop, service.dispatcher.heartbeats._lose, monkeypatch)
        with (
            pytest.raises(ZeroDivisionError),
            ShardClient(service.address, DataSet("iris", 80, 8, 1), prefetch=4) as client,
        ):
            client.done(taken(client))
            held = taken(client)
            raise ZeroDivisionError
        with ShardClient(service.address, "iris", prefetch=0) as other:
            assert (other.progress().leased, other.progress().dead) == (1, 0)
            until(lambda: graces)
            for _, over in graces:
                service.call(over)
            assert other.progress().dead == 1
            assert sorted(read_all(other)) == sorted({*range(8, 80)} - {*held.records})


def test_a_closed_client_is_not_used_again(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service:
        with ShardClient(service.address, IRIS) as client:
            shard = taken(client)
        client.close()
        for use in (client.fetch, client.flush, lambda: client.done(shard), client.progress):
            with pytest.raises(UsageError, match="closed"):
                use()


def test_a_thread_that_waits_for_a_shard_hears_that_its_client_is_closed(tmp_path: Path) -> None:
    refused: list[str] = []

    def wait() -> None:
        try:
            client.fetch()
        except UsageError as error:
            refused.append(str(error))

    with InThread(tmp_path / "state") as service:
        with (
            ShardClient(service.address, DataSet("iris", 8, 8, 1), prefetch=0) as holder,
            ShardClient(service.address, "iris") as client,
        ):
            taken(holder)
            thread = threading.Thread(target=wait)
            thread.start()
            assert client.fetch(0.3) is NoShard.WAIT
            client.close()
            thread.join(120)
        assert len(refused) == 1 and "closed" in refused[0]


def test_no_thread_is_left(tmp_path: Path) -> None:
    others = set(threading.enumerate())
    with InThread(tmp_path / "state") as service:
        with ShardClient(service.address, IRIS, prefetch=3) as client:
            taken(client)
        assert not [each for each in {*threading.enumerate()} - others if each.name.startswith("tarkit shards")]


def run_program(text: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_program_that_never_closes_its_client_ends_and_its_reports_arrive(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom tarkit.service.client import ShardClient\n"
        "client = ShardClient(sys.argv[1], 'iris', prefetch=3)\nclient.done(client.fetch())\nkept = client.fetch()\n"
    )
    with InThread(tmp_path / "state") as service, ShardClient(service.address, DataSet("iris", 80, 8, 1), prefetch=0):
        ended = run_program(text, service.address)
        _, error = ended.communicate(timeout=120)
        assert (ended.returncode, error) == (0, "")
        ledger = service.dispatcher.ledgers["iris"]
        until(lambda: ledger.progress().leased == 0)
        assert ledger.progress().done == 1
        assert sum(each.losses for each in ledger.in_order()) == 1  # of the one that was fetched


ENDS = {
    "never closed": "client = ShardClient(sys.argv[1], 'iris')\nclient.fetch()\nraise ValueError\n",
    "never closed, sys.exit": "client = ShardClient(sys.argv[1], 'iris')\nclient.fetch()\nsys.exit(1)\n",
    "sys.exit in its block": "with ShardClient(sys.argv[1], 'iris') as client:\n    client.fetch()\n    sys.exit(1)\n",
    "ElasticDL's names": "service = build_data_shard_service(8, dataset_name='iris')\nservice.fetch_shard()\n1 / 0\n",
    "ElasticDL's names in a block": (
        "with build_data_shard_service(8, dataset_name='iris') as service:\n    service.fetch_shard()\n    1 / 0\n"
    ),
}


def lost_so_often(service: InThread, losses: int) -> bool:
    return [each.losses for each in service.dispatcher.ledgers["iris"].tasks.values()] == [losses]


@pytest.mark.parametrize("end", ENDS)
def test_a_record_that_ends_its_worker_however_it_ends_counts_as_a_loss(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import sys\nfrom tarkit.elasticdl import build_data_shard_service\n"
    text += "from tarkit.service.client import ShardClient\n"
    with InThread(tmp_path / "state", LeaseRules(losses=2)) as service:
        monkeypatch.setenv("DLROVER_MASTER_ADDR", service.address)
        with ShardClient(service.address, DataSet("iris", 8, 8, 1), prefetch=0) as client:
            for losses in (1, 2):
                ended = run_program(text + ENDS[end], service.address)
                ended.communicate(timeout=120)
                assert ended.returncode == 1
                until(partial(lost_so_often, service, losses))
            (dead,) = client.progress().dead_shards
            assert (dead.losses, dead.errors, dead.reason) == (2, 0, "the worker's connection broke")
            assert client.fetch(120) is NoShard.END


def test_a_signal_ends_a_worker_that_waits(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom tarkit.service.client import ShardClient\n"
        "with ShardClient(sys.argv[1], 'iris') as client:\n    print('waits', flush=True)\n    client.fetch()\n"
    )
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 8, 8, 1), prefetch=0) as holder,
    ):
        shard = taken(holder)
        waiting = run_program(text, service.address)
        assert waiting.stdout is not None and waiting.stdout.readline() == "waits\n"
        waiting.send_signal(signal.SIGINT)
        _, error = waiting.communicate(timeout=120)
        assert waiting.returncode == -signal.SIGINT and error.rstrip().endswith("KeyboardInterrupt")
        holder.done(shard)


def test_what_a_killed_worker_held_is_handed_out_again(tmp_path: Path) -> None:
    text = (
        "import os, sys\nfrom tarkit.service.client import ShardClient\n"
        "client = ShardClient(sys.argv[1], 'iris')\nfor number in range(20):\n    client.done(client.fetch())\n"
        "shard = client.fetch()\nclient.done(shard, [(0, 3)])\nclient.flush()\n"
        "print('holds', flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 800, 8, 1), prefetch=0) as client,
    ):
        killed = run_program(text, service.address)
        killed.communicate(timeout=120)
        assert killed.returncode == -signal.SIGKILL
        assert sorted(read_all(client)) == [*range(163, 800)]


# Processes.


def _read_in_child(client: ShardClient, results: Any) -> None:
    with client:
        results.put((client.worker, read_all(client)))


def _in_child(function: Callable[[], object]) -> int:
    """The exit code of a process that is forked to run a function; 1: it raised."""
    pid = os.fork()
    if not pid:
        try:
            code = function()
            os._exit(code if isinstance(code, int) else 0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forked_before_and_after(address: str) -> int:
    """In a process of its own: a client that two children use, and its parent only then."""
    client = ShardClient(address, IRIS, prefetch=0)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    children = [context.Process(target=_read_in_child, args=(client, results)) for _ in range(2)]
    for child in children:
        child.start()
    found = [results.get(timeout=120) for _ in children]
    assert len({worker for worker, _ in found}) == 2
    assert sorted(found[0][1] + found[1][1]) == sorted([*range(22)] * 2)
    client.reset()
    shard = taken(client)

    def refused() -> int:
        for use in (client.fetch, lambda: client.done(shard), ShardClient(address, "iris").connect):
            with pytest.raises(UsageError, match="forked"):
                use()
        return 7

    assert _in_child(refused) == 7
    client.done(shard)
    assert len(read_all(client)) == 44 - 8
    client.flush()
    assert client.counts == counted(accepted=6)
    client.close()
    return 0


def test_children_connect_if_their_parent_has_not(tmp_path: Path) -> None:
    program = f"import sys; sys.path[:0] = {sys.path!r}; import test_shard_client as it\n"
    program += "sys.exit(it.forked_before_and_after(sys.argv[1]))"
    with Service(tmp_path) as service:
        ended = run_program(program, service.address)
        _, error = ended.communicate(timeout=300)
        assert ended.returncode == 0, error


def test_a_client_goes_to_other_processes_as_its_configuration(tmp_path: Path) -> None:
    with InThread(tmp_path / "state") as service, ShardClient(service.address, IRIS, prefetch=0, label="w7") as client:
        first = taken(client)
        with pickle.loads(pickle.dumps(client)) as other:
            assert other.worker != client.worker and other.worker.startswith("w7-")
            second = taken(other)
            assert pickle.loads(pickle.dumps(second)) == second
            other.done(second)
        client.done(first)


def test_a_shard_of_another_process_is_refused_without_the_password_of_its_url(tmp_path: Path) -> None:
    files = Shard(f"https://me:{CANARY}@h/a.tar?sig={CANARY}", 0, 8), Shard("b.tar", 0, 8)
    data_set = DataSet("iris", 16, 8, files=files)
    with InThread(tmp_path / "state") as service, ShardClient(service.address, data_set, prefetch=0) as client:
        first = taken(client)
        assert CANARY in first.name
        with pickle.loads(pickle.dumps(client)) as other:
            taken(other)
            with pytest.raises(UsageError, match=r"shard https://.*h/a.tar.* 0 to 8 was handed to another") as caught:
                other.done(first)
        assert CANARY not in f"{caught.value}{caught.value!r}{caught.value.__cause__}"
        client.done(first)


def test_threads_share_a_client(tmp_path: Path) -> None:
    read: list[int] = []
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 400, 4, 2), prefetch=3) as client,
    ):
        threads = [threading.Thread(target=lambda: read.extend(read_all(client))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert sorted(read) == sorted([*range(400)] * 2)


# A checkpoint, and a new beginning.


def test_a_reset_makes_what_is_held_stale(tmp_path: Path) -> None:
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 40, 8, 1), prefetch=2) as client,
    ):
        client.done(taken(client))
        held = taken(client)
        client.reset()
        client.done(held)
        assert sorted(read_all(client)) == [*range(40)]
        client.flush()
        assert client.counts == counted(accepted=6)
        client.reset()
        assert len(read_all(client)) == 40


def test_a_checkpoint_has_the_reports_of_before(tmp_path: Path) -> None:
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 40, 8, 1), prefetch=2) as client,
    ):
        client.done(taken(client))
        saved = client.save()
        read_all(client)
        with pytest.raises(UsageError, match="not a checkpoint"):
            client.restore("no checkpoint")
        client.restore(saved)
        assert sorted(read_all(client)) == [*range(8, 40)]


# Batches across shards.


def test_a_worker_whose_batch_waits_for_the_end_is_told_to_finish_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 0.3)
    with InThread(tmp_path / "state") as service, ShardClient(service.address, DataSet("iris", 22, 8, 1)) as client:
        batch: list[HeldShard] = []
        full = 0
        while (found := client.fetch()) is not NoShard.END:
            if isinstance(found, HeldShard):
                batch.append(found)
            if found is NoShard.DRAIN or len(batch) == 2:
                full += len(batch) == 2
                for shard in batch:
                    client.done(shard)
                batch = []
        assert full == 1
        client.flush()
        assert client.counts == counted(accepted=3)


def test_a_worker_that_works_is_not_taken_for_one_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendingcalls, "_STANDSTILL", 0.1)
    with (
        InThread(tmp_path / "state") as service,
        ShardClient(service.address, DataSet("iris", 16, 8, 1), prefetch=0) as works,
        ShardClient(service.address, "iris", prefetch=0) as waits,
    ):
        shard = taken(works)
        taken(waits)
        assert waits.fetch(0.6) is NoShard.WAIT
        works.done(shard)
        assert waits.fetch(120) is NoShard.DRAIN


# TLS and a token.


PEM = Path(__file__).resolve().parents[1] / "data"


def refused(address: str, patience: float = 1.0, **options: Any) -> str:
    """The one line of the error with which a client does not connect."""
    with pytest.raises(TarkitError) as caught:
        ShardClient(address, "iris", patience=patience, **options).connect()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tls_needs_the_certificate_of_the_service(tmp_path: Path) -> None:
    own = (PEM / "certificate.pem").read_bytes()
    security = Security((PEM / "key.pem").read_bytes(), own, "t")
    with InThread(tmp_path / "state", security=security) as service:
        address = service.address
        with ShardClient(address, IRIS, token="t", certificate=own) as client:
            assert len(read_all(client)) == 44
        assert "bearer token" in refused(address, patience=300, token="u", certificate=own)
        assert "if the service has TLS, give its certificate" in refused(address, token="t")
        assert "not PEM" in refused(address, token="t", certificate=b"nonsense")
        other = (PEM / "other.pem").read_bytes()
        assert "is not signed by the given one" in refused(address, token="t", certificate=other)
    with InThread(tmp_path / "plain") as service:
        assert "is it one that has TLS?" in refused(service.address, certificate=own)
