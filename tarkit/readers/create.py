"""Which reader is for a source of data: by its name, its place, or a function of the user's own."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from tarkit.errors import UsageError, printable
from tarkit.formats import sequencefile, tfrecord
from tarkit.mapping.pythonworker import load
from tarkit.readers.parameters import parse_reader_params
from tarkit.readers.reader import AbstractDataReader

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
"""reader_type -> module below ``tarkit.readers`` and class, and the ends of its files' names; RecordIO is everything
else, and a folder."""

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
    """The reader of a source, as ElasticDL chooses it.

    Args:
        data_origin: a folder, file, shard spec, or the name of an ODPS table.
        records_per_task: the records of a shard are cut into ranges of so many; None: one range a shard.
        reader_type: a key of ``READERS``. Without it: ODPS where the environment has MAXCOMPUTE_PROJECT,
            MAXCOMPUTE_AK and MAXCOMPUTE_SK; else by the end of the name; else RecordIO.
        kwargs: of that reader.

    Raises:
        UsageError: no such reader_type, or an argument that the reader does not have.
        MissingExtraError: its library is not installed.
    """
    if reader_type is None:
        by_name = (kind for kind, (_, suffixes) in READERS.items() if data_origin.endswith(suffixes))
        reader_type = "ODPS" if all(environ.get(name) for name in _ODPS_NEEDS) else next(by_name, "RecordIO")
    if reader_type not in READERS:
        raise UsageError(f"reader_type is {printable(repr(reader_type))}; it must be one of {', '.join(READERS)}")
    if reader_type == "ODPS":
        kwargs = {name: environ[key] for key, name in _ODPS_VARIABLES.items() if environ.get(key)} | kwargs
        if not {"project", "access_id", "access_key"} <= kwargs.keys():
            raise UsageError("ODPS needs project, access_id and access_key; or set MAXCOMPUTE_PROJECT, _AK and _SK")
    module, _, name = READERS[reader_type][0].partition(":")
    kind: Callable[..., AbstractDataReader] = getattr(importlib.import_module(f"tarkit.readers.{module}"), name)
    return kind(data_origin, records_per_task, **kwargs)


def custom_data_reader(function: str, data_origin: str, params: str = "") -> AbstractDataReader:
    """The reader that a function of the user makes, ``--custom_data_reader`` and ``--custom_data_reader_params``.

    Args:
        function: ``module:function`` or ``file.py:function``, a function or a class; it is called with
            ``data_origin=`` and the parameters.
        params: as :func:`tarkit.readers.parameters.parse_reader_params` reads them.

    Raises:
        UsageError: no such function, the parameters are not ``NAME=VALUE`` or not those of the function, or what it
        gives is not a reader.
    """
    make, arguments = load(function), {"data_origin": data_origin}
    for name, value in parse_reader_params(params).items():
        if name in arguments:
            raise UsageError(f"the parameter {name} is the source, which is named on its own; leave it out")
        arguments[name] = value
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise UsageError(f"{function} cannot be called with {', '.join(arguments)}: {error}") from None
    reader = make(**arguments)
    if not isinstance(reader, AbstractDataReader):
        raise UsageError(
            f"{function} gave {type(reader).__name__}; it must give a reader derived from "
            "tarkit.readers.reader.AbstractDataReader"
        )
    return reader
