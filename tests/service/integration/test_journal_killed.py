"""The file of a service that is killed, forked, or whose disk is full."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import journalloop
import pytest

from tarkit.errors import StreamError, TarkitError
from tarkit.service.dataset import DataSet
from tarkit.service.journal import Journal, change_of, declaration_of
from tarkit.service.leases import Lease, LeaseRules, NoShard
from tarkit.service.ledger import Ledger

RULES = LeaseRules()


def lease(ledger: Ledger, worker: str = "w") -> Lease:
    given = ledger.lease(worker, 0.0)
    assert isinstance(given, Lease)
    return given


def begun(path: Path, dataset: DataSet) -> tuple[Journal, Ledger]:
    journal, ledger = Journal(str(path)), Ledger(dataset, RULES)
    journal.write([declaration_of(dataset), change_of(ledger)])
    return journal, ledger


def test_killed_at_random_points_nothing_answered_is_lost_or_given_again(tmp_path: Path) -> None:
    state, tokens, done, chance = tmp_path / "state", set[int](), set[int](), random.Random(7)
    program = [sys.executable, str(Path(journalloop.__file__)), str(state)]
    for _ in range(3):
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "begun\n"
            answers = [running.stdout.readline() for _ in range(chance.randrange(1, 60))]
            running.kill()
            answers += running.stdout.readlines()
        given: dict[int, int] = {}
        for word, token, position in (line.split() for line in answers):
            if word == "given":
                assert int(token) not in tokens, "a token was given twice"
                assert int(position) not in done, "a shard was given again that is done"
                tokens.add(int(token))
                given[int(token)] = int(position)
            else:
                assert given[int(token)] == int(position)
                done.add(int(position))
        with closing(Journal(str(state))) as journal:
            (ledger,) = journal.load(RULES, 0.0)
        assert ledger.last_token >= max(tokens, default=0)
        assert not done & {entry.position for entry in ledger.tasks.values()}
        assert all(position < ledger.handed_out for position in done)
        assert ledger.progress().done >= len(done)
    ledger.release("w")
    left = sum(1 for _ in iter(lambda: ledger.lease("w", 0.0), NoShard.WAIT))
    assert left + ledger.progress().done == ledger.dataset.shards
    assert left <= ledger.dataset.shards - len(done)


def refusal(path: Path) -> TarkitError:
    """Why a file is refused, in one line, which names it."""
    with pytest.raises(TarkitError) as caught, closing(Journal(str(path))) as journal:
        journal.load(RULES, 0.0)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return caught.value


def test_one_process_has_a_state(tmp_path: Path) -> None:
    journal, _ = begun(tmp_path / "state", DataSet("d", 1, 1))
    program = "import sys; from tarkit.service.journal import Journal; Journal(sys.argv[1])"
    other = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "state")], capture_output=True, text=True, check=False
    )
    journal.close()
    assert other.stderr.splitlines()[-1].endswith("another process uses this state; stop it, or give another file")
    Journal(str(tmp_path / "state")).close()


def test_a_process_that_was_forked_meanwhile_does_not_keep_a_state(tmp_path: Path) -> None:
    program = """if True:
        import os, sys
        from tarkit.service.journal import Journal
        journal = Journal(sys.argv[1])
        lives, ends = os.pipe()
        if os.fork() == 0:
            os.close(ends)
            os.read(lives, 1)
            os._exit(0)
        journal.close()
        Journal(sys.argv[1])
    """
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "state")], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], stderr=subprocess.PIPE, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small file system here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_loses_nothing_and_goes_on_with_room(small_disk: Path) -> None:
    journal, ledger = begun(small_disk / "state", DataSet("d", 100_000, 1))
    (small_disk / "filler").write_bytes(b"x" * 400_000)
    written = -1
    with pytest.raises(StreamError, match="state: the state cannot be written: No space left on device"):
        while True:
            change = change_of(ledger)
            journal.write([change])
            written = ledger.handed_out
            for _ in range(200):
                lease(ledger)
    with pytest.raises(StreamError, match="No space left"):
        journal.write([change])
    assert journal.load(RULES, 0.0)[0].handed_out == written
    journal.close()  # a service that is started again meanwhile
    journal = Journal(str(small_disk / "state"))
    assert journal.load(RULES, 0.0)[0].handed_out == written
    with pytest.raises(StreamError, match="No space left"):
        journal.write([change])
    (small_disk / "filler").unlink()
    journal.write([change])
    assert journal.load(RULES, 0.0)[0].handed_out == ledger.handed_out == written + 200
    journal.close()


def test_a_disk_that_cannot_be_written(small_disk: Path) -> None:
    journal, _ledger = begun(small_disk / "state", DataSet("d", 10, 1))
    journal.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for name in ("state", "new"):
        error = refusal(small_disk / name)
        assert isinstance(error, StreamError)
        assert "the state cannot be opened" in str(error)
