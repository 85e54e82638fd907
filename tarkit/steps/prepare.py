"""Prepare records from files: from images, tables and MNIST, or by a function of the user.

The features of the built-in rules are those of ElasticDL's generators: ``image`` and ``label``; the
columns of a table.
"""

from __future__ import annotations

import ast
import inspect
import io
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tarkit.errors import DataError, TarkitError, UsageError, printable, quoted
from tarkit.extras import library
from tarkit.formats.example import encode_example
from tarkit.formats.tally import Tally, check_policy
from tarkit.names.url import local_path
from tarkit.samples.codecs import extension_of
from tarkit.samples.read import read_samples
from tarkit.samples.sample import is_reserved
from tarkit.steps.sourcefiles import SourceFile
from tarkit.store.read import read_whole

CODECS = ("tf_example", "bytes")
IMAGES = ("bytes", "floats")
_CLASS = re.compile(rb"\s*-?[0-9]{1,18}\s*")
_NO_CLASS = "put each class into a folder of its name; of tar shards, say --kind shards"
_IMAGE_EXTENSIONS = frozenset(("jpg", "jpeg", "png", "ppm", "pgm", "bmp", "gif", "tif", "tiff", "webp"))


Prepare = Callable[[SourceFile], Iterator[bytes]]
"""A file -> its records, serialized."""


def prepared(files: Iterable[SourceFile], prepare: Prepare, tally: Tally) -> Iterator[bytes]:
    """Yield the records of files.

    Files without records are counted in ``tally.skipped``, as ``no-record``.

    Raises:
        DataError: ``prepare`` rejected a file.
    """
    for file in files:
        gave_some = False
        for record in prepare(file):
            gave_some = True
            yield record
        if not gave_some:
            tally.skip("no-record")


def prepare_images(classes: Sequence[str] | None, image: str = "bytes") -> Prepare:
    """Return a function that yields a record for each image: ``image``, and the class as ``label``.

    The function raises DataError for an image that does not decode, or in a folder that is not a
    class.

    Args:
        classes: names of the folders of the images, whose positions are the labels; None writes no
            label.
        image: bytes as they are in the file, or floats, the pixels from 0 to 255.
    """
    check_policy("image", image, IMAGES)
    index = {name: number for number, name in enumerate(classes or ())}

    def prepare(file: SourceFile) -> Iterator[bytes]:
        extension = extension_of(file.name)[0]
        if extension not in _IMAGE_EXTENSIONS:
            return
        features: dict[str, Any] = {"image": _pixels(file) if image == "floats" else file.read()}
        if classes is not None:
            folder = os.path.basename(os.path.dirname(file.name))
            if folder not in index:
                raise DataError(f"the folder {printable(folder)!r} is not one of the classes", member=file.name)
            features["label"] = index[folder]
        yield encode_example(features)

    return prepare


def _pixels(file: SourceFile) -> array[float]:
    """Return the pixels in the file's own mode: a grey image has one number a pixel."""
    pillow, numpy = (library(name, "the pixels of images", "images") for name in ("PIL.Image", "numpy"))
    # Outside: a file that cannot be read is not a damaged image.
    content = file.read()
    try:
        with pillow.open(io.BytesIO(content)) as image:
            return array("f", numpy.asarray(image, "float32").tobytes())
    except MemoryError:
        raise
    except Exception as error:
        # Pillow's decoders raise many classes, SyntaxError among them.
        raise DataError(f"is not an image that can be decoded: {error}", member=file.name) from error


def classes_of(names: Iterable[str]) -> list[str]:
    """Return the names of the folders of the images, sorted."""
    folders = {os.path.basename(os.path.dirname(n)) for n in names if extension_of(n)[0] in _IMAGE_EXTENSIONS}
    if "" in folders:
        raise DataError("an image is in no folder, so it has no class", hint=_NO_CLASS)
    return sorted(folders)


def shard_records(
    shards: str | Iterable[str], tally: Tally, fields: Sequence[str] = (), *, on_damage: str = "error"
) -> Iterator[bytes]:
    """Yield a record for each sample of tar shards, with ``__key__`` and a feature for each field.

    ``cls`` is a number if its text is one, of 18 digits at most; other fields are bytes.

    Raises:
        DataError: a sample lacks a named field, or a shard is damaged.
    """
    for sample in read_samples(shards, split=True, tally=tally, on_damage=on_damage):
        missing = [name for name in fields if name not in sample]
        if missing:
            raise DataError(f"the sample has no field {missing[0]}", url=sample["__url__"], key=sample["__key__"])
        features: dict[str, Any] = {
            name: value for name, value in sample.items() if not is_reserved(name) and (not fields or name in fields)
        }
        text = features.get("cls")
        if text is not None and _CLASS.fullmatch(text):
            features["cls"] = int(text)
        yield encode_example({"__key__": sample["__key__"].encode("utf-8", "surrogateescape"), **features})


def prepare_with_model(model: Mapping[str, Any], codec: str = "tf_example") -> Prepare:
    """Return a function that makes records by the functions of a model file.

    ``prepare_data_for_a_single_file(file, name)`` gets an open binary file and its name; with a
    single parameter, it gets the path of a file on disk. It returns a record (bytes), features (a
    dict), features and label (a tuple; ``feature_columns()`` and ``label_columns()`` of the model
    file return their names, each as a ``key``), None, or an iterable of these. The returned
    function raises a DataError if that function raised an exception.

    Args:
        model: names that the model file defines.
        codec: tf_example; or bytes, the concatenated bytes of the columns' arrays.

    Raises:
        UsageError: the model file lacks a function.
    """
    check_policy("codec", codec, CODECS)
    function = model.get("prepare_data_for_a_single_file")
    if not callable(function):
        raise UsageError("the model file has no function prepare_data_for_a_single_file")
    by_name = len(inspect.signature(function).parameters) == 1

    def prepare(file: SourceFile) -> Iterator[bytes]:
        path = None if file.url is None else local_path(file.url)
        if by_name and path is None:
            raise UsageError("prepare_data_for_a_single_file(filename) takes files on disk; name a folder of them")
        arguments = (path,) if by_name else (io.BytesIO(file.read()), file.name)
        try:
            yield from _serialized(function(*arguments), model, codec, file.name)
        except TarkitError:
            raise
        except (Exception, SystemExit) as error:
            reason = f"prepare_data_for_a_single_file raised {type(error).__name__}: {printable(str(error))}"
            raise DataError(reason, member=file.name) from error

    return prepare


def _serialized(made: Any, model: Mapping[str, Any], codec: str, name: str) -> Iterator[bytes]:
    if made is None:
        return
    if isinstance(made, (bytes, bytearray)):
        yield bytes(made)
    elif isinstance(made, Mapping):
        yield _encoded(made, codec)
    elif isinstance(made, tuple) and len(made) == 2:
        yield _encoded(_columns(made, model), codec)
    elif isinstance(made, Iterable) and not isinstance(made, (str, tuple)):
        for each in made:
            yield from _serialized(each, model, codec, name)
    else:
        kind = type(made).__name__
        raise DataError(
            f"prepare_data_for_a_single_file gave {kind}; it gives bytes, a dict, (features, label), or many",
            member=name,
        )


def _columns(made: tuple[Any, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for values, function in zip(made, ("feature_columns", "label_columns"), strict=True):
        if not callable(model.get(function)):
            raise UsageError(f"the model file gives features and label, so it needs a function {function}")
        keys = [column.key for column in model[function]()]
        several = values if isinstance(values, (list, tuple)) and len(keys) > 1 else [values]
        if len(several) != len(keys):
            raise DataError(f"{function}() names {len(keys)} columns, and {len(several)} values were prepared")
        found.update(zip(keys, several, strict=True))
    return found


def _encoded(features: Mapping[str, Any], codec: str) -> bytes:
    if codec == "bytes":
        return b"".join(value if isinstance(value, bytes) else value.tobytes() for value in features.values())
    flat = {name: value.ravel() if hasattr(value, "ravel") else value for name, value in features.items()}
    return encode_example(flat)


def read_model_file(path: str) -> str:
    """Return the text of a Python file.

    Raises:
        MissingInputError: the file does not exist.
        UsageError: the file is not Python.
    """
    data = read_whole(path, compression=None)
    try:
        ast.parse(data, path)
        return data.decode("utf-8-sig")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"the model file {quoted(path)} is not Python: {error}") from None


def load_model(text: str, path: str) -> dict[str, Any]:
    """Return the definitions of a Python file's text.

    Args:
        path: path for tracebacks and for ``__file__``.

    Raises:
        UsageError: the file raises an exception.
    """
    model: dict[str, Any] = {"__name__": "model_file", "__file__": path}
    try:
        exec(compile(text, path, "exec"), model)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"the model file {quoted(path)} raised {type(error).__name__}: {printable(str(error))}"
        ) from error
    return model
