"""The file of a service: what was answered is in it after a kill; what cannot be opened is one line."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import journalloop
import pytest

from tarkit.errors import DataError, StreamError, TarkitError, UsageError
from tarkit.readers.reader import Shard
from tarkit.service.dataset import DataSet
from tarkit.service.journal import SKIPPED_TOKENS, VERSION, Journal, change_of, declaration_of
from tarkit.service.leases import Lease, LeaseRules, NoShard, Verdict
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


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    dataset = DataSet.of_files(
        "d\0\nä", [Shard("a", 0, 10), Shard("b", 3, 2)], 2, epochs=0, shuffle_records=True, seed=-5
    )
    journal, ledger = begun(tmp_path / "state", dataset)
    given = [lease(ledger, worker) for worker in "abcdef"]
    ledger.complete(given[0].token, 7.0)
    ledger.complete(given[1].token, 7.0, [(0, 1)])
    ledger.fail(given[2].token, 7.0, "bad\nrecord")
    ledger.lose("d")
    for _ in range(RULES.errors):
        ledger.fail(lease(ledger, "e").token, 0.0, "bad")
    journal.write([change_of(ledger)])
    journal.close()
    with closing(Journal(str(tmp_path / "state"))) as journal:
        (loaded,) = journal.load(RULES, 1e9)
        assert journal._database.execute("PRAGMA synchronous").fetchone() == (2,), "it does not wait for the disk"
    assert (loaded.dataset, loaded.progress(), loaded.longest) == (dataset, ledger.progress(), 7.0)
    assert loaded.last_token == ledger.last_token + SKIPPED_TOKENS
    assert loaded.dead() == ledger.dead()
    assert {key: (each.errors, each.losses, each.ranges) for key, each in loaded.entries.items()} == {
        key: (each.errors, each.losses, each.ranges) for key, each in ledger.entries.items()
    }
    assert loaded.complete(given[1].token, 1e9) is Verdict.ACCEPTED
    assert loaded.complete(given[3].token, 1e9) is Verdict.LATE
    assert loaded.complete(given[0].token, 1e9) is Verdict.STALE
    assert loaded.longest == 7.0  # leases of before say nothing of how long a shard takes


def test_several_data_sets_are_in_one_file(tmp_path: Path) -> None:
    first, second = DataSet("a", 4, 2), DataSet("b", 4, 2)
    journal, ledger = begun(tmp_path / "state", first)
    other = Ledger(second)
    lease(ledger), lease(other)
    journal.write([declaration_of(second), change_of(ledger), change_of(other)])
    ledger.complete(1, 0.0)
    journal.write([change_of(ledger)])
    found = journal.load(RULES, 0.0)
    journal.close()
    assert [(each.dataset.name, each.progress().done, each.progress().leased) for each in found] == [
        ("a", 1, 0),
        ("b", 0, 1),
    ]


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
        assert not done & {entry.position for entry in ledger.entries.values()}
        assert all(position < ledger.handed_out for position in done)
        assert ledger.progress().done >= len(done)
    ledger.release("w")
    left = sum(1 for _ in iter(lambda: ledger.lease("w", 0.0), NoShard.WAIT))
    assert left + ledger.progress().done == ledger.dataset.shards
    assert left <= ledger.dataset.shards - len(done)


def test_a_log_that_is_cut_anywhere_is_an_earlier_state(tmp_path: Path) -> None:
    journal, ledger = begun(tmp_path / "state", DataSet("d", 100, 2))
    states = {(0, 0)}
    for _ in range(12):
        ledger.complete(lease(ledger).token, 0.0, [(0, 1)])
        journal.write([change_of(ledger)])
        states.add((ledger.handed_out, len(ledger.entries)))
    size = (tmp_path / "state-wal").stat().st_size
    for number, length in enumerate(range(0, size, max(1, size // 40))):
        copy = tmp_path / f"copy{number}"
        shutil.copy(tmp_path / "state", copy)
        (tmp_path / f"copy{number}-wal").write_bytes((tmp_path / "state-wal").read_bytes()[:length])
        with closing(Journal(str(copy))) as cut:
            found = cut.load(RULES, 0.0)
        assert not found or (found[0].handed_out, len(found[0].entries)) in states
    journal.close()


def test_a_log_without_its_file_is_not_taken_for_that_of_a_new_one(tmp_path: Path) -> None:
    journal, ledger = begun(tmp_path / "state", DataSet("d", 100, 2))
    lease(ledger)
    journal.write([change_of(ledger)])
    log = (tmp_path / "state-wal").read_bytes()
    journal.close()
    (tmp_path / "new-wal").write_bytes(log)
    with closing(Journal(str(tmp_path / "new"))) as new:
        assert new.load(RULES, 0.0) == []


def test_a_file_that_was_emptied_beside_its_log_is_damage(tmp_path: Path) -> None:
    """SQLite began anew, and removed the log."""
    journal, ledger = begun(tmp_path / "state", DataSet("d", 100, 2))
    lease(ledger)
    journal.write([change_of(ledger)])
    log = (tmp_path / "state-wal").read_bytes()
    journal.close()
    (tmp_path / "cut-wal").write_bytes(log)
    (tmp_path / "cut").touch()
    assert "it is empty, but its log is not" in str(refusal(tmp_path / "cut"))
    assert (tmp_path / "cut-wal").read_bytes() == log
    # So a service leaves its file that was killed before it had written anything.
    (tmp_path / "cut-wal").unlink()
    with closing(Journal(str(tmp_path / "cut"))) as new:
        assert new.load(RULES, 0.0) == []


def refusal(path: Path) -> TarkitError:
    """Why a file is refused, in one line, which names it."""
    with pytest.raises(TarkitError) as caught, closing(Journal(str(path))) as journal:
        journal.load(RULES, 0.0)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return caught.value


def test_files_that_are_not_a_state(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(b"not a database, but more than a hundred bytes " * 10)
    error = refusal(tmp_path / "garbage")
    assert isinstance(error, DataError)
    assert "not the state of a shard service" in str(error)
    with closing(sqlite3.connect(tmp_path / "foreign")) as foreign:
        foreign.execute("CREATE TABLE cats (name TEXT)")
        foreign.commit()
    before = (tmp_path / "foreign").read_bytes()
    error = refusal(tmp_path / "foreign")
    assert isinstance(error, UsageError)
    assert "is a database of another program" in str(error)
    assert (tmp_path / "foreign").read_bytes() == before
    assert "is in a folder that does not exist" in str(refusal(tmp_path / "no" / "state"))
    assert "is a folder" in str(refusal(tmp_path))


@pytest.mark.parametrize(("version", "writer"), [(VERSION + 1, "a newer"), (VERSION - 1, "an older"), (-7, "an older")])
def test_a_state_of_another_version(tmp_path: Path, version: int, writer: str) -> None:
    path = tmp_path / "state"
    begun(path, DataSet("d", 1, 1))[0].close()
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    error = refusal(path)
    assert isinstance(error, UsageError)
    assert str(error).endswith(
        f"has version {version} of the state, and this tarkit needs version {VERSION}; {writer} tarkit wrote it: go on "
        "with that one, or save a checkpoint with it, and restore it in another state"
    )
    assert path.read_bytes() == before


def test_one_process_has_a_state(tmp_path: Path) -> None:
    journal, _ = begun(tmp_path / "state", DataSet("d", 1, 1))
    program = "import sys; from tarkit.service.journal import Journal; Journal(sys.argv[1])"
    other = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "state")], capture_output=True, text=True, check=False
    )
    journal.close()
    assert other.stderr.splitlines()[-1].endswith("another process uses this state; stop it, or give another file")
    Journal(str(tmp_path / "state")).close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE state SET value = replace(value, '2', '3') WHERE epoch = 0",
        "UPDATE state SET dataset = 'other' WHERE epoch = -1",
        "UPDATE state SET dataset = 'other'",
        "UPDATE state SET value = replace(value, '100', '101') WHERE epoch = -1",
        "UPDATE state SET value = replace(value, '1', '7') WHERE epoch = 1",
        "UPDATE state SET position = 7 WHERE epoch = 1 AND position = 1",
        "DELETE FROM state WHERE epoch = 1 AND position = 1",
        "DELETE FROM state WHERE epoch = 0",
        "DELETE FROM state WHERE epoch = -1",
        "DROP TABLE state",
    ],
)
def test_rows_that_others_changed_are_damage(tmp_path: Path, damage: str) -> None:
    journal, ledger = begun(tmp_path / "state", DataSet("d", 100, 2))
    lease(ledger), lease(ledger)
    journal.write([change_of(ledger)])
    journal.close()
    with closing(sqlite3.connect(tmp_path / "state")) as database:
        database.execute(damage)
        database.commit()
    error = refusal(tmp_path / "state")
    assert isinstance(error, DataError)
    assert "move it and its -wal file away to begin anew" in str(error)


@pytest.mark.parametrize(
    "field", [{"handed_out": 1}, {"epoch": 0}, {"last_token": 1}, {"token": 1}, {"position": 2}, {"lost": {2: None}}]
)
def test_rows_of_several_times_are_damage(tmp_path: Path, field: dict[str, Any]) -> None:
    """Though their checksums are right: where a disk has lost a write."""
    journal, ledger = begun(tmp_path / "state", DataSet("d", 100, 2))
    lease(ledger), lease(ledger)
    for name, value in field.items():
        setattr(ledger if hasattr(ledger, name) else ledger.entries[1, 1], name, value)
    journal.write([change_of(ledger)])
    journal.close()
    error = refusal(tmp_path / "state")
    assert isinstance(error, DataError)
    assert "move it and its -wal file away to begin anew" in str(error)


def test_flipped_bits_are_damage_or_change_nothing(tmp_path: Path) -> None:
    journal, ledger = begun(tmp_path / "state", DataSet("d", 100, 2, seed=7, shuffle_shards=True))
    for number in range(20):
        ledger.complete(lease(ledger, f"worker-{number}").token, 1.0, [(0, 1)])
    ledger.lose("worker-3")
    journal.write([change_of(ledger)])
    journal.close()
    chance, refused = random.Random(1), 0
    whole = (tmp_path / "state").read_bytes()
    # Mostly of bytes that are in use.
    places = [at for at, byte in enumerate(whole) if byte] + list(range(0, len(whole), 97))
    for number in range(100):
        damaged = bytearray(whole)
        damaged[chance.choice(places)] ^= 1 << chance.randrange(8)
        path = tmp_path / f"flipped{number}"
        path.write_bytes(damaged)
        try:
            with closing(Journal(str(path))) as journal:
                (loaded,) = journal.load(RULES, 0.0)
        except TarkitError as error:
            assert "\n" not in str(error)
            refused += 1
        else:
            assert (loaded.dataset, loaded.progress()) == (ledger.dataset, ledger.progress())
            assert loaded.last_token == ledger.last_token + SKIPPED_TOKENS
            for key, entry in ledger.entries.items():
                found = loaded.entries[key]
                assert (found.token, found.worker, found.ranges) == (entry.token, entry.worker, entry.ranges)
                assert (found.losses, [*found.lost]) == (entry.losses, [*entry.lost])
    assert refused > 10


def test_a_long_declaration_is_written_once(tmp_path: Path) -> None:
    files = [Shard(f"folder/photos-{number:06d}.tar", 0, 1000) for number in range(20_000)]
    journal, ledger = begun(tmp_path / "state", DataSet.of_files("photos", files, 100))
    before = (tmp_path / "state-wal").stat().st_size
    for _ in range(20):
        lease(ledger)
        journal.write([change_of(ledger)])
    assert (tmp_path / "state-wal").stat().st_size - before < 20 * 5 * 4096
    journal.close()


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


@pytest.mark.parametrize("name", ["state", "state-wal"])
def test_a_state_that_is_removed_while_it_is_used(name: str, tmp_path: Path) -> None:
    journal, ledger = begun(tmp_path / "state", DataSet("d", 10, 1))
    for number, replaced in ((1, False), (2, True)):
        (tmp_path / name).rename(tmp_path / "away")
        if replaced:
            (tmp_path / name).write_bytes((tmp_path / "away").read_bytes())
        lease(ledger)
        change = change_of(ledger)
        with pytest.raises(StreamError, match=f"{name} was removed, moved or replaced while it is used; put it back"):
            journal.write([change])
        (tmp_path / "away").rename(tmp_path / name)
        journal.write([change])
        assert journal.load(RULES, 0.0)[0].handed_out == number
    journal.close()


def test_a_full_disk_loses_nothing_and_goes_on_with_room(small_disk: Path) -> None:
    journal, ledger = begun(small_disk / "state", DataSet("d", 100_000, 1))
    (small_disk / "filler").write_bytes(b"x" * 400_000)
    written = -1
    with pytest.raises(StreamError, match="state: the state cannot be written: database or disk is full"):
        while True:
            change = change_of(ledger)
            journal.write([change])
            written = ledger.handed_out
            for _ in range(200):
                lease(ledger)
    with pytest.raises(StreamError, match="disk is full"):
        journal.write([change])
    assert journal.load(RULES, 0.0)[0].handed_out == written
    (small_disk / "filler").unlink()
    journal.write([change])
    assert journal.load(RULES, 0.0)[0].handed_out == ledger.handed_out == written + 200
    journal.close()


def test_a_disk_that_cannot_be_written(small_disk: Path) -> None:
    journal, ledger = begun(small_disk / "state", DataSet("d", 10, 1))
    journal.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for name in ("state", "new"):
        error = refusal(small_disk / name)
        assert isinstance(error, StreamError)
        assert "the state cannot be opened" in str(error)


def test_a_file_stays_small(tmp_path: Path) -> None:
    """However much is handed out: what is done leaves nothing, and the log begins anew."""
    journal, ledger = begun(tmp_path / "state", DataSet("d", 10**9, 1))
    held: list[Lease] = []
    largest = 0
    for number in range(1500):
        held.append(lease(ledger, f"worker-{number % 100}"))
        if len(held) > 100:
            ledger.complete(held.pop(0).token, 0.0)
        journal.write([change_of(ledger)])
        if number % 500 == 0:
            largest = max(largest, (tmp_path / "state-wal").stat().st_size)
    assert largest < 8 << 20
    journal.close()
    assert (tmp_path / "state").stat().st_size < 200_000
    assert not (tmp_path / "state-wal").exists()
