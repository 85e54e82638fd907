"""The files of a Hadoop archive as samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tarkit.errors import DataError, counted, printable
from tarkit.formats.har import HarArchive
from tarkit.formats.tally import Tally, check_policy
from tarkit.samples.content import MemberFile
from tarkit.samples.gather import refuse_same_extension
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule, skip_reason


def har_samples(
    archive: HarArchive,
    *,
    rule: str | KeyRule = first_dot,
    on_others: str = "error",
    on_same_extension: str = "error",
    mem: int | None = None,
    tally: Tally | None = None,
) -> Iterator[Sample]:
    """Yield the files of an archive as samples, in the order of their keys' first entries.

    Args:
        rule: key rule, which splits names of files into keys and fields.
        on_others: error, or skip, for files that are not part of a sample; those are counted in
            ``tally.skipped``.
        on_same_extension: error, or allow, for two files of one sample with the same last extension
            (:func:`tarkit.samples.gather.refuse_same_extension`).
        mem: largest size of a file in bytes; None: no limit.
        tally: counts members, samples and skipped files.

    Raises:
        DataError: the archive is damaged, or has a file that ``on_others`` or ``on_same_extension``
            rejects.
        StreamError, TemporaryStreamError: the archive cannot be read.
        UsageError: an argument is not valid.
    """
    check_policy("on_others", on_others, ("error", "skip"))
    check_policy("on_same_extension", on_same_extension, ("error", "allow"))
    tally = Tally() if tally is None else tally
    for files in _samples_of(archive, key_rule(rule), on_others, tally):
        if on_same_extension == "error":
            refuse_same_extension(files, key_rule(rule))
        sample: dict[str, str | bytes] = {file.field: archive.read(file.name, mem=mem) for file in files}
        yield {"__key__": files[0].key, **sample}
        tally.members += len(files)
        tally.samples += 1


def _samples_of(archive: HarArchive, rule: KeyRule, on_others: str, tally: Tally) -> Iterable[list[MemberFile]]:
    samples: dict[str, list[MemberFile]] = {}
    others: list[tuple[str, str]] = []
    for name in archive.names():
        split = rule(name)
        reason = skip_reason(name, rule)
        if reason is not None or split is None:
            others.append((name, reason or "no-extension"))
        else:
            samples.setdefault(split[0], []).append(MemberFile(name, name, *split))
    if others and on_others == "error":
        name, reason = others[0]
        raise DataError(
            f"{counted(len(others), 'file')} of the archive cannot be part of a sample, the first one: {reason}",
            url=archive.name,
            member=printable(name),
            hint="--skip-others (on_others='skip') leaves such files out",
        )
    for _, reason in others:
        tally.skip(reason)
    return samples.values()
