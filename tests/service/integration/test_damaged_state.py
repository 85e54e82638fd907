"""The files of a service that was killed, damaged: refused, or nothing that was acknowledged is
lost.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from shardservice import Caller
from statedamage import SHARDS, SIZED, Files, Killed, damaged, files_of, killed_service

from tarkit.errors import DataError
from tarkit.service.journal import Journal
from tarkit.service.leases import Lease, LeaseRules
from tarkit.service.ledger import Ledger

pytest.importorskip("grpc", reason="the shard service needs grpcio")


def put(folder: Path, files: Files) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def loaded(folder: Path, files: Files) -> Ledger | DataError | None:
    """What a service finds: a ledger, none, or why it is refused, in one line.

    Then the files are as they were.
    """
    put(folder, files)
    try:
        with closing(Journal(str(folder / "iris"))) as journal:
            return next(iter(journal.load(LeaseRules(), 0.0)), None)
    except DataError as error:
        assert "\n" not in str(error) and str(folder / "iris") in str(error)
        assert files_of(folder) == files, "a file was changed that was refused"
        return error


def loses(killed: Killed, ledger: Ledger | None) -> bool:
    """Whether what was acknowledged is handed out again, or a token is."""
    if ledger is None or ledger.last_token < killed.last:
        return True
    for worker in ledger.workers():
        ledger.release(worker)
    again: set[int] = set()
    while isinstance(lease := ledger.lease("w", 0.0), Lease):
        again.add(lease.shard.start)
    return bool(again & killed.acknowledged)


def test_each_damage_after_a_kill_is_refused_or_loses_nothing(tmp_path: Path) -> None:
    killed, other = killed_service(tmp_path / "killed"), killed_service(tmp_path / "other", reports=2)
    whole = loaded(tmp_path / "whole", killed.files)
    assert isinstance(whole, Ledger) and not loses(killed, whole)
    refused, lost = 0, []
    for number, (damage, files) in enumerate(damaged(killed, other.files, flips=20, cuts=10)):
        found = loaded(tmp_path / str(number), files)
        if isinstance(found, DataError):
            refused += 1
        elif loses(killed, found):
            lost.append(damage)
    assert lost == []
    assert refused > 40


@pytest.mark.elasticdl
@pytest.mark.slow
def test_a_service_that_is_started_after_each_damage(tmp_path: Path) -> None:
    """As before, of more damages, by the program itself: exit code 65 and one line, or
    it goes on.
    """
    killed, other = killed_service(tmp_path / "killed"), killed_service(tmp_path / "other", reports=2)

    def end(numbered: tuple[int, tuple[str, Files]]) -> str:
        number, (damage, files) = numbered
        return end_of_service(tmp_path / str(number), killed, damage, files)

    # Side by side, as a start waits for the disk and for the network.
    with ThreadPoolExecutor(4) as pool:
        ends = Counter(pool.map(end, enumerate(damaged(killed, other.files, flips=70, cuts=50))))
    sys.stderr.write(f"damaged states: {dict(ends)}\n")
    assert ends.total() >= 200 and ends.keys() == {"refused", "went on"}


def end_of_service(folder: Path, killed: Killed, damage: str, files: Files) -> str:
    """Start a service on these files: it is refused as it should be, or goes on and
    loses nothing.
    """
    put(folder, files)
    ready = folder.with_suffix(".ready")
    command = [sys.executable, "-m", "tarkit.cli.tarkit", "serve", *SIZED, "--state", str(folder / "iris")]
    command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not ready.exists():
            time.sleep(0.01)
        if ready.exists():
            with Caller(ready.read_text().split()[0]) as call:
                leases = call("Exchange", worker="z", want=SHARDS).leases
            process.kill()
        out, err = process.communicate()
    if ready.exists():
        assert not {lease.start for lease in leases} & killed.acknowledged, f"{damage}: handed out again"
        assert min(lease.token for lease in leases) > killed.last, f"{damage}: a token was given twice"
        return "went on"
    assert (process.returncode, out) == (65, ""), f"{damage}: {err}"
    assert err.count("\n") == 1 and str(folder / "iris") in err and "put it and iris-ack back" in err
    assert files_of(folder) == files
    return "refused"
