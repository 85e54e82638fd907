"""Commands behind pipe: as the sources of a reader that finishes, or stops early.

And what they leave behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tarkit.errors import StreamError
from tarkit.store.read import open_read

MANY = bytes(300_000)


def children() -> set[int]:
    """Process ids of all children of this process, the dead among them too."""
    while True:
        found = set()
        try:
            for task in Path("/proc/self/task").iterdir():
                found |= {int(pid) for pid in (task / "children").read_text().split()}
        except (FileNotFoundError, ProcessLookupError):  # a thread ended meanwhile: another one has its children now
            continue
        return found


@pytest.fixture(autouse=True)
def what_commands_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is in no command: their own words are not shown."""
    monkeypatch.setenv("SAID", "no such bucket")


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        pytest.skip("THIS SYSTEM DOES NOT LIST CHILDREN IN /proc: zombies cannot be counted")
    before = children()
    yield
    assert children() <= before


def to_the_end(url: str) -> bytes:
    with open_read(url, compression=None) as stream:
        return b"".join(iter(lambda: stream.read(10_000), b""))


def stops_early(url: str) -> bytes:
    with open_read(url, compression=None) as stream:
        return stream.read(10)


BYTES = f"head -c {len(MANY)} /dev/zero"
PRODUCERS = {
    "succeeds": (BYTES, None),
    "fails before the first byte": ("echo $SAID >&2; exit 7", "exit status 7: no such bucket"),
    "fails early": ("head -c 100 /dev/zero; echo $SAID >&2; exit 8", "exit status 8: no such bucket"),
    "fails late": (f"{BYTES}; echo $SAID >&2; exit 9", "exit status 9: no such bucket"),
    "fails after its end of file": (
        f"{BYTES}; exec >&-; sleep 0.2; echo $SAID >&2; exit 10",
        "status 10: no such bucket",
    ),
    "fails in the middle of a pipeline": (f"{{ {BYTES}; exit 11; }} | cat", "exit status 11"),
    "is killed": (f"{BYTES}; kill -KILL $$", "signal SIGKILL"),
}


@pytest.mark.parametrize("case", PRODUCERS)
def test_reader_finishes(case: str) -> None:
    command, message = PRODUCERS[case]
    if message is None:
        assert to_the_end(f"pipe:{command}") == MANY
        return
    with pytest.raises(StreamError) as caught:
        to_the_end(f"pipe:{command}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", [case for case, (command, _) in PRODUCERS.items() if command.count("head")])
def test_reader_stops_early(case: str) -> None:
    # Whoever has what it wanted does not ask how the rest would have gone.
    assert stops_early(f"pipe:{PRODUCERS[case][0]}") == bytes(10)


def test_reader_stops_early_after_the_failure_was_met() -> None:
    with open_read("pipe:exit 3", compression=None) as stream:
        with pytest.raises(StreamError, match="exit status 3"):
            stream.read(10)
        # The failure never turns into an end.
        with pytest.raises(StreamError, match="exit status 3"):
            stream.read(10)


def test_failure_before_the_first_byte_is_met_when_the_stream_is_opened() -> None:
    # To look for compression the first bytes are read, so this is not left for later.
    with pytest.raises(StreamError, match="exit status 7"):
        open_read("pipe:exit 7")


@pytest.mark.parametrize(
    "command",
    ["head -c 10 /dev/zero; sleep 1000", "head -c 10 /dev/zero; trap '' TERM; while :; do sleep 1; done", "yes"],
)
def test_producer_hangs_and_reader_stops_early(command: str) -> None:
    begin = time.monotonic()
    assert len(stops_early(f"pipe:{command}")) == 10
    assert time.monotonic() - begin < 60


def test_producer_hangs_after_its_end_of_file_and_is_waited_for() -> None:
    # Only its exit status says whether that was all; it is not guessed.
    begin = time.monotonic()
    assert to_the_end(f"pipe:{BYTES}; exec >&-; sleep 0.7") == MANY
    assert time.monotonic() - begin >= 0.6


def test_background_job_that_keeps_stderr_does_not_hold_the_reader() -> None:
    begin = time.monotonic()
    assert to_the_end("pipe:sleep 30 >/dev/null & echo done") == b"done\n"
    assert time.monotonic() - begin < 20


def test_last_three_lines_of_stderr_are_in_the_error() -> None:
    with pytest.raises(StreamError) as caught:
        to_the_end("pipe:for i in $(seq 50000); do echo $SAID$i; done >&2; exit 1")
    assert str(caught.value).endswith("exit status 1: no such bucket49998 | no such bucket49999 | no such bucket50000")


def test_opens_leave_no_zombie_and_no_open_file() -> None:
    ways: tuple[Callable[[str], object], ...] = (to_the_end, stops_early)
    # Those of other tests, which may end meanwhile.
    others, files = children(), len(os.listdir("/proc/self/fd"))
    for number in range(300):
        if number % 5:
            ways[number % 2]("pipe:true")
        else:
            with pytest.raises(StreamError):
                to_the_end("pipe:false")
        if number % 50 == 0:
            assert children() <= others
    assert children() <= others
    assert len(os.listdir("/proc/self/fd")) <= files
