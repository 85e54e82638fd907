"""Selection of the reader for a source of data: by name, place, or a function of the user's."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from tarkit.errors import MissingInputError, UsageError, printable
from tarkit.formats import sequencefile, tfrecord
from tarkit.formats.registry import format_of, input_files, is_tar_name
from tarkit.formats.tally import Tally
from tarkit.mapping.pythonworker import load
from tarkit.names.url import display_name
from tarkit.readers.parameters import parse_reader_params
from tarkit.readers.reader import AbstractDataReader
from tarkit.specs.shardspec import expand

READERS = {
    "Tar": ("tar:TarDataReader", (".tar", ".tgz", ".tar.gz", ".tar.zst")),
    "RecordIO": ("recordio:RecordIODataReader", ()),
    "TFRecord": ("tfrecord:TFRecordDataReader", tfrecord.SUFFIXES),
    "SequenceFile": ("sequencefile:SequenceFileDataReader", sequencefile.SUFFIXES),
    "CSV": ("text:TextDataReader", (".csv",)),
    "Text": ("text:TextDataReader", (".txt",)),
    "Parquet": ("parquet:ParquetDataReader", (".parquet",)),
    "ODPS": ("odps:ODPSDataReader", ()),
}
"""reader_type -> module below ``tarkit.readers`` and class, and the extensions of its files; a
reader of a format has the name of its module. RecordIO is the default.
"""

_ODPS_VARIABLES = {
    "MAXCOMPUTE_PROJECT": "project",
    "MAXCOMPUTE_AK": "access_id",
    "MAXCOMPUTE_SK": "access_key",
    "MAXCOMPUTE_ENDPOINT": "endpoint",
    "MAXCOMPUTE_TUNNEL_ENDPOINT": "tunnel_endpoint",
}
_ODPS_NEEDS = ("MAXCOMPUTE_PROJECT", "MAXCOMPUTE_AK", "MAXCOMPUTE_SK")


def create_data_reader(
    data_origin: str,
    records_per_task: int | None = None,
    *,
    reader_type: str | None = None,
    environ: Mapping[str, str] = os.environ,
    **kwargs: Any,
) -> AbstractDataReader:
    """Return the reader of a source, chosen as ElasticDL does.

    Args:
        data_origin: a folder, file, shard spec, or the name of an ODPS table.
        records_per_task: number of records of the ranges into which a shard is cut; None: one range
            a shard.
        reader_type: a key of ``READERS``. Without it: ODPS if the environment has
            MAXCOMPUTE_PROJECT, MAXCOMPUTE_AK and MAXCOMPUTE_SK; otherwise by the extension of the
            name; if that is not known, as for a folder, by the name or first bytes of the first
            file; otherwise RecordIO.
        kwargs: further arguments of that reader.

    Raises:
        UsageError: the reader_type does not exist, the reader does not have an argument, or there
            is no reader for the format.
        MissingExtraError: the reader's library is not installed.
        StreamError, TemporaryStreamError: the first file cannot be read.
    """
    if reader_type is None:
        reader_type = "ODPS" if all(environ.get(name) for name in _ODPS_NEEDS) else _type_of(data_origin)
    if reader_type not in READERS:
        raise UsageError(f"reader_type is {printable(repr(reader_type))}; it must be one of {', '.join(READERS)}")
    if reader_type == "ODPS":
        kwargs = {name: environ[key] for key, name in _ODPS_VARIABLES.items() if environ.get(key)} | kwargs
        if not {"project", "access_id", "access_key"} <= kwargs.keys():
            raise UsageError("ODPS needs project, access_id and access_key; or set MAXCOMPUTE_PROJECT, _AK and _SK")
    module, _, name = READERS[reader_type][0].partition(":")
    kind: Callable[..., AbstractDataReader] = getattr(importlib.import_module(f"tarkit.readers.{module}"), name)
    return kind(data_origin, records_per_task, **kwargs)


def _type_of(source: str) -> str:
    is_list = source.startswith("@")
    if not is_list and (named := _type_by_name(source)) is not None:
        return named
    try:
        first = next(input_files(expand(source), Tally()))
        if (named := _type_by_name(first)) is not None:
            return named
        found = format_of(first)
    except MissingInputError:
        return "RecordIO"
    if found == "tar" and not is_tar_name(first):
        # It is none of the formats that first bytes show.
        return "RecordIO"
    types = (kind for kind, (module, _) in READERS.items() if module.startswith(f"{found}:"))
    if (kind := next(types, None)) is None:
        raise UsageError(
            f"{display_name(source)} is {found}, for which there is no reader; tarkit convert makes it tar"
        )
    return kind


def _type_by_name(name: str) -> str | None:
    return next((kind for kind, (_, suffixes) in READERS.items() if name.endswith(suffixes)), None)


def custom_data_reader(function: str, data_origin: str, params: str = "") -> AbstractDataReader:
    """Make a reader by a function of the user.

    These are ``--custom_data_reader`` and ``--custom_data_reader_params``.

    Args:
        function: ``module:function`` or ``file.py:function``, a function or a class; it is called
            with ``data_origin=`` and the parameters.
        params: text that :func:`tarkit.readers.parameters.parse_reader_params` parses.

    Raises:
        UsageError: the function does not exist, the parameters are not ``NAME=VALUE`` or not those
            of the function, or it returns an object that is not a reader.
    """
    make, arguments = load(function), {"data_origin": data_origin}
    for name, value in parse_reader_params(params).items():
        if name in arguments:
            raise UsageError(f"the parameter {name} is the source, which is named on its own; leave it out")
        arguments[name] = value
    try:
        inspect.signature(make).bind(**arguments)
    except (TypeError, ValueError) as error:  # ValueError: it has no signature, as some of the standard library
        raise UsageError(f"{function} cannot be called with {', '.join(arguments)}: {error}") from None
    reader = make(**arguments)
    if not isinstance(reader, AbstractDataReader):
        raise UsageError(
            f"{function} gave {type(reader).__name__}; it must give a reader derived from "
            "tarkit.readers.reader.AbstractDataReader"
        )
    return reader
