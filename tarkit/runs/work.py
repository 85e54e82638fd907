"""The work of a run, as data: the change of each sample, the shards, and the outputs.

The dataclass is the table of tarproc's options: each field's metadata has the flags, the kind and
the help of its option. The program makes its options from it, and Kubernetes manifests are written
and read through :meth:`Work.to_args` and :meth:`Work.from_args`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from tarkit.errors import UsageError, printable

PROGRAM = "tarproc"
"""The program whose arguments a Work is written as."""

TEXT, INTEGER, SECONDS, BYTES, FLAG = "text", "integer", "seconds", "bytes", "flag"
"""The kinds of options."""

_KINDS = {"bool": FLAG, "int": INTEGER, "float": SECONDS}
_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_IN_MANIFESTS = ("-O", "-p", "-c")
"""Flags that to_args() writes in their short form, as users do."""

Function = Callable[..., Any]


class Option(NamedTuple):
    """The form of a field on the command line.

    Attributes:
        kind: one of the kinds above.
        least, most: bounds of a number.
        recorded: it is part of the fingerprint.
    """

    flags: tuple[str, ...]
    kind: str
    default: Any
    help: str
    metavar: str | None
    choices: tuple[str, ...]
    least: int | None
    most: int | None
    recorded: bool

    @property
    def name(self) -> str:
        """Flag in messages and manifests: the long one, except for the most common options."""
        return self.flags[0] if self.flags[0] in _IN_MANIFESTS or len(self.flags) == 1 else self.flags[1]

    def parse(self, text: str) -> Any:
        """Return the value that a text stands for."""
        if self.kind == TEXT:
            return text
        if not self.recorded and re.fullmatch(r"\$\([A-Za-z_][A-Za-z0-9_]*\)", text):
            return Variable(text)
        if self.kind == BYTES:
            return parse_size(text)
        try:
            return float(text) if self.kind == SECONDS else int(text)
        except ValueError:
            raise UsageError(f"{self.name} {printable(text)!r}: write a number") from None

    def text(self, value: Any) -> str:
        """Return the text from which parse() makes the value."""
        if self.kind == BYTES and type(value) is int:
            for letter, unit in reversed(_UNITS.items()):
                if value % unit == 0:
                    return f"{value // unit}{letter.upper()}"
        return repr(value).removesuffix(".0") if self.kind == SECONDS and type(value) is float else str(value)

    def check(self, value: Any) -> None:
        """Refuse a value that is not valid."""
        if value is None and self.default is None:
            return
        types: Any = {TEXT: str, FLAG: bool, SECONDS: (int, float)}.get(self.kind, int)
        if not isinstance(value, types):
            wanted = {TEXT: "text", FLAG: "True or False", BYTES: "a number of bytes, such as 2 * 2**30"}
            hint = f"it must be {wanted.get(self.kind, 'a number')}"
            raise UsageError(f"{self.name}: {value!r} is of a wrong type ({type(value).__name__}); {hint}")
        if self.choices and value not in self.choices:
            raise UsageError(f"{self.name} {printable(value)!r} must be one of {', '.join(self.choices)}")
        if self.kind in (TEXT, FLAG) or isinstance(value, Variable):
            return
        if self.kind == SECONDS and not value > 0:
            raise UsageError(f"{self.name} {value}: it must be more than 0")
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            most = "" if self.most is None else f", at most {self.most}"
            raise UsageError(f"{self.name} {value}: it must be at least {self.least}{most}")


class Variable(int):
    """A number that the kubelet writes into a container's arguments, such as ``$(TARKIT_CPUS)``.

    On this machine its value is 1.
    """

    def __new__(cls, text: str) -> Variable:
        made = super().__new__(cls, 1)
        made._text = text
        return made

    _text: str

    def __str__(self) -> str:
        return self._text


def _option(
    flags: str,
    help: str,
    default: Any = None,
    *,
    kind: str | None = None,
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    bounds: tuple[int | None, int | None] = (None, None),
    recorded: bool = True,
) -> Any:
    """Define a field that is an option of the command line.

    Args:
        flags: one letter, or all flags; the long one is the field's name by default.
        kind: the kind of its values; by default that of its type.
    """
    return field(default=default, metadata={"option": (flags.split(), kind, help, metavar, choices, *bounds, recorded)})


def _unrecorded(flags: str, help: str, default: Any = None, **more: Any) -> Any:
    """Return an option that changes no output, or that the fingerprint contains in its own form."""
    return _option(flags, help, default, recorded=False, **more)


@dataclass(frozen=True)
class Work:
    """The work of a run: a command or function for each sample, its inputs and outputs.

    Each field is the option of tarproc that its flags name; None is where it was not given.

    Attributes:
        inputs: paths, URLs, shard specs.
        function, setup: ``module:name``, ``file.py:name``, or callables.
        work_id: the name of what is done, as far as files and options do not say it: see
            :meth:`fingerprint`.

    Raises:
        UsageError: a value has a wrong type, is not one of the choices, or is out of bounds.
    """

    inputs: tuple[str, ...] = ()
    output: str | None = _unrecorded("-o", "Shard to write; - is standard output.", metavar="OUT")
    slice: str | None = _unrecorded(
        "", "With -O: slice I (from 0) of W; W alone takes I from Kubernetes or a Slurm array.", metavar="I/W"
    )
    outdir: str | None = _unrecorded(
        "-O", "Write one shard for each input; skip those that are done.", metavar="OUTDIR"
    )
    parallel: int | None = _unrecorded(
        "-p", "Number of commands, or --map processes, that run at once; 0 means 1.  [default: 1]", bounds=(0, 4096)
    )
    list_sha256: str | None = _unrecorded(
        "", "With --slice: refuse a list of inputs that differs from the planned one.", metavar="HEX"
    )
    command: str | None = _option("-c", "Shell command to run in each sample's folder.")
    script: str | None = _unrecorded("-S", "Script to run in each sample's folder.", metavar="FILE")
    interpreter: str = _option("", "Program that runs the script.", "bash")
    filter: str | None = _unrecorded(
        "",
        "Shell command whose exit code decides: 0 keeps the sample, 1 drops it, any other fails it.",
        metavar="COMMAND",
    )
    shell: str = _option("", "Shell that runs the command.", "bash")
    shell_flags: str | None = _unrecorded(
        "",
        "Flags of the shell, before -c; with '', only the last command's exit code counts.  "
        "[default: errexit and pipefail]",
        metavar="FLAGS",
    )
    function: str | Function | None = _option(
        "--map", "Python function: module:name or file.py:name.", metavar="FUNCTION"
    )
    setup: str | Function | None = _option(
        "", "Python function, called once in each process; its result is the mapper's 2nd argument.", metavar="FUNCTION"
    )
    count: int | None = _option(
        "", "Read only the first N samples; with -O, of each input.", metavar="N", bounds=(0, None)
    )
    fields: str | None = _option("-f", "Read only these fields, separated by blanks or commas.")
    fieldmode: str = _option(
        "-F",
        "If a sample lacks one of --fields: stop, or process it without the field and count it. A field that no "
        "sample has is always an error.",
        "ignore",
        choices=("error", "ignore"),
    )
    base: str = _option("-b", "Name the files in the folder BASE.FIELD.", "sample")
    multi: bool = _option("-m", "For each base other than --base, make one more sample of its files.", False)
    subdirs: bool = _option("", "Make one more sample of each folder that the command creates.", False)
    separator: str = _option(
        "-s",
        "Text that joins the key with the base (--multi) or the folder (--subdirs).  "
        "[default: nothing for --multi, / for --subdirs]",
        "",
    )
    include: str | None = _option(
        "-I", "Write only files whose name, such as sample.jpg, matches anywhere.", metavar="REGEX"
    )
    exclude: str | None = _option("-E", "Do not write files whose name matches anywhere.", metavar="REGEX")
    require: str | None = _option(
        "",
        "Fail a sample whose result lacks one of these fields; 'jpg|png,cls' is jpg or png, and cls.",
        metavar="FIELDS",
    )
    allow_empty: bool = _unrecorded("", "Accept an output without samples: do not exit with 3.", False)
    batch: int | None = _option(
        "", "Run the command once for N samples, in the parent of their N folders.", metavar="N", bounds=(1, None)
    )
    timeout: float | None = _unrecorded(
        "", "Fail a sample whose command runs longer.  [default: no limit]", metavar="SECONDS"
    )
    add_log: str | None = _option("", "Keep the command's output (stdout, then stderr) in this field.", metavar="FIELD")
    errors: str = _option(
        "-e --errors --error-handling",
        "If a sample fails: keep it in OUT.failed.tar, skip it (both exit with 3), ignore its command's exit code, or "
        "abort the run.",
        "keep",
        choices=("keep", "skip", "ignore", "abort"),
    )
    max_errors: str = _unrecorded(
        "",
        "Abort if more than N samples fail, or P% of them (from 100 samples on, and at the end).",
        "100",
        metavar="N|P%",
    )
    force: bool = _unrecorded("", "With -O: make all shards again, also those that are done.", False)
    work_id: str | None = _unrecorded(
        "", "With -O: name of the work; under a new name, all shards are made again.", metavar="NAME"
    )
    retry_failed: str | None = _unrecorded(
        "",
        "Run only the failed samples: of OUT.failed.tar with a new -o, or of OUTDIR with -O OUTDIR.",
        metavar="SHARD",
    )
    mem: int = _unrecorded(
        "",
        "Most bytes of samples to hold in memory; with --map, a larger sample fails.",
        128 * 1024**2,
        kind=BYTES,
        bounds=(1, None),
    )
    working_dir: str | None = _unrecorded(
        "-w --working-dir --working_dir",
        "New folder for temporary files, removed at the end.  [default: one in $TMPDIR]",
        metavar="DIR",
    )
    mtime: int | None = _option(
        "",
        "Modification time of members, in seconds since 1970.  [default: $SOURCE_DATE_EPOCH, or 0]",
        metavar="SECONDS",
        bounds=(0, None),
    )
    format: str = _unrecorded(
        "",
        "For names and sizes too long for a plain header: write PAX headers, GNU tar's (for busybox), or stop.",
        "pax",
        choices=("pax", "gnu", "ustar"),
    )
    index: bool = _unrecorded(
        "",
        "Write an index NAME.idx beside each output shard; a .tar.zst is seekable then, and a .tar.gz refused.",
        False,
    )
    manifest: str | None = _unrecorded(
        "", "With -O: when all shards are made, index them and list them in this file.", metavar="FILE.json"
    )
    report: str | None = _unrecorded("", "Write the counts as JSON.", metavar="FILE")
    quiet: bool = _unrecorded("-q --quiet --silent", "Print only failures: no progress, no counts.", False)
    key_rule: str = _option(
        "",
        "Rule that splits a name into key and field: first-dot, last-dot, or a regular expression with two groups.",
        "first-dot",
        metavar="RULE",
    )
    on_duplicate_field: str = _option(
        "",
        "If two files of a sample have the same field: stop, or keep the first or last, count the other, and exit "
        "with 3.",
        "error",
        choices=("error", "first", "last"),
    )
    on_repeated_key: str = _option(
        "",
        "If a key returns later in a shard: stop, or make a sample of each run of adjacent files.",
        "error",
        choices=("error", "allow"),
    )
    on_damage: str = _option(
        "",
        "If a shard is damaged: stop, or resume at the next good header, count the losses, and exit with 3.",
        "error",
        choices=("error", "skip"),
    )
    allow_pipe: bool = _unrecorded(
        "", "Also run pipe: commands that an @list names, not only those on the command line.", False
    )
    verbose: bool = _unrecorded("-v", "Print more; for an error, also tarkit's traceback.", False)

    def __post_init__(self) -> None:
        for name, option in options().items():
            value = getattr(self, name)
            if not (name in ("function", "setup") and callable(value)):
                option.check(value)

    @property
    def has_callable(self) -> bool:
        """True if the function or its setup is an object of this process, not a name."""
        return callable(self.function) or callable(self.setup)

    def fingerprint(self) -> str:
        """Return the SHA-256 of the recorded options and the content of scripts.

        Work with the same fingerprint makes the same output from the same input. The behaviour of a
        callable does not follow from its source alone (it has a closure, globals, defaults), so its
        ``work_id`` counts.

        Raises:
            UsageError: a callable has no ``work_id``.
        """
        # Not needed for tarproc --help, where OpenSSL would take a tenth of the time.
        import hashlib
        import json

        from tarkit.samples.tarwriter import default_mtime

        if self.has_callable and self.work_id is None:
            raise UsageError("give a work_id with a function that is not named: done records cannot tell what it does")
        known = {name: getattr(self, name) for name, option in options().items() if option.recorded}
        known = {name: None if callable(value) else value for name, value in known.items()}
        known["mapper"] = known.pop("function")
        if self.mtime is None:
            known["mtime"] = default_mtime()
        if self.format != "pax":
            # Left out otherwise, so that shards done before there was a choice stay done.
            known["format"] = self.format
        if self.require is None:
            del known["require"]
        known |= self._rules_of_shell()
        known["script"] = _content(self.script)
        for name, path in self.files().items():
            known[f"{name}_file"] = _content(path)
        if self.work_id is not None:
            known["work_id"] = self.work_id
        text = json.dumps(known, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def _rules_of_shell(self) -> dict[str, str]:
        """Return the part of the fingerprint for the rules by which commands fail.

        It is left out for one simple command, whose shards are the same by any rules: shards that
        were done before the rules existed stay valid.
        """
        from tarkit.mapping.shellrules import is_simple

        known = {} if self.filter is None else {"filter": self.filter}
        if self.shell_flags:
            known["shell_flags"] = self.shell_flags
        elif self.shell_flags is None and not is_simple(self.command or self.filter or "true"):
            known["shell_flags"] = "errexit pipefail"
        return known

    def files(self) -> dict[str, str]:
        """Return the Python files of the function and its setup.

        Their content is in the fingerprint.
        """
        named = {"mapper": self.function, "setup": self.setup}
        places = {name: spec.rpartition(":")[0] for name, spec in named.items() if isinstance(spec, str)}
        return {name: place for name, place in places.items() if place.endswith(".py")}

    def to_args(self) -> list[str]:
        """Return the arguments of tarproc from which from_args() makes this work.

        Arguments with their default value are left out.
        """
        if self.has_callable:
            raise UsageError("a function that is not named cannot be an argument of tarproc; give module:name")
        words = []
        for name, option in options().items():
            if (value := getattr(self, name)) != option.default:
                words += [option.name] if option.kind == FLAG else [option.name, option.text(value)]
        return [*words, "--", *self.inputs] if self.inputs else words

    @classmethod
    def from_args(cls, words: Sequence[str]) -> Work:
        """Parse the arguments of tarproc.

        ``$(NAME)`` is kept unchanged in place of a number that is not part of the fingerprint.

        Raises:
            UsageError: tarproc does not have an option, an option has no value, or a value is not
                valid.
        """
        import getopt

        names = {flag: name for name, option in options().items() for flag in option.flags}
        kinds = {flag: "" if options()[name].kind == FLAG else ":" for flag, name in names.items()}
        short = "".join(flag[1:] + colon for flag, colon in kinds.items() if len(flag) == 2)
        long = [flag[2:] + colon.replace(":", "=") for flag, colon in kinds.items() if len(flag) > 2]
        try:
            found, inputs = getopt.gnu_getopt(list(words), short, long)
        except getopt.GetoptError as error:
            raise UsageError(printable(str(error))) from None
        given: dict[str, Any] = {
            names[flag]: options()[names[flag]].parse(text) if kinds[flag] else True for flag, text in found
        }
        return cls(inputs=tuple(inputs), **given)


@cache
def options() -> dict[str, Option]:
    """Return the options of tarproc by the names of their fields."""
    found = {}
    for each in fields(Work):
        if each.metadata:
            flags, kind, *rest = each.metadata["option"]
            long = [] if any(flag.startswith("--") for flag in flags) else [f"--{each.name.replace('_', '-')}"]
            kind = kind or _KINDS.get(str(each.type).partition(" ")[0], TEXT)
            found[each.name] = Option((*flags, *long), kind, each.default, *rest)
    return found


def parse_size(text: str) -> int:
    """Return the number of bytes of a text such as 500k, 128M or 2G (powers of 1024).

    Raises:
        UsageError: the text is not a size.
    """
    digits = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = _UNITS.get(digits[-1:], 1)
    try:
        number = float(digits[:-1] if unit > 1 else digits) * unit
    except ValueError:
        number = 0
    if not 1 <= number < 2**63:
        raise UsageError(f"{printable(text)!r} is not a size; write for example 500k, 128M or 2G")
    return int(number)


def _content(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read().decode("latin-1")
    except OSError:
        # A program on the path, or a mistake that is reported where the script is started.
        return path
