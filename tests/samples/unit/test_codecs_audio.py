"""Audio is decoded whole or in parts, and what is cut or damaged is an error."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from tarkit.errors import DecodeError, EncodeError, StreamError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.samples.audio import AUDIO_FORMATS, Audio, read_audio
from tarkit.samples.codecs import decode_field, encode_field
from tarkit.samples.tarwriter import TarWriter
from tarkit.store.ranges import Ranges
from tarkit.trainers.shardmap import ShardMap

soundfile = pytest.importorskip("soundfile", reason="NO soundfile, SO NO AUDIO IS DECODED (pip install soundfile)")
np = pytest.importorskip("numpy")
RATE = 8000
KINDS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS"), "opus": ("OGG", "OPUS")}
KINDS |= {"mp3": ("MP3", None)}  # type: ignore[dict-item]


def tone(seconds: float, channels: int = 1) -> Any:
    """A tone with noise, which does not compress well, and is different in each channel."""
    at = np.arange(round(seconds * RATE))
    noise = np.random.default_rng(0).standard_normal(len(at))
    one = (0.3 * np.sin(at / 5) + 0.1 * noise).clip(-1, 1).astype("float32")
    return np.stack([one * (channel + 1) / channels for channel in range(channels)], 1)


def recorded(extension: str, samples: Any) -> bytes:
    kind, subtype = KINDS[extension]
    stream = io.BytesIO()
    with soundfile.SoundFile(stream, "w", RATE, samples.shape[1], subtype, format=kind) as sound:
        for begin in range(0, len(samples), RATE):  # libsndfile crashes on long blocks of Vorbis
            sound.write(samples[begin : begin + RATE])
    return stream.getvalue()


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("extension", KINDS)
def test_each_format_is_decoded(extension: str, channels: int) -> None:
    wanted = tone(1, channels)
    found = decode_field(f"talk.{extension.upper()}", recorded(extension, wanted))
    assert isinstance(found, Audio)
    samples, rate = found
    assert (samples.dtype, samples.shape, rate) == (np.float32, (RATE, channels), RATE)
    near = 1e-4 if extension in ("wav", "flac") else 0.5
    assert abs(samples - wanted).max() < near
    assert np.corrcoef(samples[:, -1], wanted[:, -1])[0, 1] > 0.9


@pytest.mark.parametrize("extension", KINDS)
def test_a_part_is_that_of_the_whole(extension: str) -> None:
    data = recorded(extension, tone(3))
    whole = decode_field(extension, data).samples  # type: ignore[attr-defined]
    for start, seconds, begin, end in (
        (1.0, 0.5, 8000, 12000),
        (0, 0.25, 0, 2000),
        (2.75, 9, 22000, 24000),
        (1.5, None, 12000, 24000),
        (3.0, 1.0, 24000, 24000),
        (0.00006, 0.00006, 0, 0),
        (0.00007, 0.00007, 1, 2),
    ):
        part, rate = read_audio(io.BytesIO(data), start=start, seconds=seconds)
        assert rate == RATE and part.shape == (end - begin, 1)
        assert np.allclose(part, whole[begin:end], atol=1e-3)


@pytest.mark.parametrize(
    ("extension", "seconds", "most"), [("wav", 600, 130_000), ("flac", 600, 160_000), ("mp3", 60, None)]
)
def test_of_a_long_recording_a_part_is_read(
    extension: str, seconds: int, most: int | None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 s, as of the recordings of a data set of speech."""
    long, path, reads = np.tile(tone(10), (seconds // 10, 1)), str(tmp_path / "a.tar"), list[int]()
    with TarWriter(path, index=True) as writer:
        writer.write({"__key__": "a", extension: recorded(extension, long)})
    original = Ranges.read

    def noted(ranges: Ranges, start: int, stop: int) -> bytes:
        reads.append(stop - start)
        return original(ranges, start, stop)

    with ShardMap(path).open_field(0, extension) as file:
        monkeypatch.setattr(Ranges, "read", noted)
        part, _ = read_audio(file, start=seconds / 2, seconds=5)
    assert part.shape == (5 * RATE, 1)
    assert np.corrcoef(part[:, 0], long[: 5 * RATE, 0])[0, 1] > 0.9
    assert sum(reads) < (most or len(long)) and len(reads) <= 100


@pytest.mark.parametrize("extension", KINDS)
def test_what_is_damaged_is_an_error(extension: str) -> None:
    data = recorded(extension, tone(2))
    for bad, what in (
        (b"hello", "it looks like text beginning 'hello'"),
        (b"", "it is empty"),
        (data[: len(data) // 2], "it "),
        (data[:100], "it "),
    ):
        with pytest.raises(DecodeError) as caught:
            decode_field(extension, bad, key="a/1", url="s.tar")
        text = str(caught.value)
        assert text.startswith(f"s.tar, key 'a/1': field '{extension}' cannot be decoded: "), text
        assert (
            f"; it must be a whole {extension} file, and {what}" in text and "\n" not in text and " at 0x" not in text
        )


def test_what_headers_leave_open() -> None:
    """Programs that write to a pipe do not know the length."""
    data = bytearray(recorded("flac", tone(2)))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    assert read_audio(io.BytesIO(data), start=1, seconds=0.5).samples.shape == (RATE // 2, 1)
    with pytest.raises(DecodeError, match=r"'flac' cannot be decoded: its header has no length, as of a program"):
        decode_field("flac", bytes(data))
    wav = bytearray(recorded("wav", tone(2)))
    at = wav.index(b"data") + 4
    wav[4:8] = wav[at : at + 4] = b"\xff" * 4
    assert decode_field("wav", bytes(wav)).samples.shape == (2 * RATE, 1)  # type: ignore[attr-defined]
    wav[4:8] = wav[at : at + 4] = bytes(4)
    with pytest.raises(DecodeError, match=r"its header has no length, as of a program that wrote to a pipe"):
        decode_field("wav", bytes(wav))
    with pytest.raises(DecodeError, match=r"it has no chunk 'data'"):
        decode_field("wav", bytes(wav[: at - 4]))
    assert decode_field("wav", recorded("wav", tone(0))).samples.shape == (0, 1)  # type: ignore[attr-defined]


def test_audio_that_is_too_large() -> None:
    data = recorded("flac", tone(2, 2))
    assert decode_field("flac", data, max_bytes=2 * RATE * 8)
    with pytest.raises(DecodeError, match=r"more than 127999 bytes once it is decoded; max_bytes allows more"):
        decode_field("flac", data, max_bytes=2 * RATE * 8 - 1)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"start": -1}, r"^start is -1; it must be a number of seconds from 0 on"),
        ({"seconds": float("nan")}, r"^seconds is nan; it must be"),
        ({"start": 2.001}, r"^audio: start is 2\.001 s, and the recording ends at 2\.000 s"),
    ],
)
def test_parts_that_do_not_exist(part: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_audio(io.BytesIO(recorded("wav", tone(2))), **part)


@pytest.mark.parametrize("fails_at", [0, 1, 2, 5])
def test_an_error_of_a_read_is_that_of_the_call(fails_at: int) -> None:
    """Not a shorter part: libsndfile takes an error for the end of the file."""

    class File(io.BytesIO):
        reads = 0

        def readinto(self, buffer: Any) -> int:
            return self.read(len(buffer), buffer)

        def read(self, size: Any = -1, into: Any = None) -> Any:
            File.reads += 1
            if File.reads > fails_at:
                raise StreamError("the network is gone", url="s.tar")
            data = super().read(size)
            if into is None:
                return data
            into[: len(data)] = data
            return len(data)

    File.reads = 0
    with pytest.raises(StreamError, match=r"^s\.tar: the network is gone$"):
        read_audio(File(recorded("wav", tone(20))), start=10)


@pytest.mark.parametrize(("at", "kind"), [(31, "AIFF"), (28, "RF64")])
def test_a_header_that_names_no_place(at: int, kind: str) -> None:
    """What soundfile then asks for is refused by Python's file, and that is no error of a read."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros((100, 1), "f4"), 8000, format=kind)
    data = bytearray(file.getvalue())
    data[at : at + 8] = b"\xff" * 7 + b"\x7f"
    with pytest.raises(DecodeError, match=r"^a header names a place that no file has \(ne[a-z ]+"):
        read_audio(io.BytesIO(bytes(data)), start=0.001, seconds=0.001)
    with pytest.raises(ValueError, match="closed file"):
        file.close()
        read_audio(file)


def test_a_part_that_is_damaged_names_its_member(tmp_path: Any) -> None:
    with TarWriter(str(tmp_path / "a.tar"), index=True) as writer:
        writer.write({"__key__": "x/7", "flac": recorded("flac", tone(2))[:5000]})
    file = ShardMap(str(tmp_path / "a.tar")).open_field(0, "flac")
    with pytest.raises(DecodeError, match=r"a\.tar, member 'x/7\.flac': the audio cannot be decoded: "):
        read_audio(file)


def test_audio_is_not_encoded() -> None:
    for extension in AUDIO_FORMATS:
        assert encode_field(extension, b"\x00") == b"\x00"
        for value in ("text", Audio(tone(1), RATE)):
            with pytest.raises(EncodeError, match=r"audio is only decoded; give the bytes of a file"):
                encode_field(extension, value)


@pytest.mark.parametrize("reason", [None, OSError("libsndfile is missing")])
def test_the_library_is_missing(reason: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "soundfile":
                raise reason

    monkeypatch.delitem(sys.modules, "soundfile", raising=False)
    if reason is None:
        monkeypatch.setitem(sys.modules, "soundfile", None)
    else:
        monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    with pytest.raises(MissingExtraError, match=r"^audio needs .*: pip install soundfile \(or .* extra 'audio'\)"):
        decode_field("wav", b"RIFF")
