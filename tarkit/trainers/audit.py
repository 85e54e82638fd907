"""Check that a training used each sample once an epoch, from the records of its processes.

The rules are in ``docs/formats/audit.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate

from tarkit.errors import printable
from tarkit.samples.sample import KeyRule
from tarkit.trainers.audithistory import AuditBegin, AuditPoint, GivenBatch, is_undone, launches_of, read_history
from tarkit.trainers.auditlog import damaged_line, parsed_line
from tarkit.trainers.auditshards import AuditedShards
from tarkit.trainers.mixedorder import MixtureOrder
from tarkit.trainers.mixture import mixture_of_state
from tarkit.trainers.order import BatchOrder, EpochOrder, OrderSettings, Place, rank_slots

_ORDER = ("batch", "seed", "lanes", "turns", "run", "block")


@dataclass
class EpochAudit:
    """Audit of an epoch.

    Attributes:
        samples: number of samples of the data set, or of an epoch of a mixture.
        batches: number of batches of the epoch.
        used: number of different samples that were used; a mixture counts uses.
        left_out: number of samples that fill no batch.
        dropped: number of samples that failed, or were dropped by the transform, in used batches.
        again: number of samples whose use a later start has undone.
        in_hand: number of samples of given batches whose use is not known.
        open_batches: number of batches that were not used completely, but may still be.
        problems: samples that are missing, repeated or wrong, a sentence each.
        streams: of a mixture, number of samples of each stream that were used.
    """

    epoch: int
    samples: int
    batches: int
    used: int = 0
    again: int = 0
    left_out: int = 0
    dropped: int = 0
    in_hand: int = 0
    open_batches: int = 0
    problems: list[str] = field(default_factory=list)
    streams: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if each sample that fills a batch was used."""
        return not self.open_batches and not self.problems


def audit_folder(folder: str, urls: Iterable[str] = (), rule: str | KeyRule = "first-dot") -> list[EpochAudit]:
    """Check the records that a training has written.

    Args:
        folder: the ``audit`` folder of its data sets.
        urls: all shards that it has read in any epoch; the keys in their indexes are compared with
            those of the delivered samples.
        rule: key rule of the shards.

    Returns:
        The epochs in their order. Of epochs that no process has begun, the first one has a problem
        that names all. An epoch that was begun, and is undone since, is not complete.

    Raises:
        MissingInputError: the folder has no audit.
        UsageError: the shards are not those of the training.
        DataError: a line is damaged, or the folder also has the audit of another training.
    """
    begins, given = read_history(folder)
    shards = AuditedShards(folder, begins, list(urls), rule)
    launches = launches_of(begins)
    begins = [each for each in begins if not is_undone(each.point, each.at, each.rank, {each.launch}, launches)]
    batches: dict[int, list[tuple[GivenBatch, bool]]] = {each.point.epoch: [] for each in begins}
    last = max(batches)
    for each in given:
        undone = is_undone(each.point, each.at, each.begin.rank, each.before, launches)
        batches.setdefault(each.point.epoch, []).append((each, undone))
        last = last if undone else max(last, each.point.epoch)
    epochs: list[EpochAudit] = []
    for epoch in sorted(batches):
        judge = _EpochJudge(epoch, shards, begins, is_passed=epoch < last)
        for batch, undone in batches[epoch]:
            judge.take(batch, undone=undone)
        found = judge.result()
        if epochs and epochs[-1].epoch + 1 < epoch <= last:
            first = epochs[-1].epoch + 1
            which = f"epoch {first}" if first == epoch - 1 else f"epochs {first} to {epoch - 1}"
            problems = [f"missing: no process has begun {which}"]
            epochs.append(EpochAudit(first, found.samples, found.batches, problems=problems))
        epochs.append(found)
    return epochs


class _EpochJudge:
    """Comparison of one epoch's deliveries with its order."""

    def __init__(self, epoch: int, shards: AuditedShards, begins: list[AuditBegin], is_passed: bool) -> None:
        self._epoch, self._audited = epoch, shards
        self._begins, self._is_passed = begins, is_passed
        # The one that went on last knows the batches before it, too.
        latest = max((each for each in begins if each.point.epoch <= epoch), key=lambda each: (each.point, each.at))
        found = shards.of_state(latest.state)
        self._shards, self._given = found.shards, shards.given(found)
        self._counts = [count for _, count in self._shards]
        self._starts = [0, *accumulate(self._counts)]
        self._mixed: MixtureOrder | None = None
        try:
            # The batches of "repeat" are those of "pad", which marks what fills them.
            equalize = "drop" if latest.state["equalize"] == "drop" else "pad"
            settings = OrderSettings(**{name: latest.state[name] for name in _ORDER}, equalize=equalize)
            if "streams" in latest.state:
                self._mixed = mixture_of_state(latest.state, found.streams, self._shards, settings).order(epoch)
            self._order: BatchOrder = self._mixed or EpochOrder(self._counts, settings, epoch)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise damaged_line(latest.path, latest.offset, f"its state has no order: {error}") from None
        self._seen: dict[tuple[str, int], bytearray] = {}
        """For each pass over a stream, or for the epoch, which samples were used."""
        if self._mixed is not None:
            self._seen = shards.passes
            for part in self._mixed.parts:
                for name, number in list(self._seen):
                    if name == part.name and number < part.used // part.samples:
                        del self._seen[name, number]
        self._result = EpochAudit(epoch, self._order.samples, self._order.batches)
        self._result.left_out = max(0, self._order.samples - self._order.batches * self._order.settings.batch)
        self._used: dict[int, list[tuple[int, int, GivenBatch]]] = defaultdict(list)
        self._reached: dict[tuple[AuditPoint, int, int], int] = defaultdict(int)
        """Last batch of which these slots were used, by processes that began at a point."""

    def take(self, given: GivenBatch, *, undone: bool) -> None:
        """Count a batch."""
        samples, marks, keys = _evidence(given)
        if undone:
            self._result.again += len(samples)
            return
        later = any(each.point > given.point and each.at > given.at for each in self._begins)
        if not given.used and not later:
            self._result.in_hand += len(samples)
            return
        order = self._order
        number, rank, world = given.point.batch, given.begin.rank, given.begin.world
        first, end = rank_slots(order.settings.batch, rank, world)
        expected = order.batch(number, first, end) if number < order.batches else []
        passes = [0] * len(expected) if self._mixed is None else self._mixed.passes(number, first, end)
        # Behind those of the order are only what fills the places of samples that were left out.
        if [place[:2] for place in expected] != samples[: len(expected)] or set(marks[len(expected) :]) - {"*"}:
            self._wrong(given, samples, expected)
        for at, ((shard, sample), mark) in enumerate(zip(samples, marks, strict=True)):
            if shard >= len(self._counts) or sample >= self._counts[shard]:
                continue  # it was reported as another one than that of the order
            if mark != "-":
                self._compare_key(given, (shard, sample), keys[8 * at : 8 * at + 8])
            if at < len(expected) and not expected[at].filler:
                self._result.dropped += mark == "-"
                if self._is_again((shard, sample), passes[at]):
                    self._twice(given, (shard, sample), first + at)
                else:
                    self._count(shard, mark)
        self._used[number].append((first, end, given))
        part = given.begin.point, first, end
        self._reached[part] = max(self._reached[part], number)

    def _is_again(self, sample: tuple[int, int], number: int) -> bool:
        """Note a use of a sample; return True if the epoch, or the pass, had one before."""
        place, name, size = self._starts[sample[0]] + sample[1], "", self._starts[-1]
        if self._mixed is not None:
            part = self._mixed.parts[self._mixed.stream_of(Place(*sample))]
            place, name, size = place - self._starts[part.shard], part.name, part.samples
        if (name, number) not in self._seen:
            self._seen[name, number] = bytearray(size)
        seen = self._seen[name, number]
        is_again, seen[place] = bool(seen[place]), 1
        return is_again

    def _count(self, shard: int, mark: str) -> None:
        self._result.used += mark != "-"
        if self._mixed is not None:
            name = self._mixed.parts[self._mixed.stream_of(Place(shard, 0))].name
            self._result.streams[name] = self._result.streams.get(name, 0) + (mark != "-")

    def _twice(self, given: GivenBatch, sample: tuple[int, int], slot: int) -> None:
        others = [other for first, end, other in self._used[given.point.batch] if first <= slot < end]
        shown = " and ".join(map(str, [*others, given]))
        self._result.problems.append(f"twice: epoch {self._epoch}, {self._named(sample)}: {shown}")

    def _wrong(self, given: GivenBatch, samples: list[tuple[int, int]], expected: list[Place]) -> None:
        for at in range(max(len(samples), len(expected))):
            found = self._named(samples[at]) if at < len(samples) else "nothing"
            right = self._named(expected[at][:2]) if at < len(expected) else "nothing"
            if found != right:
                text = f"wrong: epoch {self._epoch}, {given}: it has {found} where the order has {right}"
                self._result.problems.append(text)

    def _compare_key(self, given: GivenBatch, sample: tuple[int, int], digest: str) -> None:
        digests = self._audited.digests
        if digests is not None and digests(self._given[sample[0]])[sample[1]] != digest:
            text = f"wrong: epoch {self._epoch}, {given}: what was delivered as {self._named(sample)} has another key"
            self._result.problems.append(text)

    def _named(self, sample: tuple[int, int]) -> str:
        shard, number = sample
        name = f"shard {shard}" if shard >= len(self._shards) else printable(self._shards[shard][0])
        if shard < len(self._given):
            name = self._audited.named(self._given[shard])
        return f"sample {number} of {name}"

    def result(self) -> EpochAudit:
        """Return the findings about the epoch, after all deliveries."""
        found = self._result
        for number in range(self._order.batches):
            size, end = self._order.settings.batch, 0
            for first, last in [*sorted(each[:2] for each in self._used[number]), (size, size)]:
                if first > end:
                    self._report_missing(number, end, first)
                end = max(end, last)
        lacking = found.samples - found.left_out - found.dropped - found.used
        if found.complete and lacking:
            found.problems.append(f"missing: epoch {self._epoch}: {lacking} samples")
        return found

    def _report_missing(self, number: int, first: int, end: int) -> None:
        """Report slots of a batch that no process used, if the training went on after it.

        Otherwise they may still be used.
        """
        point = AuditPoint(self._epoch, number)
        passed = self._is_passed or any(each.point > point for each in self._begins)
        passed = passed or any(
            begun <= point and lo < end and first < hi and reached > number
            for (begun, lo, hi), reached in self._reached.items()
        )
        if not passed:
            self._result.open_batches += 1
            return
        for place in self._order.batch(number, first, end):
            if not place.filler:
                text = (
                    f"missing: epoch {self._epoch}, {self._named(place[:2])}: batch {number} was not used by its rank"
                )
                self._result.problems.append(text)


def _evidence(given: GivenBatch) -> tuple[list[tuple[int, int]], list[str], str]:
    """Return the evidence of a batch: its samples, their marks and the digests of their keys.

    It is read from the logs again, since all of it would not fit in memory.
    """
    with open(given.path, "rb") as file:
        file.seek(given.offset)
        line = parsed_line(file.readline(), given.path, given.offset)
    words = line["samples"].split()
    pairs = [word.rstrip("*-").split(".") for word in words]
    marks = [word[-1] if word[-1] in "*-" else "" for word in words]
    return [(int(shard), int(sample)) for shard, sample in pairs], marks, line["keys"]
