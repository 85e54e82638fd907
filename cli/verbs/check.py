"""``tarkit check``: report what is wrong with shards."""

from __future__ import annotations

import json

import click

from tarkit.errors import UsageError, counted, exit_code_of_all, printable
from tarkit.names.redaction import redact
from tarkit.steps.findings import KINDS, CheckReport

from ..shared.program import refuse_terminal_input, reject_options
from ..shared.shardverb import VerbRun, shard_verb

_EPILOG = """\b
Examples:
  tarkit check 'train-{000000..000099}.tar'
  tarkit check 'train-*.tar' --require 'jpg|png,cls' --manifest dataset.json
  tarkit check 'train-*.tar' --decode -p 8 --bad-keys bad.txt
  tarkit check 's3://bucket/train-*.tar' --json | jq -r .key

\b
Exit codes: 0 nothing is wrong, or there are warnings only; 65 findings; 66 a shard is missing.

\b
Kinds of findings:
""" + "".join(f"  {kind:<18} {meaning}\n" for kind, meaning in KINDS.items())


@shard_verb(
    "check", epilog=_EPILOG, default=(), selects=False, reader=("key_rule", "allow_pipe"),
    parallel=(2, "Number of processes that decode pictures and sound."),
)  # fmt: skip
@click.option(
    "--require", metavar="FIELDS",
    help="Fields that each sample must have; 'jpg|png,cls' is jpg or png, and cls.",
)  # fmt: skip
@click.option("--decode", is_flag=True, help="Decode pictures, JSON, arrays, sound, text and video headers.")
@click.option(
    "--repeated-contents", is_flag=True, help="Also find samples whose largest field has the same bytes, in all shards."
)
@click.option("--bad-keys", metavar="FILE", help="Write the keys of samples with findings, one a line.")
@click.option("--manifest", metavar="FILE.json", help="Compare this manifest with the shards, which it must list.")
@click.option("-q", "--quiet", is_flag=True, help="Print only findings: no progress, no summary.")
def command(
    run: VerbRun, require: str | None, decode: bool, repeated_contents: bool, bad_keys: str | None,
    manifest: str | None, parallel: int,
) -> int:  # fmt: skip
    """Report what is wrong with shards: one line for each finding, with its shard, key and offset.

    Each shard is read once, and the check resumes behind damage. It finds damaged, cut and unusual
    members, keys that are repeated in a shard or in several, fields that are repeated, lack or are
    empty, an index beside a shard that is not its index, and with --manifest, a manifest that
    differs from the shards: in samples, bytes or MD5. Without SHARD, those of the manifest are
    checked.

    --decode decodes the contents by the fields' names, and finds those that are cut, damaged or
    something else. A field without a check, content that is too large, and formats whose library is
    not installed are counted as not checked. A decoder that crashes fails one sample.

    A warning is a line that says so: the content can be used. With --json, a finding is {"shard",
    "kind", "message", "key", "field", "member", "offset", "is_warning", "beside"}, without those
    that do not apply; "beside" has the keys of further samples that damage may affect.

    --bad-keys writes a list for --without-keys of the verbs that select samples. It has the keys of
    all samples with findings, and of those beside damage, which may not be whole. If a key is
    repeated, all samples with this key would be dropped.
    """
    if not run.inputs and manifest is None:
        raise UsageError("name the shards, or with --manifest check those that it lists")
    if bad_keys == "-":
        raise UsageError("--bad-keys takes a file; findings go to standard output")
    if not decode:
        reject_options(("parallel",), "goes with --decode, whose processes it sets")
    refuse_terminal_input([str(manifest)])
    from tarkit.steps.check import check_shards

    report = CheckReport()
    run.results.only_messages = bad_keys is not None
    shards = run.shards(run.inputs or [str(manifest)], [bad_keys] if bad_keys is not None else [])

    def progress() -> None:
        if run.meter.is_due():
            read = report.tally.shards_read()
            run.meter.show(_counts(report), None if run.total is None else read / max(run.total, 1))

    for finding in check_shards(
        shards, rule=run.reading["rule"], require=require, decode=decode, repeated_contents=repeated_contents,
        manifest=manifest, bad_keys=bad_keys, parallel=parallel, report=report, progress=progress,
    ):  # fmt: skip
        run.results.line(json.dumps(finding.as_dict()) if run.as_json else str(finding))
    report.tally.damage.clear()  # each stretch is a finding
    run.notes = [_counts(report), *report.tally.phrases()]
    if bad_keys is not None:
        run.notes.append(f"{printable(redact(bad_keys))} lists {counted(report.bad_keys, 'key')}")
        if report.unlisted_keys:
            run.meter.say(f"{counted(report.unlisted_keys, 'key')} with a line break cannot be listed")
    return exit_code_of_all(report.codes)


def _counts(report: CheckReport) -> str:
    parts = [f"{counted(report.tally.shards, 'shard')}, {counted(report.tally.samples, 'sample')}"]
    for kinds, what in (
        (report.findings, "finding"), (report.warnings, "warning"), (report.unchecked, "content not checked")
    ):  # fmt: skip
        if kinds or what == "finding":
            each = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
            number = counted(sum(kinds.values()), what, what.replace("content", "contents") + "s" * (what[-1] == "g"))
            parts.append(f"{number} ({each})" if each else number)
    return "; ".join(parts)
