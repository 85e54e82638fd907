"""The status page of a service: plain HTML, without anything from elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from html import escape
from itertools import islice

from tarkit.errors import printable
from tarkit.names.redaction import redact
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.progress import DataSetProgress

_MOST = 100
"""Rows of a table."""
_HEAD = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>tarkit serve</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="refresh" content="5">
<style>:root { color-scheme: light dark } body { font: 15px/1.45 system-ui, sans-serif; margin: 1.2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } .bad { color: #c33; font-weight: 600 }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8884; vertical-align: top }
</style></head><body><h1>tarkit serve</h1>
"""


def status_page(dispatcher: Dispatcher, state: str) -> str:
    """The page as it is now.

    Args:
        state: where it is.
    """
    return "".join([_HEAD, *_lines(dispatcher, state), "</body></html>\n"])


def _lines(dispatcher: Dispatcher, state: str) -> Iterator[str]:
    verdicts = ", ".join(f"{number} {word}" for word, number in sorted(dispatcher.verdicts.items()))
    yield f"<p>state {_text(state)}; {dispatcher.pending.number} calls held; reports: {verdicts or 'none'}</p>"
    if dispatcher.trouble is not None:
        yield f'<p class="bad">No shard is handed out: {_text(str(dispatcher.trouble))}</p>'
    progress = dispatcher.progress()
    yield "<h2>Data sets</h2>"
    sets = ("data set", "is", "progress", "leased", "todo", "records done", "lost leases")
    yield _table(sets, map(_data_set, progress), len(progress)) if progress else "<p>No data set was declared yet.</p>"
    if number := sum(each.dead for each in progress):
        yield f'<h2 class="bad">Dead shards ({number:,})</h2>'
        yield _table(("shard", "epoch", "errors / lost workers", "reason"), _dead(progress), number)
    held = _held(dispatcher)
    yield f"<h2>Workers ({len(held):,})</h2>"
    head = ("worker", "last heard of", "holds")
    yield (
        _table(head, _workers(dispatcher, held), len(held))
        if held
        else "<p>No worker holds a shard or waits for one.</p>"
    )


def _data_set(each: DataSetProgress) -> tuple[str, ...]:
    state = "ended" if each.ended else "running" if each.epoch else "not begun"
    if each.aborted or (each.ended and each.dead):
        why = "aborted" if each.aborted else "ended, incomplete"
        state = f'<span class="bad">{why}</span>'
    counts = (each.leased, each.todo, each.records, each.lost)
    return _text(each.name), state, each.standing, *(f"{count:,}" for count in counts)


def _dead(progress: Iterable[DataSetProgress]) -> Iterator[tuple[str, ...]]:
    for dataset in progress:
        for each in dataset.dead_shards:
            shard = _text(f"{redact(each.name)} {each.start}-{each.end}")
            yield shard, f"{each.epoch}", f"{each.errors} / {each.losses}", _text(each.reason)


def _held(dispatcher: Dispatcher) -> dict[str, list[str]]:
    """Worker -> what it holds.

    Those that hold shards first, the one that was silent for longest before the others.
    """
    seen = dispatcher.heartbeats.seen
    held: dict[str, list[str]] = {name: [] for name in dispatcher.heartbeats.attached}
    for ledger in dispatcher.ledgers.values():
        held.update({name: [] for name in dispatcher.workers(ledger) if name not in held})
        for name, entries in ledger.workers().items():
            shards = [ledger.dataset.bounds(*entry.key) for entry in entries[:3]]
            held.setdefault(name, []).extend(f"{redact(shard.name)} {shard.start}-{shard.end}" for shard in shards)
            held[name] += [f"… and {len(entries) - 3} more"] if len(entries) > 3 else []
    return {name: held[name] for name in sorted(held, key=lambda name: (not held[name], seen.get(name, 0.0)))}


def _workers(dispatcher: Dispatcher, held: dict[str, list[str]]) -> Iterator[tuple[str, ...]]:
    heartbeats, now = dispatcher.heartbeats, time.monotonic()
    for name, shards in held.items():
        seen = heartbeats.seen.get(name)
        ago = "before this service" if seen is None else f"{timedelta(seconds=int(now - seen))} ago"
        yield (
            _text(name),
            ago + (", connected" if name in heartbeats.attached else ""),
            _text("; ".join(shards) or "none"),
        )


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]], number: int) -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in islice(rows, _MOST))
    more = f"<p>… and {number - _MOST:,} more</p>" if number > _MOST else ""
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{cells}</table>{more}"


def _text(text: str) -> str:
    """What others named, as HTML: on one line, of bounded length."""
    return escape(printable(text))
