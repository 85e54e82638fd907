"""The file of a service: what was answered is in it after a kill.

What cannot be opened is one line.
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from hashlib import blake2b
from pathlib import Path

import pytest

from tarkit.errors import DataError, StreamError, TarkitError, UsageError
from tarkit.readers.reader import Shard
from tarkit.service.dataset import DataSet
from tarkit.service.journal import SKIPPED_TOKENS, VERSION, Journal, change_of, declaration_of
from tarkit.service.leases import Lease, LeaseRules, Verdict
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
    assert (loaded.dataset, loaded.progress(), loaded.longest) == (dataset, ledger.progress(), 7.0)
    assert loaded.last_token == ledger.last_token + SKIPPED_TOKENS
    assert loaded.dead() == ledger.dead()
    assert {key: (each.errors, each.losses, each.ranges) for key, each in loaded.tasks.items()} == {
        key: (each.errors, each.losses, each.ranges) for key, each in ledger.tasks.items()
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


def opened(folder: Path, file: bytes | None, ack: bytes | None) -> list[Ledger]:
    """The ledgers of a copy, with what the files of a state have; None: there is no such file."""
    folder.mkdir(exist_ok=True)
    for name, content in (("state", file), ("state-ack", ack)):
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)
    with closing(Journal(str(folder / "state"))) as journal:
        return journal.load(RULES, 0.0)


def worked(folder: Path, leases: int = 5) -> list[tuple[bytes, bytes]]:
    """What a state and its file beside it have after each write.

    The first one of a ledger is the first.
    """
    journal, ledger = begun(folder / "state", DataSet("d", 100, 2))
    found = [((folder / "state").read_bytes(), (folder / "state-ack").read_bytes())]
    for _ in range(leases):
        lease(ledger)
        journal.write([change_of(ledger)])
        found.append(((folder / "state").read_bytes(), (folder / "state-ack").read_bytes()))
    journal.close()
    return found


def test_a_line_that_was_not_acknowledged_may_be_cut_anywhere_and_no_other(tmp_path: Path) -> None:
    *_, (before, _), (acknowledged, ack), (whole, _) = worked(tmp_path, 3)
    for length in range(len(before), len(whole) + 1):
        if length < len(acknowledged):
            with pytest.raises(DataError, match="acknowledged work is missing"):
                opened(tmp_path / "copy", whole[:length], ack)
        else:
            handed_out = 3 if length == len(whole) else 2
            assert opened(tmp_path / "copy", whole[:length], ack)[0].handed_out == handed_out


def test_a_line_that_was_not_acknowledged_may_be_anything(tmp_path: Path) -> None:
    *_, (acknowledged, ack), (whole, _) = worked(tmp_path)
    line = whole[len(acknowledged) :]
    for tail in (b"\0" * 5000, line[:40] + b"\0" * (len(line) - 41) + b"\n", line.swapcase(), b"\xff\n\n\t", b"\n" * 9):
        (ledger,) = opened(tmp_path / "copy", acknowledged + tail, ack)
        assert ledger.handed_out == 4


def test_valid_lines_after_a_broken_one_are_damage(tmp_path: Path) -> None:
    """Though nothing says that they were acknowledged, as after a loss of power: a line is begun
    after the one before is on the disk.
    """
    (_, ack), (first, _), (second, _), *_, (whole, _) = worked(tmp_path)
    for at in (len(first), len(first) + 40, len(second) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        with pytest.raises(DataError, match=f"offset {len(first)}: .*after this offset acknowledged work is missing"):
            opened(tmp_path / "copy", bytes(damaged), ack)


def test_flips_and_cuts_are_refused_or_lose_nothing(tmp_path: Path) -> None:
    *_, (whole, ack) = worked(tmp_path, 3)
    chance = random.Random(7)
    places = [(0, at) for at in range(0, len(whole), 3)] + [(1, at) for at in range(len(ack))]
    flips = [(file, at, 1 << chance.randrange(8)) for file, at in places]
    for file, at, bit in [*flips, *((file, at, 0) for file, at in places)]:
        files = [bytearray(whole), bytearray(ack)]
        if bit:
            files[file][at] ^= bit
        else:
            del files[file][at:]
        try:
            found = opened(tmp_path / "copy", *map(bytes, files))
        except DataError as error:
            assert "\n" not in str(error) and "state" in str(error)
        else:
            (ledger,) = found
            assert (ledger.handed_out, ledger.last_token, len(ledger.tasks)) == (3, 3 + SKIPPED_TOKENS, 3)


def test_a_file_without_the_other_or_with_that_of_another_time_is_damage(tmp_path: Path) -> None:
    (old, old_ack), *_, (whole, ack) = worked(tmp_path)
    (tmp_path / "other").mkdir()
    *_, (other, other_ack) = worked(tmp_path / "other", 7)
    for file, beside, reason in (
        (None, ack, "this file is missing or empty, but state-ack is not"),
        (b"", ack, "this file is missing or empty, but state-ack is not"),
        (whole, None, "state-ack is missing, the proof of it"),
        (whole, b"", "or state-ack belongs to a different state"),
        (old, ack, "acknowledged work is missing"),
        (other[: len(old)], ack, "acknowledged work is missing"),
        (whole, other_ack, "or state-ack belongs to a different state"),
    ):
        with pytest.raises(DataError, match=reason) as caught:
            opened(tmp_path / "copy", file, beside)
        assert "put it and state-ack back as they were, or move both away to begin anew" in str(caught.value)
        assert {path.name for path in (tmp_path / "copy").iterdir()} == {
            name for name, content in (("state", file), ("state-ack", beside)) if content is not None
        }
    # Of an earlier time: all that was acknowledged is in the file. And as the page says, to take it
    # as it is.
    for beside in (old_ack, b"0" * 32):
        assert opened(tmp_path / "copy", whole, beside)[0].handed_out == 5


@pytest.mark.parametrize(("file", "ack"), [(None, None), (b"", None), (None, b""), (None, b"0" * 32), (b"", b"")])
def test_a_service_that_was_killed_before_it_had_written_anything_is_new(
    file: bytes | None, ack: bytes | None, tmp_path: Path
) -> None:
    assert opened(tmp_path / "copy", file, ack) == []
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"state", "state-ack"}


def test_a_loss_of_power_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no ``fsync`` was waited for may be on the disk or not, and the last line
    only in part.
    """
    monkeypatch.setattr("tarkit.service.journal._CHANGES", 300)
    file, ack, sync = tmp_path / "state", tmp_path / "state-ack", os.fsync
    on_disk: dict[int, bytes] = {}
    acks: list[bytes] = []
    files: set[int] = set()

    def fsync(fd: int) -> None:
        sync(fd)
        number = os.fstat(fd).st_ino
        if os.path.isfile(f"/proc/self/fd/{fd}"):
            on_disk[number] = Path(f"/proc/self/fd/{fd}").read_bytes()
        if ack.exists() and number == ack.stat().st_ino:
            acks[:] = [on_disk[number]]

    monkeypatch.setattr(os, "fsync", fsync)
    journal, ledger = begun(file, DataSet("d", 100, 2))
    for handed_out in range(1, 13):
        lease(ledger)
        before = file.read_bytes()
        journal.write([change_of(ledger)])
        acks.append(ack.read_bytes())
        files.add(file.stat().st_ino)
        kept = on_disk[file.stat().st_ino]
        torn = b"" if kept.startswith(before) else before[:60]
        for number, (tail, beside) in enumerate([(b"", acks[0]), (b"\0" * 99, acks[0]), (torn, acks[-1])]):
            copy = tmp_path / f"{handed_out}-{number}"
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", sync)
                (found,) = opened(copy, kept + tail, beside)
            assert found.handed_out == handed_out
    journal.close()
    assert len(files) > 1, "it was never written anew"


@pytest.mark.parametrize("fails", ["write", "fsync", "pwrite"])
def test_a_write_that_fails_is_written_again(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, ledger = begun(tmp_path / "state", DataSet("d", 100, 2))
    call: Callable[..., int] = getattr(os, fails)

    def failing(fd: int, *arguments: bytes) -> int:
        if fails == "write":
            call(fd, arguments[0][:50])
        raise OSError(errno.EIO, "Input/output error")

    lease(ledger)
    change = change_of(ledger)
    with monkeypatch.context() as patch:
        patch.setattr(os, fails, failing)
        for _ in range(2):
            with pytest.raises(StreamError, match="state: the state cannot be written: Input/output error"):
                journal.write([change])
    # A kill now is not damage; and nothing was said of the lease.
    content = (tmp_path / "state").read_bytes(), (tmp_path / "state-ack").read_bytes()
    assert opened(tmp_path / "copy", *content)[0].handed_out in (0, 1)
    lease(ledger)
    journal.write([change, change_of(ledger)])
    journal.close()
    with closing(Journal(str(tmp_path / "state"))) as journal:
        assert journal.load(RULES, 0.0)[0].handed_out == 2


def test_a_file_that_cannot_be_written_anew_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarkit.service.journal._CHANGES", 0)
    journal, ledger = begun(tmp_path / "state", DataSet("d", 10_000, 2))

    def full(*_: object, **__: object) -> None:
        raise StreamError("no space left on device")

    first = (tmp_path / "state").stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr("tarkit.service.journal.open_publish", full)
        for _ in range(20):
            lease(ledger)
            journal.write([change_of(ledger)])
    assert (tmp_path / "state").stat().st_ino == first
    lease(ledger)
    journal.write([change_of(ledger)])
    assert (tmp_path / "state").stat().st_ino != first
    journal.close()
    with closing(Journal(str(tmp_path / "state"))) as journal:
        assert journal.load(RULES, 0.0)[0].handed_out == 21


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
    assert isinstance(error, DataError)
    assert "not the state of a shard service" in str(error)
    assert (tmp_path / "foreign").read_bytes() == before
    assert "is in a folder that does not exist" in str(refusal(tmp_path / "no" / "state"))
    assert "is not a file" in str(refusal(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"garbage", "foreign"}


def _of_a_newer_version(path: Path) -> None:
    text = f"state of a tarkit shard service, version {VERSION + 1}, after {'0' * 32}"
    path.write_text(f"{blake2b(f' {text}'.encode(), digest_size=16).hexdigest()} {text}\nwhat is not known yet")


def _of_an_older_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA application_id = 0x7461726B")
        database.execute(f"PRAGMA user_version = {VERSION - 1}")
        database.execute("CREATE TABLE state (dataset TEXT)")


@pytest.mark.parametrize(
    ("write", "version", "writer"),
    [(_of_a_newer_version, VERSION + 1, "a newer"), (_of_an_older_version, VERSION - 1, "an older")],
)
def test_a_state_of_another_version(write: Callable[[Path], None], version: int, writer: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    write(path)
    before = path.read_bytes()
    error = refusal(path)
    assert isinstance(error, UsageError)
    assert str(error).endswith(
        f"has version {version} of the state, and this tarkit needs version {VERSION}; {writer} tarkit wrote it: go on "
        "with that one, or save a checkpoint with it, and restore it in another state"
    )
    assert path.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"state"}


def test_a_long_declaration_is_written_once(tmp_path: Path) -> None:
    files = [Shard(f"folder/photos-{number:06d}.tar", 0, 1000) for number in range(20_000)]
    journal, ledger = begun(tmp_path / "state", DataSet.of_files("photos", files, 100))
    before = (tmp_path / "state").stat().st_size
    for _ in range(20):
        lease(ledger)
        journal.write([change_of(ledger)])
    assert (tmp_path / "state").stat().st_size - before < 20 * 300
    journal.close()


@pytest.mark.parametrize("name", ["state", "state-ack"])
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


def test_a_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is handed out: what is done leaves nothing, and the file is written anew."""
    monkeypatch.setattr("tarkit.service.journal._CHANGES", 20_000)
    journal, ledger = begun(tmp_path / "state", DataSet("d", 10**9, 1))
    held: list[Lease] = []
    largest = 0
    for number in range(500):
        held.append(lease(ledger, f"worker-{number % 100}"))
        if len(held) > 100:
            ledger.complete(held.pop(0).token, 0.0)
        journal.write([change_of(ledger)])
        largest = max(largest, (tmp_path / "state").stat().st_size)
    assert 20_000 < largest < 60_000
    journal.close()
    assert {path.name for path in tmp_path.iterdir()} == {"state", "state-ack"}
