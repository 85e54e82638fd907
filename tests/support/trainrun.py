"""Run a training program, and print which records each of its epochs read: trainrun.py PROGRAM
FOLDER EPOCHS.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from tarkit.readers.recordio import RecordIODataReader

LOG = tempfile.NamedTemporaryFile("r+")
READ, PRINT = RecordIODataReader.read_records, print


def read_records(self: RecordIODataReader, task: Any) -> Iterator[bytes]:
    """The records, each of which is noted; lines that are appended by several processes do not
    mix."""
    log = os.open(LOG.name, os.O_WRONLY | os.O_APPEND)
    try:
        for record in READ(self, task):
            os.write(log, f"{hashlib.sha256(record).hexdigest()}\n".encode())
            yield record
    finally:
        os.close(log)


def at_the_end_of_an_epoch(line: str) -> None:
    """What the program prints, with the records that were read since it printed the last time."""
    LOG.seek(0)
    PRINT(json.dumps({"line": line, "records": LOG.read().split()}), flush=True)
    LOG.truncate(0)


if __name__ == "__main__":
    RecordIODataReader.read_records = read_records  # type: ignore[method-assign]
    builtins.print = at_the_end_of_an_epoch
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
