"""The status page of a service: plain HTML, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from html import escape

from tarkit.errors import printable
from tarkit.redaction import redact
from tarkit.service.dispatcher import Dispatcher
from tarkit.service.progress import DataSetProgress, Rate

_REFRESH = 5
_MOST_WORKERS = 200
_MOST_DEAD = 100
_MOST_DATA_SETS = 100
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #2a7; --bad: #c33; --dim: #777; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.2rem auto; padding: 0 1rem; max-width: 62rem; }
h1 { font-size: 1.3rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); } .bad { color: var(--bad); font-weight: 600; }
section { border: 1px solid var(--line); border-radius: 6px; padding: .6rem .9rem; margin: .6rem 0; }
section h3 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
.bar { height: .7rem; margin: .4rem 0; border-radius: 4px; background: var(--line); overflow: hidden; }
.bar div { height: 100%; background: var(--bar); }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: .3rem 0 0; }
dl div { display: flex; gap: .4rem; } dt { color: var(--dim); } dd { margin: 0; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--dim); font-weight: 500; white-space: nowrap; } td { overflow-wrap: anywhere; }
td.n { white-space: nowrap; }
"""


class StatusPage:
    """``html()`` is the page. state: where it is. clock: that of the dispatcher."""

    def __init__(self, dispatcher: Dispatcher, state: str, clock: Callable[[], float]) -> None:
        self._dispatcher, self._state, self._clock = dispatcher, state, clock
        self._since = clock()
        self._rates: dict[str, Rate] = {}

    def look(self) -> None:
        """Take the counts for the rates; to be called once a second, or more often."""
        for name, ledger in self._dispatcher.ledgers.items():
            self._rates.setdefault(name, Rate(self._clock)).add(ledger.progress().done)

    def html(self) -> bytes:
        """The page as it is now."""
        return "".join(self._lines()).encode("utf-8", "backslashreplace")

    def _lines(self) -> Iterator[str]:
        dispatcher = self._dispatcher
        yield (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>tarkit serve</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="refresh" content="{_REFRESH}"><style>{_STYLE}</style></head><body>'
        )
        up = timedelta(seconds=int(self._clock() - self._since))
        yield f'<h1>tarkit serve</h1><p class="dim">state {_text(self._state)}; up {up}; {self._calls()}</p>'
        if dispatcher.trouble is not None:
            yield f'<p class="bad">No shard is handed out: {_text(str(dispatcher.trouble))}</p>'
        progress = [each.progress(_MOST_DEAD) for each in [*dispatcher.ledgers.values()][:_MOST_DATA_SETS]]
        yield "<h2>Data sets</h2>"
        if not progress:
            yield "<p>No data set was declared yet.</p>"
        for each in progress:
            yield from self._data_set(each)
        yield _more(len(dispatcher.ledgers) - len(progress), "data sets")
        yield from _dead(progress)
        yield from self._workers()
        yield "</body></html>\n"

    def _calls(self) -> str:
        verdicts = ", ".join(f"{number} {word}" for word, number in sorted(self._dispatcher.verdicts.items()))
        return f"{self._dispatcher.held.number} calls held; reports: {verdicts or 'none'}"

    def _data_set(self, each: DataSetProgress) -> Iterator[str]:
        state = "ended" if each.ended else "not begun" if not each.epoch else "running"
        if each.aborted:
            state = '<span class="bad">aborted, as too many shards are dead</span>'
        if each.ended and each.dead:
            state = '<span class="bad">ended, incomplete</span>'
        yield f"<section><h3>{_text(each.name)}: {state}</h3>"
        if each.part is not None:
            yield f'<div class="bar" title="{each.part:.2%}"><div style="width:{each.part:.2%}"></div></div>'
        rate = self._rates[each.name].per_second if each.name in self._rates else 0.0
        left = each.total - each.done - each.dead
        facts = {
            "done": f"{each.done:,}{f' of {each.total:,} shards' if each.total else ' shards'}"
            + (f" ({each.part:.1%})" if each.part is not None else ""),
            "epoch": f"{each.epoch:,}{f' of {each.epochs:,}' if each.epochs else ''}",
            "leased": f"{each.leased:,}",
            "todo": f"{each.todo:,}",
            "dead": f'<span class="bad">{each.dead:,}</span>' if each.dead else "0",
            "records done": f"{each.records:,}",
            "workers": f"{each.workers:,}",
            "rate": f"{rate:,.1f} shards/s",
        }
        if rate and each.total and left:
            facts["left"] = f"about {timedelta(seconds=int(left / rate))}"
        yield f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{value}</dd></div>' for name, value in facts.items())}</dl>"
        yield "</section>"

    def _workers(self) -> Iterator[str]:
        presence, now = self._dispatcher.presence, self._clock()
        held: dict[str, list[str]] = {name: [] for name in presence.seen}
        for ledger in self._dispatcher.ledgers.values():
            for name, entries in ledger.workers().items():
                leases = held.setdefault(name, [])
                for entry in entries[:3]:
                    shard = ledger.dataset.bounds(*entry.key)
                    leases.append(f"{redact(shard.name)} {shard.start}-{shard.end}")
                if len(entries) > 3:
                    leases.append(f"… and {len(entries) - 3} more")
        # Those that are silent and hold shards first.
        order = sorted(held, key=lambda name: (not held[name], presence.seen.get(name, 0.0)))
        rows = []
        for name in order[:_MOST_WORKERS]:
            seen = presence.seen.get(name)
            ago = "before this service" if seen is None else f"{timedelta(seconds=int(now - seen))} ago"
            sign = f"{ago}, connected" if name in presence.attached else ago
            rows.append((_text(name), sign, _text("; ".join(held[name])) or '<span class="dim">none</span>'))
        yield f"<h2>Workers ({len(held):,})</h2>"
        yield _table(("worker", "last sign of life", "holds"), rows) if rows else "<p>No worker has called yet.</p>"
        yield _more(len(held) - len(rows), "workers")


def _dead(progress: Iterable[DataSetProgress]) -> Iterator[str]:
    number = sum(each.dead for each in progress)
    if not number:
        return
    rows = [
        (
            _text(f"{redact(each.name)} {each.start}-{each.end}"),
            f"{each.epoch}",
            f"{each.errors} / {each.losses}",
            _text(each.reason),
        )
        for dataset in progress
        for each in dataset.dead_shards
    ][:_MOST_DEAD]
    yield f'<h2 class="bad">Dead shards ({number:,})</h2>'
    yield _table(("shard", "epoch", "errors / lost workers", "reason"), rows)
    yield _more(number - len(rows), "dead shards")


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    top = "".join(f"<th>{name}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _more(number: int, what: str) -> str:
    return f'<p class="dim">… and {number:,} more {what}</p>' if number > 0 else ""


def _text(text: str) -> str:
    """What others named, as HTML: on one line, of bounded length."""
    return escape(printable(text))
