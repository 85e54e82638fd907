"""Fields to bytes and back."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import math
import pickle
import sys
import zipfile
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced import traced_peak

from tarkit.errors import DecodeError, EncodeError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.samples import images
from tarkit.samples.codecs import decode_field, decode_sample, encode_field, encode_sample, make_encoder

RGB = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
GREY = np.arange(35, dtype=np.uint8).reshape(5, 7)


def needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed (pip install {module})")


@pytest.mark.parametrize(
    ("field", "text", "instead"),
    [
        ("json", "Käse", "it must be JSON: Expecting value.*pass json.dumps"),
        ("json", '{"a": NaN}', "NaN is not JSON"),
        ("a.JSN", "", "it must be JSON"),
        ("cls", "cat", "whole number; pass bytes"),
        ("cls", "1.5", "whole number"),
        ("mp", "s", r"bytes of msgpack.packb\(text\)"),
        ("cbor", "s", r"bytes of cbor2.dumps\(text\)"),
        ("npy", "s", "pass a numpy array"),
        ("npz", "s", "pass a dict of names and numpy arrays"),
        ("png", "s", "PIL image or a numpy array"),
        ("mp.gz", "s", "msgpack.packb"),
        ("pyd", "s", "can run any code"),
        ("tenbin", "s", "use npy or npz"),
    ],
)
def test_text_that_would_decode_to_something_else_is_refused(field: str, text: str, instead: str) -> None:
    """A str under mp was written as it is, and the one of 's' decoded as 115."""
    for encoder in (True, {"x": bytes}):
        with pytest.raises(EncodeError, match=instead) as caught:
            make_encoder(encoder)({"__key__": "k", field: text})
        assert repr(field) in str(caught.value) and "\n" not in str(caught.value)


def test_an_encoder_of_the_caller_gets_text_too() -> None:
    encode = make_encoder({"txt": lambda text: text.encode("latin-1")})
    assert encode({"__key__": "k", "txt": "é", "html": "é", "raw.txt": b"\xff"}) == {
        "__key__": "k", "txt": b"\xe9", "html": "é".encode(), "raw.txt": b"\xff"
    }  # fmt: skip


@pytest.mark.parametrize(("field", "text", "value"), [("json", ' {"ä": [1]}\n', {"ä": [1]}), ("cls", " 7\n", 7)])
def test_text_that_is_the_encoded_value_passes(field: str, text: str, value: object) -> None:
    assert encode_field(field, text) == text.encode()
    assert decode_field(field, text.encode()) == value


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_nan_is_refused_by_encoder_and_decoder(constant: str) -> None:
    """webdataset writes and reads it; jq reads it as null, without an error."""
    with pytest.raises(EncodeError):
        encode_field("json", {"x": [float(constant)]})
    with pytest.raises(DecodeError, match=f"{constant} is not JSON .*json.loads") as caught:
        decode_field("json", f'{{"x": [{constant}]}}'.encode(), key="k")
    assert caught.value.key == "k"
    for field in ("mp", "cbor"):
        back: Any = decode_field(field, encode_field(field, [float(constant)]))
        assert str(back) == str([float(constant)])


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, [{"x": ({True: 1},)}], {None: 1}, {1.5: 2}])
def test_json_keys_that_are_not_text_are_refused(value: object) -> None:
    """json.dumps makes text of them, and may make two keys the same."""
    with pytest.raises(EncodeError, match="keys of a JSON object are text"):
        encode_field("json", value)


def test_what_follows_a_cbor_value_is_an_error() -> None:
    with pytest.raises(DecodeError, match="1 bytes follow the value"):
        decode_field("cbor", encode_field("cbor", [5]) + b"\x01")


@pytest.mark.parametrize("extension", ["cls", "cls2", "class", "count", "index", "inx", "id"])
@pytest.mark.parametrize("value", [0, 7, -3, 10**30, np.int64(5), np.uint8(200)])
def test_whole_numbers(extension: str, value: Any) -> None:
    data = encode_field(extension, value)
    assert data == str(int(value)).encode("ascii")
    assert decode_field(f"a.{extension.upper()}", data) == int(value)


@pytest.mark.parametrize("value", [1.0, True, None, [1], np.float32(3)])
def test_what_is_no_whole_number(value: object) -> None:
    with pytest.raises(EncodeError, match="whole number") as caught:
        encode_field("cls", value, key="a/7")
    assert caught.value.key == "a/7"
    assert str(caught.value).startswith(f"key 'a/7': field 'cls', a value of type {type(value).__name__}")


def test_numbers_from_other_writers() -> None:
    assert decode_field("cls", b" 304\n") == 304
    for data in (b"", b"1_0", b"3.0", "٣".encode(), b"True", b"9" * 5000):
        with pytest.raises(DecodeError, match="'cls'"):
            decode_field("cls", data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
).filter(lambda value: not isinstance(value, str))


@given(json_values)
def test_json_round_trip(value: Any) -> None:
    for field in ("json", "a.JSN", "json.gz"):
        assert decode_field(field, encode_field(field, value)) == value


@pytest.mark.parametrize("value", [{"x": np.float32(1)}, {"x": np.int64(1)}, math.nan, {1, 2}, {"x": b"y"}, ["\ud800"]])
def test_what_json_can_not_hold(value: object) -> None:
    with pytest.raises(EncodeError, match=f"'json', a value of type {type(value).__name__}"):
        encode_field("json", value)


def test_npz_round_trip_and_same_bytes() -> None:
    arrays = {"a": RGB, "b/c": np.arange(3.0)}
    data = encode_field("npz", arrays)
    assert data == encode_field("npz", arrays)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    read_by_numpy = np.load(io.BytesIO(data), allow_pickle=False)
    back: Any = decode_field("npz", data)
    assert list(back) == list(read_by_numpy) == ["a", "b/c"]
    for name, array in arrays.items():
        assert np.array_equal(back[name], array)
        assert np.array_equal(read_by_numpy[name], array)
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    written_by_numpy: Any = decode_field("npz", stream.getvalue())
    assert np.array_equal(written_by_numpy["b/c"], arrays["b/c"])


@pytest.mark.parametrize(
    ("field", "value"),
    [("npy", [1, 2]), ("npy", np.array([object()])), ("npz", RGB), ("npz", {1: RGB}), ("npz", {"a": [1]})],
)
def test_what_numpy_formats_can_not_hold(field: str, value: object) -> None:
    with pytest.raises(EncodeError, match=f"field '{field}'"):
        encode_field(field, value)


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was run",))


def test_pickles_inside_numpy_files_are_not_run() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(DecodeError, match="allow_pickle"):
        decode_field("npy", stream.getvalue())
    stream = io.BytesIO()
    np.savez(stream, x=np.array([Bomb()], dtype=object))
    with pytest.raises(DecodeError, match="allow_pickle"):
        decode_field("npz", stream.getvalue())


@pytest.mark.parametrize("extension", ["pyd", "pickle", "pkl", "pth"])
def test_pickle_is_refused_by_name(extension: str) -> None:
    with pytest.raises(EncodeError, match=r"can run any code; use json, msgpack, npy or npz"):
        encode_field(extension, {"a": 1})
    with pytest.raises(DecodeError, match="can run any code") as caught:
        decode_field(f"x.{extension.upper()}", pickle.dumps(Bomb()), key="k", url="s.tar")
    assert (caught.value.key, caught.value.url) == ("k", "s.tar")


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}, {"subsampling": 1}]
)
def test_the_quick_decoder_of_jpeg_gives_what_pillow_does(options: dict[str, Any], monkeypatch: Any) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    noise = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)
    stream = io.BytesIO()
    PIL.Image.fromarray(noise).resize((211, 147)).save(stream, "JPEG", **options)
    calls: list[int] = []
    quick = lambda data: calls.append(len(data)) or simplejpeg.decode_jpeg(data)  # noqa: E731
    found = []
    for decoder in (None, quick):
        monkeypatch.setattr(images, "quick_decoder", lambda decoder=decoder: decoder)
        found.append([decode_field("jpg", stream.getvalue(), image=word) for word in ("rgb8", "rgb", "l8")])
    assert calls == [len(stream.getvalue())] * 2
    for plain, other in zip(*found, strict=True):
        assert np.array_equal(plain, other) and plain.dtype == other.dtype and other.flags.writeable


@pytest.mark.parametrize(
    ("missing", "has_torch", "name"),
    [
        ((), True, "simplejpeg"),
        (("simplejpeg",), True, "torchcodec"),
        (("simplejpeg",), False, "Pillow"),
        (("simplejpeg", "torchcodec.decoders"), True, "Pillow"),
    ],
)
def test_the_decoder_of_jpeg_is_chosen_and_logged_once(
    missing: tuple[str, ...], has_torch: bool, name: str, monkeypatch: Any, caplog: Any
) -> None:
    """torchcodec would import torch, so it decodes only for programs that have."""
    stream = io.BytesIO()
    PIL.Image.fromarray(RGB).save(stream, "JPEG")

    def decode_jpeg(data: bytes, mode: str = "RGB") -> Any:
        array = np.asarray(PIL.Image.open(io.BytesIO(data))) + np.uint8(1)
        tensor = SimpleNamespace(permute=lambda *order: SimpleNamespace(contiguous=lambda: array_of(array)))
        return tensor if name == "torchcodec" else array

    def array_of(array: Any) -> Any:
        return SimpleNamespace(numpy=lambda: array)

    for module in ("simplejpeg", "torchcodec", "torchcodec.decoders"):
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(decode_jpeg=decode_jpeg))
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    if not has_torch:
        monkeypatch.delitem(sys.modules, "torch")
    caplog.set_level("INFO", "tarkit.samples.images")
    images.quick_decoder.cache_clear()
    try:
        found = [decode_field("jpg", stream.getvalue(), image="rgb8") for _ in range(2)]
    finally:
        images.quick_decoder.cache_clear()
    monkeypatch.setattr(images, "quick_decoder", lambda: None)
    plain: Any = decode_field("jpg", stream.getvalue(), image="rgb8")
    assert all(np.array_equal(each, plain + np.uint8(name != "Pillow")) for each in found)
    assert caplog.messages == [f"JPEG pictures are decoded to arrays by {name}"]


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_a_jpeg_that_the_quick_decoder_does_not_take(mode: str, monkeypatch: Any) -> None:
    """Pillow decodes grey and CMYK, and judges of one that is cut, with and without the other
    library.
    """
    stream, found = io.BytesIO(), []
    PIL.Image.fromarray(RGB).convert(mode).save(stream, "JPEG")
    data = stream.getvalue()[: -20 if mode == "RGB" else None]
    for decoder in (images.quick_decoder(), None):
        monkeypatch.setattr(images, "quick_decoder", lambda decoder=decoder: decoder)
        try:
            found.append(decode_field("jpg", data, image="rgb8"))
        except DecodeError as error:
            found.append(str(error))
    assert np.array_equal(*found) and isinstance(found[0], str) == (mode == "RGB")


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"hello", "it looks like text beginning 'hello'"),
        (b"", "it is empty"),
        (b"\x89PNG\r\n\x1a\nx", "it looks like a PNG"),
    ],
)
def test_a_picture_that_is_none(data: bytes, looks: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_field("a.jpg", data, key="a/1", url="s.tar")
    text = str(caught.value)
    assert text.startswith("s.tar, key 'a/1': field 'a.jpg' cannot be decoded: cannot identify image file")
    assert f"; it must be a whole jpg file, and {looks}" in text and " at 0x" not in text and "\n" not in text


@pytest.mark.parametrize("extension", ["ten", "tenbin", "tb"])
def test_tenbin_is_refused(extension: str) -> None:
    with pytest.raises(EncodeError, match="use npy or npz"):
        encode_field(extension, [RGB])
    with pytest.raises(DecodeError, match="use npy or npz"):
        decode_field(extension, b"")


@pytest.mark.parametrize("extension", ["jpg", "jpeg"])
def test_jpeg_is_near(extension: str) -> None:
    smooth = np.stack([np.linspace(0, 255, 64).astype(np.uint8).repeat(64).reshape(64, 64)] * 3, axis=2)
    back: Any = decode_field(extension, encode_field(extension, smooth), image="rgb8")
    assert np.abs(back.astype(int) - smooth).max() <= 2


@pytest.mark.parametrize("extension", ["png", "pgm", "ppm", "tif", "jpg", "webp"])
def test_grey_images_in_both_shapes(extension: str) -> None:
    assert encode_field(extension, GREY) == encode_field(extension, GREY[:, :, np.newaxis])
    if extension != "jpg":
        assert np.array_equal(decode_field(extension, encode_field(extension, GREY), image="l8"), GREY)  # type: ignore[arg-type]


def test_bitmaps_and_deep_images() -> None:
    bits = GREY % 3 == 0
    assert encode_field("pbm", bits).startswith(b"P4")
    assert np.array_equal(decode_field("pbm", encode_field("pbm", bits), image="l8"), bits * np.uint8(255))  # type: ignore[arg-type]
    deep = np.array([[0, 300, 65535]], np.uint16)
    for extension in ("png", "pgm", "tif"):
        data = encode_field(extension, deep)
        assert np.array_equal(np.asarray(PIL.Image.open(io.BytesIO(data))), deep)
        assert np.array_equal(decode_field(extension, data, image="l8"), deep >> 8)  # type: ignore[arg-type]
        assert decode_field(extension, data, image=None) == data
    for field, wide in (("tif", np.array([[70000]], np.int32)), ("tif", np.array([[0.5]], np.float32))):
        stream = io.BytesIO()
        PIL.Image.fromarray(wide).save(stream, "TIFF")
        with pytest.raises(DecodeError, match="not of 8 or 16 bits"):
            decode_field(field, stream.getvalue())


@pytest.mark.parametrize("extension", ["png", "pgm", "tif"])
def test_grey_images_of_16_bits(extension: str) -> None:
    """webdataset cuts all values above 255."""
    deep = np.array([[0, 255, 256, 32768, 65535]], np.uint16)
    data = encode_field(extension, deep)
    scaled = deep.astype(np.float32) / np.float32(65535)
    solid = np.ones_like(scaled)
    expected: dict[str, Any] = {
        "l": scaled,
        "rgb": np.dstack([scaled] * 3),
        "rgba": np.dstack([*[scaled] * 3, solid]),
        "l8": deep >> 8,
        "rgb8": np.dstack([deep >> 8] * 3),
        "rgba8": np.dstack([*[deep >> 8] * 3, solid * 255]),
    }
    for spec, array in expected.items():
        back: Any = decode_field(extension, data, image=spec)
        assert np.array_equal(back, array) and back.flags.writeable
        assert back.dtype == (np.uint8 if spec.endswith("8") else np.float32)
    for spec, mode in {"pil": "RGB", "pilrgba": "RGBA", "pill": "L"}.items():
        image: Any = decode_field(extension, data, image=spec)
        assert image.mode == mode and np.array_equal(np.asarray(image.convert("L")), deep >> 8)


@pytest.mark.parametrize("extension", ["img", "image"])
def test_img_and_image_are_jpeg_as_in_webdataset(extension: str) -> None:
    data = encode_field(extension, GREY)
    assert data == encode_field("jpg", GREY)
    back: Any = decode_field(extension, data, image="l8")
    assert back.shape == GREY.shape
    shown: Any = decode_field(extension, encode_field("png", GREY), image="l8")
    assert np.array_equal(shown, GREY)


def test_float_images() -> None:
    image = np.array([[0.0, 1.0, 0.5, 1.0005, -0.0005]])
    for dtype in (np.float32, np.float64):
        back = decode_field("png", encode_field("png", image.astype(dtype)), image="l8")
        assert np.array_equal(back, [[0, 255, 128, 255, 0]])  # type: ignore[arg-type]
    for bad in (1.01, -0.5, math.nan, math.inf):
        with pytest.raises(EncodeError, match="values of 0 to 1"):
            encode_field("png", np.array([[0.5, bad]]))


@pytest.mark.parametrize(
    ("extension", "value", "words"),
    [
        ("png", ["text"], "PIL image or a numpy array"),
        ("png", np.zeros((2, 2, 2), np.uint8), "shape"),
        ("png", np.zeros((2,), np.uint8), "shape"),
        ("png", np.zeros((0, 4), np.uint8), "shape"),
        ("png", np.zeros((2, 2), np.int32), "uint8"),
        ("png", np.zeros((2, 2, 3), np.uint16), "uint8"),
        ("ppm", np.zeros((2, 2, 4), np.uint8), "mode RGBA; convert it"),
        ("jpg", PIL.Image.new("RGBA", (2, 2)), "mode RGBA; convert it to L or RGB"),
        ("pgm", RGB, "mode RGB"),
        ("pbm", GREY, "mode L"),
        ("pgm", PIL.Image.new("I", (2, 2), 70000), "0 to 65535"),
        ("webp", PIL.Image.new("RGB", (20000, 1)), "webp"),
    ],
)
def test_images_that_a_format_can_not_hold(extension: str, value: object, words: str) -> None:
    with pytest.raises(EncodeError, match=words):
        encode_field(extension, value, key="k")


def test_what_images_become() -> None:
    data = encode_field("png", np.dstack([RGB, GREY]))
    shapes = {"l": (5, 7), "l8": (5, 7), "rgb": (5, 7, 3), "rgb8": (5, 7, 3), "rgba": (5, 7, 4), "rgba8": (5, 7, 4)}
    for spec, shape in shapes.items():
        array: Any = decode_field("png", data, image=spec)
        assert array.shape == shape
        assert array.dtype == (np.uint8 if spec.endswith("8") else np.float32)
        assert array.flags.writeable
    for spec, mode in {"pil": "RGB", "pilrgb": "RGB", "pilrgba": "RGBA", "pill": "L"}.items():
        image: Any = decode_field("png", data, image=spec)
        assert image.mode == mode
    with pytest.raises(UsageError, match="'torchrgb'; it must be one of pil,"):
        decode_field("png", data, image="torchrgb")


def test_gz_fields_have_the_same_bytes_everywhere() -> None:
    data = encode_field("meta.json.gz", {"a": 1})
    assert data[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
    assert gzip.decompress(data) == b'{"a": 1}'
    assert decode_field("meta.JSON.GZ", data) == {"a": 1}
    assert decode_field("txt.gz", encode_field("txt.gz", "hi")) == "hi"


def test_gz_fields_without_a_codec_stay_as_they_are() -> None:
    data = gzip.compress(b"volume", mtime=0)
    for field in ("nii.gz", "gz", "bin.gz"):
        assert decode_field(field, data) is data
    assert decode_field("png.gz", data, image=None) is data


def test_unknown_extensions() -> None:
    assert decode_field("xyz", b"\xff") == b"\xff"
    with pytest.raises(EncodeError) as caught:
        encode_field("a.xyz", 5, key="dir/k")
    text = str(caught.value)
    assert text.startswith("key 'dir/k': field 'a.xyz', a value of type int, is not encoded")
    assert "bytes or str" in text
    assert "json" in text
    with pytest.raises(EncodeError, match="NoneType"):
        encode_field("xyz", None)
    with pytest.raises(EncodeError, match="txt"):
        encode_field("txt", 5)
    with pytest.raises(EncodeError, match="surrogates"):
        encode_field("txt", "\udcff")


PNG = encode_field("png", RGB)
NPY = encode_field("npy", RGB)


@pytest.mark.parametrize(
    ("field", "data"),
    [
        ("json", b"{"),
        ("json", b"[" * 200_000),
        ("json.gz", b"not gzip"),
        ("json.gz", gzip.compress(b"1", mtime=0)[:-3]),
        ("txt", b"\xff"),
        ("npy", NPY[:-1]),
        ("npy", NPY + b"x"),
        ("npy", b""),
        ("npz", NPY),
        ("npz", encode_field("npz", {"a": RGB})[:-5]),
        ("png", b"not an image"),
        ("png", PNG[: len(PNG) // 2]),
        ("jpg", b""),
    ],
)
def test_bad_bytes_name_key_field_and_shard(field: str, data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_field(field, data, key="k/1", url="s3://b/s.tar")
    assert str(caught.value).startswith(f"s3://b/s.tar, key 'k/1': field '{field}' cannot be decoded: ")
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=80), st.sampled_from(["json", "npy", "npz", "png", "ppm", "tif", "webp", "cls", "txt.gz"]))
def test_no_bytes_raise_anything_else(data: bytes, field: str) -> None:
    try:
        decode_field(field, data)
    except DecodeError as error:
        assert f"'{field}'" in str(error)


def test_samples() -> None:
    sample = {"__key__": "k", "__url__": "s.tar", "cls": 3, "txt": "hi", "in.png": RGB, "raw": b"\x00"}
    encoded = encode_sample(sample)
    assert encoded["__key__"] == "k"
    assert encoded["cls"] == b"3"
    decoded = decode_sample(encoded, image="rgb8")
    assert np.array_equal(decoded.pop("in.png"), RGB)
    assert decoded == {"__key__": "k", "__url__": "s.tar", "cls": 3, "txt": "hi", "raw": b"\x00"}
    assert decode_sample(encoded, only=["cls"]) == {**encoded, "cls": 3}
    assert decode_sample({"__key__": "k", "cls": 3}) == {"__key__": "k", "cls": 3}
    with pytest.raises(DecodeError, match=r"s.tar, key 'k': field 'json'"):
        decode_sample({**encoded, "json": b"{"})


def test_make_encoder() -> None:
    sample = {"__key__": "k", "cls": 3, "a.GREY.gz": 7, "txt": "hi", "raw": b"x"}
    assert make_encoder(False)(sample) == sample
    assert make_encoder(None)(sample) == sample
    assert make_encoder(True)({"__key__": "k", "cls": 3}) == {"__key__": "k", "cls": b"3"}
    own = make_encoder({"cls": lambda value: b"c%d" % value, "Grey": lambda value: bytearray([value])})(sample)
    assert gzip.decompress(own.pop("a.GREY.gz")) == b"\x07"
    assert own == {"__key__": "k", "cls": b"c3", "txt": b"hi", "raw": b"x"}
    assert make_encoder(lambda given: {**given, "cls": b"?"})(sample)["cls"] == b"?"


def test_encoders_that_fail() -> None:
    with pytest.raises(EncodeError, match=r"key 'k': field 'json'.*extension of cls"):
        make_encoder({"cls": str})({"__key__": "k", "json": {}})
    with pytest.raises(EncodeError, match="its encoder gave str; it must give bytes"):
        make_encoder({"cls": str})({"__key__": "k", "cls": 1})
    with pytest.raises(EncodeError, match="cannot be encoded: division by zero"):
        make_encoder({"cls": lambda value: value / 0})({"__key__": "k", "cls": 1})
    with pytest.raises(EncodeError, match="key 'k': the encoder gave NoneType"):
        make_encoder(lambda sample: None)({"__key__": "k"})  # type: ignore[arg-type, return-value]
    for bad in ("png", 3, {"seg.png": bytes}, {"png": "png"}, {"": bytes}):
        with pytest.raises(UsageError, match="encoder"):
            make_encoder(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["mp", "cbor", "npy", "png"])
def test_a_missing_library_is_named_with_its_extra(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("msgpack", "cbor2", "numpy", "PIL.Image"):
        monkeypatch.setitem(sys.modules, module, None)
    extra, libraries = {"mp": ("msgpack", "msgpack"), "cbor": ("cbor", "cbor2")}.get(field, ("images", "pillow numpy"))
    with pytest.raises(MissingExtraError, match=rf"pip install {libraries} \(or tarkit with its extra '{extra}'\)"):
        encode_field(field, {"a": 1})
    with pytest.raises(MissingExtraError, match=rf"pip install {libraries} \(or tarkit with its extra '{extra}'\)"):
        decode_field(field, b"\x80")


@pytest.mark.parametrize(
    "field", [pytest.param("mp", marks=needs("msgpack")), pytest.param("cbor", marks=needs("cbor2"))]
)
def test_msgpack_and_cbor(field: str) -> None:
    value = {"a": [1, 2.5, None, b"\xff", "ä"], 7: {"b": True}}
    assert decode_field(field, encode_field(field, value)) == value
    with pytest.raises(EncodeError):
        encode_field(field, {"a": object()})
    with pytest.raises(DecodeError):
        decode_field(field, b"\x82\x01")


AGREED: dict[str, Any] = {
    "cls": 7,
    "index": -2,
    "txt": "Käse",
    "json": {"a": [1, "ä"]},
    "json.gz": {"b": None},
    "npy": RGB,
    "npz": {"x": GREY},
    "PNG": RGB,
    "float.png": RGB.astype(np.float32) / 255,
    "grey.png": GREY,
    "ppm": RGB,
    "tif": RGB,
    "jpg": RGB,
    "pil.jpg": PIL.Image.fromarray(GREY),
}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return set(left) == set(right) and all(same(left[name], right[name]) for name in left)
    return bool(np.array_equal(left, right)) if isinstance(left, np.ndarray) else bool(left == right)


@needs("webdataset")
def test_agreement_with_webdataset_both_ways() -> None:
    from webdataset.autodecode import Decoder, ImageHandler  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from webdataset.writer import make_encoder as their_make_encoder  # type: ignore[import-untyped, import-not-found, unused-ignore]

    sample = {"__key__": "k", **AGREED}
    ours, theirs = encode_sample(sample), their_make_encoder(True)(sample)
    for field in ("cls", "index", "txt", "npy", "PNG", "float.png", "grey.png", "ppm", "tif", "jpg", "pil.jpg"):
        assert ours[field] == theirs[field], field
    assert json.loads(ours["json"]) == json.loads(theirs["json"])
    for spec in ("rgb", "rgb8", "l8", "pil", "rgba8"):
        decoder = Decoder([ImageHandler(spec)])
        for encoded in (ours, theirs):
            we, they = decode_sample(encoded, image=spec), decoder(encoded)
            for field in AGREED:
                assert same(we[field], they[field]), (spec, field)


# ---- a few bytes that stand for many


def test_compressed_fields_have_a_bound() -> None:
    text = b'"' + b"x" * 100_000 + b'"'
    assert decode_field("json.gz", gzip.compress(text), max_bytes=len(text)) == "x" * 100_000
    with pytest.raises(
        DecodeError, match=r"field 'json\.gz'.*more than 100001 bytes once it is decompressed; max_bytes"
    ):
        decode_field("json.gz", gzip.compress(text), max_bytes=len(text) - 1)
    two_members = gzip.compress(text[:50]) + gzip.compress(text[50:])
    assert decode_field("json.gz", two_members) == "x" * 100_000
    with pytest.raises(DecodeError, match="more than 1000 bytes"):
        decode_field("txt.gz", two_members, max_bytes=1000)


def test_a_bound_takes_no_memory_of_its_own() -> None:
    packed = encode_field("json.gz", {"a": 1})
    with traced_peak() as peak:
        assert decode_field("json.gz", packed) == {"a": 1}
        assert peak() < 1 << 20


def test_all_of_a_gzip_field_is_checked() -> None:
    one, two = gzip.compress(b'{"a": '), gzip.compress(b"1}")
    for damaged in (one + two[:-1], one + two + b"x", one + two[:-5] + b"\0" * 5, b""):
        with pytest.raises(DecodeError):
            decode_field("txt.gz", damaged)


def test_arrays_have_the_same_bound() -> None:
    packed = encode_field("npz", {"a": np.zeros(10_000), "b": np.zeros(10_000)})
    assert decode_field("npz", packed, max_bytes=200_000)["a"].shape == (10_000,)  # type: ignore[index]
    with pytest.raises(DecodeError, match="its arrays have 160256 bytes, more than max_bytes=100000"):
        decode_field("npz", packed, max_bytes=100_000)
