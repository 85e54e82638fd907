"""Published clients of ElasticDL, unmodified, train against the service.

And its messages with each protobuf.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import publishedclients
import pytest
from publishedclients import CLIENTS, READER, NoClient, started
from shardservice import Caller, Service

import tarkit

pytestmark = pytest.mark.elasticdl
ALL = sorted(CLIENTS)
NEVER = ["elasticai-api-1.4.1", "elasticdl-api-1.0.0"]
"""Which do not send a report again."""


@pytest.fixture(scope="module", autouse=True)
def environments() -> None:
    """All of them, before any clock runs."""
    for name in CLIENTS:
        try:
            publishedclients.client_python(name)
        except (NoClient, subprocess.TimeoutExpired) as reason:
            pytest.skip(f"NO {name}, ELASTICDL'S PUBLISHED CLIENTS ARE NOT TESTED: {reason}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with short leases."""
    with Service(tmp_path, "--lease-floor", "1", "--lease-ceiling", "5") as running:
        yield running


@pytest.fixture
def patient_service(tmp_path: Path) -> Iterator[Service]:
    """One where a worker may wait for the end for longer than it takes to tell it to finish its
    last batch, 20 s.
    """
    with Service(tmp_path, "--lease-floor", "1", "--lease-ceiling", "60") as running:
        yield running


def reader(name: str, service: Service, worker: int = 0, **asked: Any) -> subprocess.Popen[str]:
    return started(name, service.address, READER, json.dumps({"name": "iris", "epochs": 1} | asked), worker=worker)


def lines_of(process: subprocess.Popen[str], seconds: float = 300.0) -> list[list[Any]]:
    out, error = process.communicate(timeout=seconds)
    assert process.returncode == 0, error
    return [json.loads(line) for line in out.splitlines() if line.startswith("[")]


def records_of(lines: list[list[Any]]) -> list[int]:
    return [record for word, start, end in lines if word == "read" for record in range(start, end)]


@pytest.mark.parametrize("name", ALL)
def test_it_reads_each_record_once_an_epoch(name: str, service: Service) -> None:
    lines = lines_of(reader(name, service, size=22, epochs=3))
    assert sorted(records_of(lines)) == sorted([*range(22)] * 3)
    assert lines[-1] == ["end", 3, 0]


@pytest.mark.parametrize("name", ALL)
def test_tasks_of_files_have_what_it_ignores(name: str, tmp_path: Path) -> None:
    """The identity of the file, from a service that has counted it."""
    (tmp_path / "a.csv").write_text("".join(f"{number}\n" for number in range(22)))
    options = ("--name", "iris", "--records-per-shard", "8", "--epochs", "3", "--drain", "1")
    with Service(tmp_path, "--data", str(tmp_path / "a.csv"), *options) as running:
        lines = lines_of(reader(name, running, size=22, epochs=3))
    assert sorted(records_of(lines)) == sorted([*range(22)] * 3)


@pytest.mark.parametrize("name", ALL)
def test_what_a_process_held_that_was_killed_is_read_by_the_other(name: str, service: Service) -> None:
    killed = reader(name, service, worker=0, size=80, stops_at=2)
    assert killed.stdout is not None
    first = [json.loads(killed.stdout.readline()) for _ in range(2)]
    assert [word for word, *_ in first] == ["read", "holds"]
    other = reader(name, service, worker=1, size=80, seconds=0.05)
    time.sleep(0.3)
    killed.kill()
    killed.communicate()
    assert sorted(records_of(first) + records_of(lines_of(other))) == [*range(80)]


@pytest.mark.slow
def test_a_service_that_is_killed_and_started_again_is_ridden_out(tmp_path: Path) -> None:
    """By the client that tries again, after 15 s.

    The others do not send a report again.
    """
    with Service(tmp_path, "--lease-floor", "1", "--lease-ceiling", "60") as service:
        running = reader("elasticai-api-1.4.2", service, size=80, seconds=0.05)
        assert running.stdout is not None
        first = [json.loads(running.stdout.readline()) for _ in range(3)]
        service.kill()
        time.sleep(0.5)
        service.start()
        assert sorted(records_of(first) + records_of(lines_of(running))) == [*range(80)]


# Waits for a line after its first shard, whose report then meets no service; and goes on after
# another line, or raises.
LOSES = """
import json, sys
from elasticai_api.common.data_shard_service import build_data_shard_service
service = build_data_shard_service(
    batch_size=8, num_epochs=1, dataset_size=24, num_minibatches_per_shard=1, dataset_name="iris")
number = 0
while True:
    shard = service.fetch_shard()
    if not shard:
        break
    number += 1
    print(json.dumps(["read", shard.start, shard.end]), flush=True)
    if number == 1:
        sys.stdin.readline()
    try:
        service.report_batch_done()
    except Exception as error:
        print(json.dumps([type(error).__name__, 0, 0]), flush=True)
        if sys.argv[1] == "dies":
            raise
        sys.stdin.readline()
print(json.dumps(["end", 0, 0]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "then"), [(NEVER[0], "goes on"), *((name, "dies") for name in NEVER)])
def test_a_report_that_is_lost_brings_its_shard_back(name: str, then: str, tmp_path: Path) -> None:
    """These clients do not send it again.

    A trainer that goes on reports the shard in the place of its next one, and the last one never:
    the service hands it out again when its lease ends.
    """
    with Service(tmp_path, "--lease-floor", "1", "--lease-ceiling", "2") as service:
        losing = started(name, service.address, LOSES, then)
        assert losing.stdout is not None and losing.stdin is not None
        first = json.loads(losing.stdout.readline())
        service.kill()
        losing.stdin.write("\n")
        losing.stdin.flush()
        raised = json.loads(losing.stdout.readline())
        assert (first, raised[0]) == (["read", 0, 8], "_InactiveRpcError")
        service.start()
        with Caller(service.address) as call:
            (before,) = call("GetProgress", name="iris").progress
            assert (before.done, before.leased, before.ended) == (0, 1, False), "no report is taken for granted"
            if then == "dies":
                losing.communicate(timeout=300)
                assert losing.returncode == 1
                read = records_of([first, *lines_of(reader(name, service, worker=1, size=24))])
            else:
                out, error = losing.communicate("\n", timeout=300)
                assert losing.returncode == 0, error
                read = records_of([first, *(json.loads(line) for line in out.splitlines() if line.startswith("["))])
            (after,) = call("GetProgress", name="iris").progress
        assert (after.done, after.dead, after.records, after.ended) == (3, 0, 24, True)
        assert {*read} == {*range(24)} and len(read) == 32, "one shard comes twice"


@pytest.mark.parametrize("name", ALL)
def test_a_shard_that_it_reports_as_failed_comes_again(name: str, service: Service) -> None:
    lines = lines_of(reader(name, service, size=24, fails=2))
    assert [word for word, *_ in lines].count("failed") == 2
    assert sorted(records_of(lines)) == [*range(24)]


CHECKPOINT = """
import json, sys
from elasticai_api.common.data_shard_service import build_data_shard_service
service = build_data_shard_service(
    batch_size=4, num_epochs=2, dataset_size=24, num_minibatches_per_shard=1, dataset_name="iris")
def read(most):
    starts = []
    while len(starts) < most:
        shard = service.fetch_shard()
        if not shard:
            break
        starts.append(shard.start)
        service.report_batch_done()
    return starts
before = read(2)
saved = service.get_shard_checkpoint()
rest = read(100)
restored = service.restore_shard_from_checkpoint(saved)
again = read(100)
service.reset_dataset()
epoch = service.get_current_epoch()
print(json.dumps([before, rest, sorted(json.loads(saved)), restored, again, epoch, read(100)]))
"""


@pytest.mark.parametrize("name", ALL)
def test_checkpoint_restore_and_reset(name: str, service: Service) -> None:
    (found,) = lines_of(started(name, service.address, CHECKPOINT))
    before, rest, keys, restored, again, epoch, anew = found
    assert {"dataset_name", "doing", "epoch", "todo"} <= set(keys) and restored is True and epoch == 0
    whole = sorted([*range(0, 24, 4)] * 2)
    assert sorted(before + rest) == sorted(before + again) == sorted(anew) == whole


INDICES = """
import json, sys, threading
from elasticai_api.common.data_shard_service import RecordIndexService
service = RecordIndexService(
    batch_size=4, num_epochs=2, dataset_size=21, num_minibatches_per_shard=2, dataset_name="iris", shuffle=True)
numbers = []
try:
    while True:
        numbers.append(service.fetch_record_index())
        if len(numbers) % 4 == 0:
            service.report_batch_done()
except StopIteration:
    pass
service.report_batch_done(len(numbers) % 4)
print(json.dumps(numbers))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_numbers_of_records_with_a_short_last_batch(name: str, patient_service: Service) -> None:
    (numbers,) = lines_of(started(name, patient_service.address, INDICES))
    assert sorted(numbers) == sorted([*range(21)] * 2) and numbers[:21] != [*range(21)]
    # The short batch was reported in the end, so that the next worker is told of the end at once.
    lines = lines_of(reader(name, patient_service, size=21, epochs=2))
    assert [word for word, *_ in lines] == ["end"]


GENERATOR = """
import json, random
from elasticai_api.common.data_shard_service import build_data_shard_service
service = build_data_shard_service(
    batch_size=16, num_epochs=3, dataset_size=150, num_minibatches_per_shard=1, dataset_name="iris_training_data")
def records():
    while True:
        shard = service.fetch_shard()
        if not shard:
            break
        yield from range(shard.start, shard.end)
read, buffer, batch = [], [], []
def train():
    read.extend(batch)
    service.report_batch_done()
    batch.clear()
def take():
    batch.append(buffer.pop(random.randrange(len(buffer))))
    if len(batch) == 16:
        train()
for record in records():
    buffer.append(record)
    if len(buffer) == 100:
        take()
while buffer:
    take()
train()
print(json.dumps(read))
"""


STRICT = ["--dataset", "iris_training_data=150", "--records-per-shard", "16", "--epochs", "3", "--strict-epochs"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "served"), [("elasticai-api-1.4.2", []), ("elasticai-api-1.4.1", STRICT)])
def test_a_generator_with_a_shuffle_buffer_as_in_the_tutorial(name: str, served: list[str], tmp_path: Path) -> None:
    """Batches of 16 across shards of 16, 16, …, 6, behind a buffer of 100: its end needs the last
    reports.
    """
    with Service(tmp_path, *served) as service:
        (read,) = lines_of(started(name, service.address, GENERATOR))
        assert sorted(read) == sorted([*range(150)] * 3)
        if served:
            code, out, _ = service.end()
            done = "done 30, dead 0; records done 450; epochs begun 3"
            assert (code, out) == (0, [f"iris_training_data: shards: {done}"])


MESSAGES = """
import asyncio, sys, tempfile, threading, google.protobuf
from tarkit.service.client import ShardClient
from tarkit.service.dataset import DataSet
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.journal import Journal
from tarkit.elasticdl.mastercalls import ElasticDLCalls, master_protocol
from tarkit.service.server import serving
from tarkit.service.server import ShardCalls

def work(port):
    import grpc
    address = f"127.0.0.1:{port}"
    read = []
    with ShardClient(address, DataSet("iris", 22, 8, 2, shuffle_records=True)) as client:
        for shard in client:
            read += shard.records
            client.done(shard, [(0, 3)])
            client.done(shard)
        assert sorted(read) == sorted([*range(22)] * 2), read
        saved = client.save()
        client.restore(saved)
    calls = {call.name: call for call in master_protocol().calls}
    with grpc.insecure_channel(address) as channel:
        def ask(name, **fields):
            return calls[name].stub(channel)(calls[name].request(**fields))
        ask("report_dataset_shard_params", dataset_name="b", batch_size=4, num_epochs=1, dataset_size=22, task_type=1)
        task = ask("get_dataset_task", dataset_name="b")
        ask("report_dataset_task_result", dataset_name="b", task_id=task.task_id, exec_counters={"fail_count": 0})
        assert (task.shard.start, task.shard.end, task.type) == (0, 22, 1)
        assert ask("get_dataset_task", dataset_name="b").type == 0

async def main():
    journal = Journal(tempfile.mkdtemp() + "/state")
    protocols = (ShardCalls, ElasticDLCalls)
    async with Dispatcher(journal) as dispatcher, serving(dispatcher, "127.0.0.1:0", protocols=protocols) as port:
        await asyncio.to_thread(work, port)
    journal.close()

asyncio.run(main())
print(google.protobuf.__version__)
"""

# protobuf -> a grpcio of its time that is published as a wheel.
PROTOBUFS = {
    "3.20.3": "grpcio",
    "4.25.8": "grpcio==1.62.3",
    "5.29.5": "grpcio==1.70.0",
    "6.33.0": "grpcio==1.76.0",
    "7.36.2": "grpcio",
}


@pytest.mark.parametrize("version", PROTOBUFS)
def test_the_messages_with_each_generation_of_protobuf(version: str) -> None:
    try:
        python = publishedclients.environment(f"protobuf-{version}", [f"protobuf=={version}", PROTOBUFS[version]])
    except NoClient as reason:
        pytest.skip(f"NO PROTOBUF {version}, THE SERVICE IS NOT TESTED WITH IT: {reason}")
    assert tarkit.__file__ is not None
    variables = os.environ | {"PYTHONPATH": str(Path(tarkit.__file__).parent.parent)}
    done = subprocess.run(
        [str(python), "-c", MESSAGES], capture_output=True, text=True, check=False, timeout=300, env=variables
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == version
