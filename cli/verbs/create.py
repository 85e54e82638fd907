"""``tarkit create``: make shards of files, class folders, plans and tables."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, UsageError, counted

from ..shared.downloads import (
    download_options,
    failure_notes,
    is_download,
    options_of_downloads,
    report_fetched,
    row_counter,
)
from ..shared.meter import Meter
from ..shared.program import (
    gathering_options,
    is_default,
    option_group,
    quiet_option,
    refuse_terminal_input,
    reject_options,
    say,
    standard_options,
    work_option,
    write_message,
)
from ..shared.results import Results
from ..shared.sections import LongHelp
from ..shared.series import (
    check_series_options,
    name_printer,
    open_shards,
    shard_count_option,
    shards_options,
    summarize,
)
from ..shared.tableoptions import TABLE_TEXT, column_fields, columns_option, table_text_options

if TYPE_CHECKING:
    from tarkit.samples.sample import Sample
    from tarkit.steps.create import Source
    from tarkit.steps.tablerows import Wanted

_NAME = "tarkit create"
_EPILOG = """\b
Examples:
  tarkit create -o train.tar images/
  tarkit create pictures/ --classes --split train=0.9,val=0.1 -o '%s-%06d.tar'
  tarkit create --table captions.csv --key id --files path=jpg --columns caption=txt -o 'train-%06d.tar'
  find data -name '*.jpg' -print0 | tarkit create -T - -0 -o 'train-%06d.tar' --maxcount 1000
  printf '%s\\n' '000001.jpg s3://bucket/cat.jpg' '000001.cls text:3' | tarkit create --plan - -o one.tar
"""


_TABLE = option_group(
    click.option("--table", metavar="FILE", help="Table whose rows become samples: .csv, .tsv, .jsonl or .parquet."),
    click.option("--key", metavar="COLUMN", help="Column of the keys.  [default: the number of the row]"),
    columns_option,
    click.option(
        "--files", multiple=True, metavar="COLUMN=FIELD", callback=column_fields,
        help="Column of paths or URLs, whose content becomes this field.",
    ),
    table_text_options,
    download_options,
    click.option(
        "--failed-rows", metavar="FILE",
        help="Table of URLs that could not be fetched, .csv.  [default: beside the output]",
    ),
)  # fmt: skip
_TABLE_OPTIONS = ("key", "columns", "files", *TABLE_TEXT)
_ORDER = option_group(
    shard_count_option,
    click.option("--shuffle", "shuffle_seed", metavar="SEED", help="Shuffle the samples; this text decides the order."),
    click.option(
        "--split", "shares", metavar="NAME=SHARE,...",
        help="Make parts, such as train=0.9,val=0.1, by the hash of the key; %s in OUT is their name.",
    ),
    click.option(
        "--split-by", metavar="COLUMN|REGEX",
        help="Keep rows with one value of a column, or keys with one match (or first group), in one part.",
    ),
    click.option("--map", "function", metavar="FUNCTION", help="Pass each sample to MODULE:NAME or FILE.py:NAME."),
    click.option(
        "--errors", type=click.Choice(["abort", "skip"]), default="abort", show_default=True,
        help="If the function of --map raises an exception: abort, or leave the sample out, and exit with 3.",
    ),
)  # fmt: skip


@click.command("create", cls=LongHelp, epilog=_EPILOG)
@click.argument("paths", metavar="[FILE|FOLDER|@LIST]...", nargs=-1)
@shards_options()
@click.option("-T", "--files-from", metavar="FILE", help="List of files, one on each line; - is standard input.")
@click.option("-0", "--null", is_flag=True, help="Names in the list of -T end with NUL, as of find -print0.")
@click.option("--classes", is_flag=True, help="Take the folders in FOLDER as classes, numbered in the field cls.")
@click.option("--classes-from", metavar="FILE", help="Table of classes, such as the classes.json of other shards.")
@_TABLE
@click.option("--plan", metavar="FILE", help="File of lines NAME SOURCE that list the members; - is standard input.")
@click.option("--allow-pipe", is_flag=True, help="Allow the plan to run commands: sources such as pipe:CMD.")
@click.option("-C", "--directory", metavar="FOLDER", help="Folder in which relative paths begin.")
@_ORDER
@gathering_options
@work_option("key_rule")
@click.option(
    "-p", "--parallel", type=click.IntRange(1), default=1, show_default=True,
    help="Number of --map processes that run at once.",
)  # fmt: skip
@work_option("mem")
@quiet_option
@standard_options
def command(
    paths: tuple[str, ...], output: str, manifest: str | None, shard_count: int | None, shuffle_seed: str | None,
    shares: str | None, split_by: str | None, function: str | None, errors: str, parallel: int, mem: int,
    key_rule: str, quiet: bool, as_json: bool, verbose: bool, maxcount: int, maxsize: int, start: int, force: bool,
    dry_run: bool, mtime: float | None, format: str, index: bool, failed_rows: str | None, **inputs: Any,
) -> int:  # fmt: skip
    """Make shards of files, class folders or tables, or of a plan's sources.

    With a number in its name, as in -o out-%06d.tar, the output is a series of shards, as tarkit
    split writes it; their names are printed as they are published.

    Members are named as on the command line, without a leading / or ./. Samples are sorted by key,
    so that the files of each are adjacent; use a plan for a different order. A file whose name has
    no key or field is an error, unless --skip-others. Links to files are followed. A list (-T, or
    @LIST, where lines that begin with # are comments) names files and folders.

    Everything after the first dot of a file's name is the field. So img_0.5.jpg and img_0.7.jpg
    would be one sample, img_0, where two were meant (--key-rule last-dot makes two); but
    a.input.png and a.output.png are one sample, a. Files of one sample that have the same last
    extension are an error; --on-same-extension allow accepts them. This comparison
    ignores case, and treats jpeg as jpg and tiff as tif.

    With --classes, the folders in FOLDER are classes, numbered from 0 in the order of torchvision's
    ImageFolder. Each sample gets the number in its field cls; its key begins with the name of its
    class, with _ for blanks. The table of names and numbers, classes.json, is written beside the
    shards; pass it as --classes-from for validation data, so that a class has one number in both.
    Hidden files are left out and counted.

    A row of a table is a sample. Text becomes the field COLUMN.txt, bytes COLUMN, numbers and lists
    COLUMN.json; columns that are called txt, json or cls are fields of that name. --columns chooses
    columns and names fields. Values of CSV and TSV stay text: 007 is 007. Null and NaN are not a
    field, and are counted. Relative paths in a column of --files begin in the table's folder, or
    that of -C; if it is the column of the keys, too, the key is the path without its extension.

    URLs of http and https in a column of --files are fetched, many at once. A file that is not what
    the extension of its field says by its first bytes, that a site excludes (robots.txt,
    X-Robots-Tag), or that comes from a private address is a failure. The rows of failures are left
    out and listed, and the exit code is 3; the same command again fetches only those, and puts them
    into their places. It resumes after a kill, too. A shard has --maxcount rows [default: 10000],
    without those that failed. With --map, or standard input or output, all files are fetched each
    time.

    A sample's part (--split) depends on its key only, so that it stays there when data is added.
    --shuffle keeps the rows of a table in memory, and their values in $TMPDIR above 256 MiB.

    A line of a plan is NAME SOURCE. SOURCE is text:TEXT (the rest of the line), file:PATH, a URL, a
    plain path, or with --allow-pipe, pipe:COMMAND. Blank lines and lines that begin with # are
    skipped. Samples keep the plan's order; lines of one sample must be adjacent. Content is not
    decompressed. Content above 32 MiB from a URL or a command is kept in $TMPDIR until it is
    written.
    """
    _check(paths, shares, **inputs)
    inputs = {name: value for name, value in inputs.items() if not is_download(name)}
    from tarkit.names.url import is_stream
    from tarkit.steps.create import Mapped, create, table_parts
    from tarkit.steps.parts import parse_shares, part_names
    from tarkit.steps.tablerows import Table

    parts = None if shares is None else parse_shares(shares)
    names = part_names(output, parts)
    manifests = dict.fromkeys(names) if manifest is None else part_names(manifest, parts)
    tables = dict.fromkeys(names) if failed_rows is None else part_names(failed_rows, parts)
    leave_out = [*names.values(), *manifests.values(), *tables.values()]
    reasons: Counter[str] = Counter()
    listed = failed_rows
    urls = ExitStack()

    def read_urls(rows: Iterable[Wanted]) -> Iterable[Sample]:
        from tarkit.steps.failedrows import failed_table_name, fetched_and_listed

        nonlocal listed
        if dry_run or (is_stream(output) and listed is None):
            what = "--dry-run with --map or -o - does not fetch" if dry_run else f"-o {output} needs --failed-rows for"
            raise UsageError(f"{what} the URLs of a table")
        listed = listed or failed_table_name(output.replace("%s", ""))
        found = fetched_and_listed(rows, options_of_downloads(), listed, reasons)
        urls.callback(found.close)
        return found

    source = _source(paths, names.values(), key_rule, start, force, dry_run, leave_out, read_urls, **inputs)
    mapped = None if function is None else Mapped(
        function, parallel, mem, errors, lambda text: write_message(2, text)
    )  # fmt: skip
    limits = (maxcount, maxsize) if shard_count is None else (sys.maxsize, sys.maxsize)
    with Meter(_NAME, quiet=quiet) as meter, Results(only_messages=True) as results, urls:
        if mapped is None and not is_stream(output) and isinstance(source, Table) and source.names_urls():
            from tarkit.steps.rowshards import MAX_ROWS, create_from_rows

            reject_options(["maxsize"], "does not go with URLs, whose sizes are not known; use --maxcount")
            check_series_options(output)
            most = MAX_ROWS if is_default("maxcount") else maxcount
            found = {
                part: create_from_rows(
                    rows, names[part], options_of_downloads(), maxcount=most, cuts=cuts, start=start,
                    manifest=manifests[part], failed_table=tables[part], force=force, dry_run=dry_run,
                    published=name_printer(meter, results), each=row_counter(meter), mtime=mtime, format=format,
                    index=index, rule=key_rule,
                )
                for part, rows, cuts in table_parts(source, parts, split_by, shuffle_seed, shard_count)
            }  # fmt: skip
            _say_rule(key_rule)
            return report_fetched(_NAME, found, results, notes=source.notes, quiet=quiet, dry_run=dry_run)
        with ExitStack() as stack:
            # In reverse, so that the first part is published first.
            outputs = {
                name: stack.enter_context(
                    open_shards(
                        _NAME, names[name], meter, results, lambda _: source.inputs, manifest=manifests[name],
                        maxcount=limits[0], maxsize=limits[1], start=start, force=force, dry_run=dry_run, mtime=mtime,
                        format=format, index=index, rule=key_rule,
                    )
                )
                for name in reversed(names)
            }  # fmt: skip

            def progress(done: int, total: int | None) -> None:
                if meter.is_due():
                    meter.show(f"{counted(done, 'sample')} so far", total and done / total)

            create(
                source, outputs, shares=parts, split_by=split_by, shuffle=shuffle_seed, shards=shard_count,
                mapped=mapped, progress=progress,
            )  # fmt: skip
        _say_rule(key_rule)
        notes = [*source.notes, *(mapped.notes() if mapped is not None else ()), *failure_notes(reasons, listed or "")]
        for line in mapped.failed if mapped is not None else ():
            say(_NAME, line)
        for name in names:
            about = {"part": name} if name else {}
            summarize(f"{_NAME}: {name}" if name else _NAME, outputs[name], results, notes=notes, quiet=quiet, **about)
            notes = []
    return EXIT_SET_ASIDE if reasons or (mapped is not None and mapped.failures) else EXIT_OK


def _say_rule(key_rule: str) -> None:
    if key_rule != "first-dot":
        say(_NAME, f"read it with --key-rule {key_rule!r}: by another rule these names are other samples")


def _check(
    paths: Sequence[str], shares: str | None, *, plan: str | None, table: str | None, files_from: str | None,
    classes: bool, classes_from: str | None, null: bool, **others: Any,
) -> None:  # fmt: skip
    """Reject options that do not go together."""
    given = [name for name in (plan, table, (*paths, files_from or "") if paths or files_from else None) if name]
    if len(given) != 1:
        what = "files or folders, or --plan FILE, or --table FILE"
        raise UsageError(f"give {what}" if not given else "give files, --plan or --table, not both")
    if plan is None:
        reject_options(["allow_pipe"], "goes with --plan")
    if table is None:
        reject_options(_TABLE_OPTIONS, "goes with --table")
    if not others["files"]:
        reject_options([*filter(is_download, click.get_current_context().params), "failed_rows"], "goes with --files")
    if plan or table:
        reject_options(["skip_others", "classes", "classes_from", "null"], "goes with files")
    if files_from is None:
        reject_options(["null"], "goes with -T")
    if (classes or classes_from) and (files_from or len(paths) != 1 or paths[0].startswith("@")):
        raise UsageError("--classes takes one folder, whose folders are the classes")
    if shares is None:
        reject_options(["split_by"], "goes with --split")
    parameters = click.get_current_context().params
    if parameters["function"] is None:
        reject_options(["errors", "parallel", "mem"], "goes with --map")
    if parameters["shard_count"] is not None:
        reject_options(["maxcount", "maxsize"], "and --shards exclude each other")
    refuse_terminal_input([name for name in (plan, table, files_from) if name is not None])


def _source(
    paths: Sequence[str], outputs: Iterable[str], key_rule: str, start: int, force: bool, dry_run: bool,
    leave_out: Iterable[str | None], fetched: Callable[[Iterable[Wanted]], Iterable[Sample]], *, plan: str | None,
    allow_pipe: bool, table: str | None, files_from: str | None,
    null: bool, classes: bool, classes_from: str | None, directory: str | None, skip_others: bool,
    on_same_extension: str, key: str | None, columns: Any, files: Any, delimiter: str | None, quoting: str | None,
    encoding: str,
) -> Source:  # fmt: skip
    """Return the samples to write."""
    from tarkit.samples.gather import refuse_same_extension
    from tarkit.samples.sample import key_rule as rule_of
    from tarkit.steps.samplefiles import class_files, gathered_files, listed_names, own_names, planned_files

    rule = rule_of(key_rule)
    outputs = list(outputs)
    own = own_names(outputs, start, leave_out)
    if table is not None:
        from tarkit.steps.tablerows import Table

        is_quoted = None if quoting is None else quoting == "csv"
        return Table(
            table, key, columns, files, folder=directory, delimiter=delimiter, quoting=is_quoted, encoding=encoding,
            rule=rule, fetched=fetched,
        )  # fmt: skip
    if plan is not None:
        found = planned_files(plan, rule=rule, folder=directory or ".", allow_pipe=allow_pipe)
    elif classes or classes_from is not None:
        from tarkit.steps.classfolders import read_classes

        numbers = None if classes_from is None else read_classes(classes_from)
        root = os.path.join(directory or "", paths[0])
        found = class_files(
            root, numbers, outputs, rule=rule, leave_out=own, skip_others=skip_others, force=force, dry_run=dry_run
        )
    else:
        listed = listed_names(files_from, null=null) if files_from is not None else ()
        found = gathered_files(
            paths, listed, rule=rule, folder=directory or ".", leave_out=own, skip_others=skip_others
        )  # fmt: skip
    if on_same_extension == "error":
        refuse_same_extension(found.files, rule)
    return found
