"""The bar of a run in a program, and where it is shown."""

from __future__ import annotations

import io
import sys
import types
from typing import Any

import pytest

from tarkit.errors import UsageError
from tarkit.formats.tally import Tally
from tarkit.runs import process as process_module
from tarkit.runs.counts import Counts
from tarkit.runs.engine import Reporter
from tarkit.runs.process import process
from tarkit.runs.progress import BarReporter
from tarkit.runs.progressbar import ProgressBar, is_notebook, is_terminal
from tarkit.runs.work import Work


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, which is a terminal from now on."""
    found = Terminal()
    monkeypatch.setattr("os.get_terminal_size", lambda fd: types.SimpleNamespace(columns=0))
    monkeypatch.setattr(sys, "stderr", found)
    return found


def test_a_short_run_shows_nothing_and_a_longer_one_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    now = [0.0]
    bar = BarReporter(Work(count=100), clock=lambda: now[0])
    bar.started(Counts(), None, failed_are_kept=True)
    bar.advanced(1, 0)
    assert terminal.getvalue() == ""
    now[0] = 10.0
    bar.advanced(40, 1)
    bar.close()
    shown = terminal.getvalue()
    assert " 40%|" in shown and "| 40 samples so far, 1 failed [00:10<00:15, 4.00/s]" in shown
    assert shown.endswith("\r")


def test_shards_are_a_part_too(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    now = [0.0]
    counts, tally = Counts(shards_before=1, shards_done=2), Tally(shards=1)
    bar = BarReporter(Work(outdir="out"), clock=lambda: now[0])
    bar.started(counts, 5, failed_are_kept=True)
    bar.reading(tally)
    bar.reading(tally)
    now[0] = 1.0
    bar.advanced(3, 0)
    assert " 50%|" in terminal.getvalue() and "3 of 5 shards done" in terminal.getvalue()
    bar.close()


def test_without_a_total_there_is_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    bar = ProgressBar(2.0)
    bar.show("3 of 4 files so far, 5000000 bytes", None)
    assert "3 of 4 files so far, 5000000 bytes [00:02, 2.50MB/s]" in terminal.getvalue()
    bar.clear()
    bar.refresh()
    bar.close()


def test_a_notebook_without_widgets_gets_text_on_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where standard error is red."""
    assert not is_notebook() and not is_terminal()
    kernel = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # type: ignore[arg-type]
    assert is_notebook()
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    bar = ProgressBar(1.0)
    bar.show("7 samples so far", 0.5)
    bar.close()
    assert "7 samples so far [00:01<00:01, 7.00/s]" in out.getvalue() and err.getvalue() == ""


@pytest.mark.parametrize(
    ("options", "place", "shown"),
    [
        ({}, None, False),
        ({}, "is_terminal", True),
        ({}, "is_notebook", True),
        ({"quiet": True}, "is_terminal", False),
        ({"progress": False}, "is_terminal", False),
        ({"progress": True}, None, True),
        ({"reporter": Reporter()}, "is_terminal", False),
    ],
)
def test_where_it_is_shown(
    options: dict[str, Any], place: str | None, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporters: list[Any] = []
    monkeypatch.setattr(process_module, "_process", lambda work, reporter: reporters.append(reporter))
    for name in ("is_terminal", "is_notebook"):
        monkeypatch.setattr(process_module, name, lambda name=name: name == place)
    process("a.tar", command="true", **options)
    assert [isinstance(each, BarReporter) for each in reporters] == [shown]


def test_a_bar_and_a_reporter() -> None:
    with pytest.raises(UsageError, match="give one of them"):
        process("a.tar", command="true", progress=True, reporter=Reporter())


def test_counts_are_printed_as_the_line_of_a_run() -> None:
    counts = Counts(read=6, out=4, failed=2, failed_output="s3://k:s@b/o.tar", met=Tally(skipped={"hidden": 1}))
    line = "in 6 = out 4 + filtered 0 + failed 2; failed samples are in s3://b/o.tar; skipped members: hidden 1"
    assert (repr(counts), str(counts)) == (line, line)
    assert repr(Counts(shards_done=2, shards_missing=1)).startswith(
        "shards: done 2, done before 0, failed 0, missing 1; samples: in 0 = out 0"
    )
