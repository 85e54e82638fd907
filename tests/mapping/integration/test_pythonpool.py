"""The processes of ``tarkit.mapping.pythonpool``, under every start method."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_for

from tarkit.mapping import pythonworker
from tarkit.mapping.frames import HEAD, MARK, next_message, pack, unpack, unsent
from tarkit.mapping.mappererrors import traceback_text
from tarkit.mapping.parallel import Batch, Outcome
from tarkit.mapping.pythonpool import PythonPool
from tarkit.samples.sample import Sample

METHODS = ("fork", "spawn", "forkserver")


def _run(function: Any, folder: Path, batches: int = 6, **options: Any) -> list[Outcome]:
    """The outcomes of so many batches of one sample each, in order."""
    given: list[Batch] = [[{"__key__": f"k{n}", "__url__": "x.tar", "n": b"%d" % n}] for n in range(batches)]
    outcomes: dict[int, Outcome] = {}
    with PythonPool(function, str(folder), **options) as pool:
        ticket = 0
        while len(outcomes) < batches:
            while ticket < batches and pool.has_room():
                pool.submit(ticket, given[ticket])
                ticket += 1
            outcomes.update(pool.collect())
    return [outcomes[number] for number in range(batches)]


def _on_1(action: Callable[[], object]) -> Callable[[Sample], Sample]:
    def mapper(sample: Sample) -> Sample:
        if sample["n"] == b"1":
            action()
        return sample

    return mapper


@pytest.mark.parametrize("method", METHODS)
def test_lambda(tmp_path: Path, method: str) -> None:
    outcomes = _run(lambda sample: {"n": sample["n"] * 2}, tmp_path, slots=3, start_method=method)
    assert [outcome.made for outcome in outcomes] == [[[{"__key__": f"k{n}", "n": b"%d%d" % (n, n)}]] for n in range(6)]
    assert all(outcome.failure is None for outcome in outcomes)


@pytest.mark.parametrize("method", METHODS)
def test_processes_are_replaced(tmp_path: Path, method: str) -> None:
    """With open files of their own, whatever numbers the parent's have."""
    outcomes = _run(_on_1(lambda: os._exit(9)), tmp_path, slots=2, start_method=method)
    assert [outcome.failure is None for outcome in outcomes] == [True, False, True, True, True, True]
    assert outcomes[1].failure is not None and outcomes[1].failure.message == "the mapper's process ended with status 9"


class _TimedRun:
    """A pool with 100 seconds for a batch, by a clock that can be put forward."""

    def __init__(self, function: Any, folder: Path, **options: Any) -> None:
        self.ahead = 0.0
        self.outcomes: dict[int, Outcome] = {}
        self.pool = PythonPool(
            function, str(folder), timeout=100, clock=lambda: time.monotonic() + self.ahead, **options
        )

    def submit(self, *numbers: int) -> None:
        for number in numbers:
            self.pool.submit(number, [{"__key__": f"k{number}", "__url__": "x.tar", "n": b"%d" % number}])

    def collect(self, count: int) -> None:
        """Until there are so many outcomes in all."""
        while len(self.outcomes) < count:
            self.outcomes.update(self.pool.collect())

    def failures(self) -> list[str | None]:
        return [None if (found := self.outcomes[n].failure) is None else found.kind for n in sorted(self.outcomes)]


def test_timeout(tmp_path: Path) -> None:
    def hang() -> None:
        (tmp_path / "hangs").touch()
        time.sleep(1000)

    started = time.monotonic()
    run = _TimedRun(_on_1(hang), tmp_path, grace=0.5, slots=2)
    with run.pool:
        run.submit(0, 2)
        run.collect(2)
        run.submit(1)
        wait_for((tmp_path / "hangs").exists)
        run.ahead = 60
        run.submit(3)
        # Of the two that run, the time of one is over.
        run.ahead = 100
        run.collect(4)
        run.submit(4, 5)
        run.collect(6)
    assert time.monotonic() - started < 90
    assert run.failures() == [None, "timeout", None, None, None, None]


@pytest.mark.parametrize("slots", [1, 2])
def test_an_answer_that_comes_too_late_is_none(tmp_path: Path, slots: int) -> None:
    """The batch has timed out, no other one has, and its process is not waited for in vain."""

    def end_in_good_order() -> None:
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        (tmp_path / "runs").touch()
        wait_for(lambda: told)

    run = _TimedRun(_on_1(end_in_good_order), tmp_path, grace=1000, slots=slots)
    with run.pool:
        run.submit(0)
        run.collect(1)
        run.submit(1)
        wait_for((tmp_path / "runs").exists)
        run.ahead = 100
        run.collect(2)
        for number in range(2, 6):
            run.submit(number)
            run.collect(number + 1)
    assert run.failures() == [None, "timeout", None, None, None, None]


def test_setup_is_called_once_in_each_process(tmp_path: Path) -> None:
    def mapper(sample: Sample, state: list[int]) -> Sample:
        state.append(1)
        return {"count": b"%d" % len(state)}

    outcomes = _run(mapper, tmp_path, setup=lambda: [], slots=1)
    assert [outcome.made[0][0]["count"] for outcome in outcomes] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_setup_without_result(tmp_path: Path) -> None:
    outcomes = _run(lambda sample: sample, tmp_path, setup=lambda: None)
    assert all(outcome.failure is None for outcome in outcomes)


def test_what_is_printed_belongs_to_its_sample(tmp_path: Path) -> None:
    outcomes = _run(_on_1(lambda: print("hello")), tmp_path, slots=2)
    assert [outcome.printed.read() for outcome in outcomes] == [b"", b"hello\n", b"", b"", b"", b""]


def test_exceptions_leave_the_process_alive(tmp_path: Path) -> None:
    def mapper(sample: Sample) -> Sample:
        if sample["n"] in b"135":
            raise KeyError(sample["n"])
        return {"pid": b"%d" % os.getpid()}

    outcomes = _run(mapper, tmp_path)
    assert [outcome.failure and outcome.failure.kind for outcome in outcomes] == [None, "exception"] * 3
    assert len({outcome.made[0][0]["pid"] for outcome in outcomes if outcome.failure is None}) == 1


def test_changes_to_the_given_sample_stay_there(tmp_path: Path) -> None:
    """The original is what is set aside if the mapper fails after it changed something."""
    batch: Batch = [{"__key__": "k", "n": b"1"}]

    def mapper(sample: Sample) -> Sample:
        sample["n"] = b"changed"
        raise ValueError

    with PythonPool(mapper, str(tmp_path)) as pool:
        pool.submit(0, batch)
        assert pool.collect()[0][1].failure is not None
    assert batch == [{"__key__": "k", "n": b"1"}]


def test_an_idle_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """By the system for want of memory, or by what an earlier call left behind, while another one
    is at work.
    """

    def mapper(sample: Sample) -> Sample:
        if sample["n"] == b"1":
            wait_for((tmp_path / "idle").exists)
            pid = int((tmp_path / "idle").read_text())
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
        return {"pid": b"%d" % os.getpid()}

    with PythonPool(mapper, str(tmp_path), slots=2) as pool:
        for ticket in range(2):
            pool.submit(ticket, [{"__key__": f"k{ticket}", "n": b"%d" % ticket}])
        ((first, outcome),) = pool.collect()
        (tmp_path / "part").write_bytes(outcome.made[0][0]["pid"])
        (tmp_path / "part").rename(tmp_path / "idle")
        ((second, other),) = pool.collect()
    assert (first, second, other.failure) == (0, 1, None)


def test_processes_are_gone_afterwards(tmp_path: Path) -> None:
    outcomes = _run(lambda sample: {"pid": b"%d" % os.getpid()}, tmp_path, slots=3)
    for pid in {int(outcome.made[0][0]["pid"]) for outcome in outcomes}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_messages_larger_than_any_buffer(tmp_path: Path) -> None:
    outcomes = _run(lambda sample: {"big": bytes(30_000_000)}, tmp_path, batches=3, slots=2)
    assert [len(outcome.made[0][0]["big"]) for outcome in outcomes] == [30_000_000] * 3


@pytest.mark.parametrize("method", METHODS)
def test_a_mapper_that_forks_and_comes_back_twice(tmp_path: Path, method: str) -> None:
    """The copy has the socket, too.

    It is ended, and what it would have answered is not taken for another sample's.
    """

    def mapper(sample: Sample) -> Sample:
        pid = os.fork()
        if pid and sample["n"] in b"024":
            # The copy comes back first.
            os.waitpid(pid, 0)
        return {"n": sample["n"] * 2}

    outcomes = _run(mapper, tmp_path, slots=2, start_method=method)
    assert [outcome.failure for outcome in outcomes] == [None] * 6
    assert [outcome.made for outcome in outcomes] == [[[{"__key__": f"k{n}", "n": b"%d%d" % (n, n)}]] for n in range(6)]
    assert b"a process that the mapper forked came back from it and is ended" in outcomes[0].printed.stderr.read()


def test_a_setup_that_forks(tmp_path: Path) -> None:
    def setup() -> None:
        if pid := os.fork():
            os.waitpid(pid, 0)

    outcomes = _run(lambda sample: sample, tmp_path, setup=setup)
    assert [outcome.failure for outcome in outcomes] == [None] * 6


@pytest.mark.parametrize("code", [0, 7])
def test_a_mapper_that_ends_and_leaves_a_copy_running(tmp_path: Path, code: int) -> None:
    """As daemons begin.

    The copy keeps the socket open, and the run does not wait for it.
    """

    def become_a_daemon() -> None:
        if os.fork():
            os._exit(code)
        (tmp_path / "copy").write_text(str(os.getpid()))
        time.sleep(1000)

    outcomes = _run(_on_1(become_a_daemon), tmp_path, slots=2)
    failures = [outcome.failure and outcome.failure.message for outcome in outcomes]
    assert failures == [None, f"the mapper's process ended with status {code}", None, None, None, None]


def _own_socket() -> int:
    """In a mapper's process: what it answers on."""
    return next(fd for fd in range(3, 1100) if os.path.exists(f"/proc/self/fd/{fd}") and _is_socket(fd))


def _is_socket(fd: int) -> bool:
    return stat.S_ISSOCK(os.fstat(fd).st_mode)


FOREIGN_ANSWERS: dict[str, Callable[[], object]] = {
    "of another sample": lambda: (os.getpid(), 77, [[]], [b"", b""], None),
    "of another process": lambda: (os.getppid(), 1, [[]], [b"", b""], None),
}


@pytest.mark.parametrize("answer", FOREIGN_ANSWERS.values(), ids=FOREIGN_ANSWERS)
def test_an_answer_to_something_else_is_refused(tmp_path: Path, answer: Callable[[], object]) -> None:
    outcomes = _run(_on_1(lambda: os.writev(_own_socket(), pack(answer()))), tmp_path, slots=1, start_method="spawn")
    failed = [number for number, outcome in enumerate(outcomes) if outcome.failure is not None]
    assert failed == [1]
    assert (
        outcomes[1].failure is not None
        and "is not the answer to this sample: does it fork" in outcomes[1].failure.message
    )


GARBAGE = [MARK[:1], b"x" * 100, HEAD.pack(MARK, 2, 5) + b"i\0hello"]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_is_not_an_answer_is_refused(tmp_path: Path, garbage: bytes) -> None:
    """A byte before the answer made a length of it, and the run waited for so many bytes."""
    outcomes = _run(_on_1(lambda: os.write(_own_socket(), garbage)), tmp_path, slots=1, start_method="spawn")
    assert [outcome.failure is None for outcome in outcomes] == [True, False, True, True, True, True]


def test_a_mapper_that_uses_inherited_descriptors_reaches_nothing_of_the_run(tmp_path: Path) -> None:
    """It wrote into its own socket and those of other mappers, and the run hung."""
    ours = os.open(tmp_path / "of the caller", os.O_RDWR | os.O_CREAT)
    os.write(ours, b"content")

    def mapper(sample: Sample) -> Sample:
        usable = []
        for fd in range(3, 200):
            for use in (os.write, os.read):
                with suppress(OSError):
                    usable.append((fd, use(fd, b"x" if use is os.write else 1)))
        return {"n": sample["n"], "usable": repr(usable).encode()}

    try:
        outcomes = _run(mapper, tmp_path, slots=2, start_method="fork")
        assert [outcome.failure for outcome in outcomes] == [None] * 6
        made = [[{"__key__": f"k{n}", "n": b"%d" % n, "usable": b"[]"}] for n in range(6)]
        assert [outcome.made for outcome in outcomes] == [[each] for each in made]
        assert os.pread(ours, 100, 0) == b"content"
    finally:
        os.close(ours)


def test_a_mapper_that_forks_keeps_the_events_that_libraries_wait_by(tmp_path: Path) -> None:
    """gRPC ended the process at the fork if the caller had used it: its events were gone."""
    events = os.eventfd(0)

    def mapper(sample: Sample) -> Sample:
        os.eventfd_write(events, 1)
        return sample

    try:
        outcomes = _run(mapper, tmp_path, slots=1, start_method="fork")
    finally:
        os.close(events)
    assert [outcome.failure for outcome in outcomes] == [None] * 6


def test_children_of_a_mapper_have_the_standard_streams_and_nothing_else(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)

    def mapper(sample: Sample) -> Sample:
        return {"fds": subprocess.run(["ls", "/proc/self/fd"], stdout=subprocess.PIPE, close_fds=False).stdout}

    try:
        outcomes = _run(mapper, tmp_path, slots=1, start_method="fork")
    finally:
        os.close(reading)
        os.close(writing)
    # The fourth is the folder that ls reads.
    assert {outcome.made[0][0]["fds"] for outcome in outcomes} == {b"0\n1\n2\n3\n"}


def test_where_few_files_can_be_open_a_worker_keeps_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 30, 1 << 30))
    monkeypatch.setattr(pythonworker, "_HIGH", 1 << 30)
    number = os.open(os.devnull, os.O_RDONLY)
    assert pythonworker._moved_up(number) == number
    os.close(number)


# ---- messages


def test_bytes_that_something_else_wrote_into_a_message_are_noticed() -> None:
    """In the middle of a field they would have been taken for its content."""
    message = b"".join(pack("header", [{"__key__": "k", "x": b"content"}]))
    assert next_message(bytearray(message)) == ("header", [{"__key__": "k", "x": b"content"}])
    for position in (*range(len(MARK)), *range(HEAD.size, len(message))):
        with pytest.raises(ValueError, match="this is not a message"):
            next_message(bytearray(message[:position] + b"!" + message[position:]))


@given(
    st.lists(st.dictionaries(st.text(), st.one_of(st.text(), st.binary(), st.just(bytes(100_000))), max_size=5)),
    st.integers(1, 50),
)
def test_messages_come_back_however_they_travel(samples: list[Sample], step: int) -> None:
    message = b"".join(pack([1, "header"], samples)) * 2
    buffer = bytearray()
    found = []
    for start in range(0, len(message), max(step, len(message) // 40)):
        buffer += message[start : start + max(step, len(message) // 40)]
        while (one := next_message(buffer)) is not None:
            found.append(one)
    assert found == [([1, "header"], samples)] * 2 and not buffer


def test_content_is_neither_copied_nor_limited_by_the_header() -> None:
    """marshal cannot write 2 GiB; so none of it goes through marshal."""
    content = bytes(5_000_000)
    head, body, _ = pack("header", [{"__key__": "k", "big": content}])
    assert len(head) < 200 and body.obj is content
    _, length, size = HEAD.unpack_from(head)
    assert (length, size) == (len(head) - HEAD.size, len(content))
    text = bytes(head[HEAD.size :]).replace((5_000_000).to_bytes(4, "little"), (2**31 - 1).to_bytes(4, "little"))
    wanted: list[int] = []
    assert unpack(text, lambda count: wanted.append(count) or b"")[1] == [{"__key__": "k", "big": b""}]  # type: ignore[func-returns-value]
    assert wanted == [2**31 - 1]


def test_unsent() -> None:
    pieces = [memoryview(b"abc"), memoryview(b"d"), memoryview(b"efg")]
    assert [[bytes(piece) for piece in unsent(pieces, sent)] for sent in (0, 2, 3, 5, 7)] == [
        [b"abc", b"d", b"efg"],
        [b"c", b"d", b"efg"],
        [b"d", b"efg"],
        [b"fg"],
        [],
    ]


def test_the_traceback_of_a_mapper_has_no_bytes_that_a_terminal_obeys() -> None:
    assert traceback_text(ValueError("\x1b[31mred\nnext \x07"), "") == "ValueError: \\x1b[31mred\nnext \\x07\n"
