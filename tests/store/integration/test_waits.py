"""Waits that end: with a result, after a time, because the work was stopped.

And what is said while something waits.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future

import pytest
from times import Times, fast
from waiting import wait_for

from tarkit.errors import GivenUpError, StreamError, TemporaryStreamError
from tarkit.store import waits
from tarkit.store.retry import Dropped, GoneStores, Patience, Retry
from tarkit.store.waits import Late, Stopped, Workers


def raising(error: BaseException) -> None:
    raise error


def test_a_call_gives_what_the_function_gives() -> None:
    assert waits.call(divmod, 7, 2) == (3, 1)
    for error in (KeyError("x"), Dropped("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            waits.call(raising, error)
    # One thread for all calls of a thread, and no other thread's.
    names = {waits.call(threading.get_ident) for _ in range(5)}
    assert len(names) == 1 and threading.get_ident() not in names


def test_a_call_that_takes_too_long_is_left_behind() -> None:
    release, ended = threading.Event(), threading.Event()

    def stuck() -> None:
        release.wait(300)
        ended.set()

    before = waits.call(threading.get_ident)
    with pytest.raises(Late):
        waits.call(stuck, seconds=0.01)
    assert waits.call(threading.get_ident) != before
    release.set()
    assert ended.wait(300)


def test_a_forked_child_has_an_assistant_of_its_own() -> None:
    waits.call(int)
    child = os.fork()
    if not child:
        os._exit(waits.call(divmod, 7, 2)[0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_workers_that_wait_end_when_their_work_fails() -> None:
    release, begun = threading.Event(), threading.Semaphore(0)
    outcomes: list[str] = []

    def work(name: str) -> None:
        try:
            begun.release()
            if name == "call":
                waits.call(release.wait, 300)
            elif name == "pause":
                # The first failure of a Patience whose server asks for an hour.
                Patience(Retry(deadline=1e6), "n").failed(Dropped("busy", retry_after=3600), None)
            else:
                waits.result_of(Future())
        except Stopped:
            with waits.cleaning_up() as seconds:
                outcomes.append(f"{name} {seconds <= 1.5} {waits.call(str, 'cleaned')}")
            raise

    with pytest.raises(KeyError), Workers(3, "work") as workers:
        running = [workers.submit(work, name) for name in ("call", "pause", "result")]
        late = workers.submit(work, "never begun")
        # One that has not begun would be cancelled.
        assert all(begun.acquire(timeout=300) for _ in running)
        raise KeyError
    assert sorted(outcomes) == ["call True cleaned", "pause True cleaned", "result True cleaned"]
    assert all(isinstance(future.exception(), Stopped) for future in running)
    assert late.cancelled()
    release.set()


def test_workers_end_their_work_where_nothing_fails() -> None:
    with Workers(2, "work") as workers:
        futures = [workers.submit(waits.call, divmod, n, 2) for n in range(5)]
    assert [future.result()[0] for future in futures] == [0, 0, 1, 1, 2]


def test_the_time_for_cleaning_up() -> None:
    with waits.cleaning_up() as usual:
        pass
    try:
        raise KeyError
    except KeyError:
        with waits.cleaning_up() as after_an_error:
            pass
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with waits.cleaning_up() as after_a_signal:
            pass
    assert usual == after_an_error == 5.0 and after_a_signal == 1.5


def test_an_attempt_that_does_not_end_is_one_failure() -> None:
    release = threading.Event()
    patience = Patience(fast(attempts=2, deadline=0.0), "s3://b/x")
    with pytest.raises(GivenUpError, match="s3://b/x: no answer within 1 s; failed after 1 attempt") as caught:
        patience.call(release.wait, 300)
    assert not caught.value.answered
    release.set()


# What is said


def test_a_line_for_each_retry_after_two_seconds(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    patience = Patience(fast(times, base=1.0, attempts=8, cap=4.0), "s3://me:secret@b/x?token=secret")
    with caplog.at_level(logging.WARNING, "tarkit"), pytest.raises(GivenUpError):
        patience.run(lambda left: raising(Dropped("connection refused")))
    lines = [record.getMessage() for record in caplog.records]
    assert 3 <= len(lines) <= 6
    assert lines[-1].startswith("s3://b/x?token=…: connection refused; trying again in ")
    assert lines[-1].endswith(" s (attempt 8 of 8)")
    assert "secret" not in "".join(lines)
    assert all(record.name == "tarkit.retry" for record in caplog.records)


def test_an_attempt_that_was_silent_for_long_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()

    def silent(left: float) -> None:
        times.sleep(60)
        raise Dropped("silent")

    with (
        caplog.at_level(logging.WARNING, "tarkit"),
        pytest.raises(GivenUpError, match=r"after 5 attempts in a row within 30\d s"),
    ):
        Patience(fast(times), "n").run(silent)
    assert len(caplog.records) == 4
    assert times.waited < 360


def test_a_short_fault_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    patience = Patience(fast(), "n")
    with caplog.at_level(logging.WARNING, "tarkit"):
        patience.failed(Dropped("reset"), None)
        patience.progress()
        patience.failed(Dropped("reset"), None)
    assert not caplog.records


def test_who_sets_no_handler_sees_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("tarkit")
    handlers, logger.handlers = logger.handlers, []
    root, logging.root.handlers = logging.root.handlers, []
    try:
        Patience(fast(base=3.0, seed=2), "n").failed(Dropped("reset", retry_after=3), None)
    finally:
        logger.handlers, logging.root.handlers = handlers, root
    assert capfd.readouterr() == ("", "")


# Stores that are gone


def given_up(*answered: bool) -> GivenUpError:
    patience = Patience(fast(attempts=len(answered)), "s3://bucket/a?versionId=3")
    with pytest.raises(GivenUpError) as caught:
        for each in answered:
            patience.failed(Dropped("no", answered=each), None)
    return caught.value


def test_of_a_store_that_did_not_answer_nothing_more_is_asked() -> None:
    gone = GoneStores()
    # One that answers is not gone, whatever it answers; nor is one of which only one attempt is
    # known.
    for error in (
        given_up(False, True),
        TemporaryStreamError("short", url="s3://bucket/a"),
        StreamError("x"),
        KeyError(),
    ):
        gone.note(error)
        gone.refuse("s3://bucket/b")
    gone.note(given_up(False, False))
    gone.refuse("/local/file", "s3://other/b", "gs://bucket/b", "http://bucket/b")
    with pytest.raises(TemporaryStreamError, match="s3://bucket/b: not tried, because its store did not answer before"):
        gone.refuse("/local/file", "s3://me:pw@bucket/b")


def test_progress_forgets_earlier_answers() -> None:
    patience = Patience(fast(attempts=2), "n")
    patience.failed(Dropped("no"), None)
    patience.progress()
    with pytest.raises(GivenUpError) as caught:
        for _ in range(2):
            patience.failed(Dropped("no", answered=False), None)
    assert not caught.value.answered


def test_a_thread_that_is_done_leaves_no_assistant() -> None:
    def assistants() -> int:
        return sum(thread.name == "tarkit-wait" for thread in threading.enumerate())

    before = assistants()
    thread = threading.Thread(target=waits.call, args=(int,))
    thread.start()
    thread.join()
    wait_for(lambda: assistants() <= before)
