"""Hadoop archives to tar shards, and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tarkit.errors import DataError, UsageError, counted, printable
from tarkit.formats.fieldfile import FieldFile
from tarkit.formats.har import HarArchive, HarWriter
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import KeepInFiles
from tarkit.samples.gather import MemberFile, refuse_same_extension
from tarkit.samples.read import read_samples
from tarkit.samples.sample import KeyRule, Sample, first_dot, is_reserved, key_rule, skip_reason
from tarkit.samples.tarwriter import TarWriter

OTHERS_POLICIES = ("error", "skip")
SAME_EXTENSION_POLICIES = ("error", "allow")


def har_to_tar(
    archive: HarArchive,
    writer: TarWriter,
    *,
    rule: str | KeyRule = first_dot,
    on_others: str = "error",
    on_same_extension: str = "error",
    tally: Tally | None = None,
) -> None:
    """Write the files of an archive as samples, in the order in which their keys come first in the archive's contents.

    Args:
        writer: open; it is not closed.
        rule: key rule, by which names of files are keys and fields.
        on_others: error, or skip, for files that are not part of a sample; those are counted in ``tally.skipped``.
        on_same_extension: error, or allow, for two files of one sample with the same last extension
            (:func:`tarkit.samples.gather.refuse_same_extension`).
        tally: members and samples that were written, and what was skipped.

    Raises:
        DataError: the archive is damaged; ``on_others`` or ``on_same_extension``. StreamError, TemporaryStreamError: it
        cannot be read, or the shard not written. UsageError: a wrong argument.
    """
    for sample in har_samples(
        archive, rule=rule, on_others=on_others, on_same_extension=on_same_extension, tally=tally
    ):
        writer.write(sample)


def har_samples(
    archive: HarArchive,
    *,
    rule: str | KeyRule = first_dot,
    on_others: str = "error",
    on_same_extension: str = "error",
    mem: int | None = None,
    tally: Tally | None = None,
) -> Iterator[Sample]:
    """The files of an archive as samples; see :func:`har_to_tar`. mem: bytes that a file may have; None: any number."""
    for value, policies in ((on_others, OTHERS_POLICIES), (on_same_extension, SAME_EXTENSION_POLICIES)):
        if value not in policies:
            raise UsageError(f"{value!r} is not a policy; it must be one of {', '.join(policies)}")
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


def tar_to_har(
    urls: str | os.PathLike[str] | Iterable[str],
    writer: HarWriter,
    *,
    rule: str | KeyRule = first_dot,
    on_damage: str = "error",
    tally: Tally | None = None,
) -> None:
    """Write the samples of shards as files of an archive, called as the members of the shards are.

    Args:
        urls: shards, as :func:`tarkit.read_samples` takes them.
        writer: open; it is not closed.
        rule, on_damage, tally: as :func:`tarkit.read_samples`.

    Raises:
        As :func:`tarkit.read_samples`. EncodeError: two shards have a member of one name, or a name cannot be a path.
    """
    for sample in read_samples(urls, split=True, rule=rule, on_damage=on_damage, tally=tally, large=KeepInFiles()):
        for field, content in sample.items():
            if not is_reserved(field):
                writer.write(
                    f"{sample['__key__']}.{field}", content.pieces() if isinstance(content, FieldFile) else content
                )
