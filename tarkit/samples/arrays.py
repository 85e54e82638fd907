"""NumPy arrays to bytes and back. Objects, which would be pickles, are refused."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

from tarkit.extras import library


def encode_npy(value: Any) -> bytes:
    """An array as an ``.npy`` file."""
    numpy = library("numpy", "the npy codec", "images")
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise TypeError("pass a numpy array")
    stream = io.BytesIO()
    numpy.lib.format.write_array(stream, numpy.asarray(value), allow_pickle=False)
    return stream.getvalue()


def decode_npy(data: bytes) -> Any:
    """The array of an ``.npy`` file."""
    numpy = library("numpy", "the npy codec", "images")
    stream = io.BytesIO(data)
    array = numpy.lib.format.read_array(stream, allow_pickle=False)
    refuse_rest(stream, data, "array")
    return array


def encode_npz(value: Any) -> bytes:
    """A dict of arrays as an ``.npz`` file; the same arrays give the same bytes."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError("pass a dict of names and numpy arrays")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in value.items():
            # The time, system and mode are fixed, so that the same arrays give the same bytes anywhere.
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o600 << 16
            archive.writestr(entry, encode_npy(array))
    return stream.getvalue()


def decode_npz(data: bytes, max_bytes: int) -> dict[str, Any]:
    """Names and arrays of an ``.npz`` file, which may have ``max_bytes`` without its compression."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # No more than an entry says is read of it.
        if (size := sum(entry.file_size for entry in archive.infolist())) > max_bytes:
            raise ValueError(f"its arrays have {size} bytes, more than max_bytes={max_bytes}")
        return {name.removesuffix(".npy"): decode_npy(archive.read(name)) for name in archive.namelist()}


def refuse_rest(stream: io.BytesIO, data: bytes, what: str) -> None:
    """A value must be all that there is: what follows it would be lost."""
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes follow the {what}")
