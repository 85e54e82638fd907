"""``tarkit help``: print the help of a verb, or the verb of today for an older program."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from tarkit.errors import UsageError, printable

from ..shared.program import nearest, standard_options, write_stdout

_EPILOG = """\b
Examples:
  tarkit help split
  tarkit help tarcats
"""
_JOIN = "tarkit cat 'train-{0000..0147}.tar' -o train.tar"
OLDER = {
    "tarcat": _JOIN,
    "tarcats": _JOIN,
    "tarscat": _JOIN,
    "tarpcat": "tarkit cat -p 4 'train-{0000..0147}.tar' -o train.tar",
    "tarmix": "tarkit mix photos.tar drawings.tar --weights 3,1 -o mixed.tar",
    "tarfirst": "tarkit select train.tar --where 'cls == 180' -o some.tar",
    "tarshow": "tarkit show train.tar --html sheet.html",
    "tarsplit": "tarkit split train.tar -o 'train-%06d.tar' --maxcount 10000",
    "tarcreate": "tarkit create --plan plan.tsv -o train.tar",
    "tarsort": "tarkit sort train.tar -O sorted --by key --shards 1",
    "dsort": "tarkit sort 'train-{0000..0147}.tar' -O sorted --by key --maxsize 1G",
    "tsv2tar": "tarkit create --table data.tsv --key id -o 'train-%06d.tar'",
    "lines2tar": "tarkit create --table data.jsonl --key id -o train.tar",
    "tar2tsv": "tarkit export train.tar --to csv -o train.csv",
    "tar2json": "tarkit export train.tar --to jsonl -o train.jsonl",
    "tarproc": "tarproc -p 4 -c 'convert sample.jpg sample.png' train.tar -o out.tar",
    "wds2idx": "tarkit index 'train-{0000..0147}.tar' -p 4",
    "widsindex": "tarkit index 'train-{0000..0147}.tar' --manifest train.json",
    "img2dataset": "tarkit create --table urls.parquet --key id --files url=jpg -o 'train-%06d.tar'",
    "ishard": "tarkit create pictures/ -o 'train-%06d.tar' --classes",
}
"""Program -> a command line that does its task today. ``tarp VERB`` has that of ``tarVERB``."""


def _offered(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    group = context.find_root().command
    verbs = group.list_commands(context) if isinstance(group, click.Group) else []
    return [CompletionItem(name) for name in (*verbs, *OLDER) if name.startswith(incomplete)]


@click.command("help", epilog=_EPILOG)
@click.argument("words", metavar="[NAME]...", nargs=-1, shell_complete=_offered)
@standard_options
@click.pass_context
def command(context: click.Context, words: tuple[str, ...], verbose: bool) -> None:
    """Print the help of a verb, or name the verb for an older program.

    NAME is a verb of tarkit, or a program of tarproc, tarp, WebDataset, DALI, img2dataset or
    AIStore, such as tarcats, tarsort, tsv2tar or wds2idx: for these, the verb that does their task
    today is printed with a command line. Without NAME, the verbs are listed.
    """
    place = context.find_root()
    name = " ".join(words)
    if (line := OLDER.get(name.replace("tarp ", "tar", 1))) is not None:
        last = line.split()
        today = " ".join(last[: 2 if last[0] == "tarkit" else 1])
        write_stdout(f"{name}: use {today}, for example\n  {line}\n".encode())
        return
    for word in words:
        group = place.command
        found = group.get_command(place, word) if isinstance(group, click.Group) else None
        if found is None:
            known = [each.value for each in _offered(context, context.command.params[0], "")]
            raise UsageError(f"no command or program {printable(name)!r}; {nearest(name, known)}")
        place = click.Context(found, parent=place, info_name=word)
    write_stdout(f"{place.get_help()}\n".encode())
