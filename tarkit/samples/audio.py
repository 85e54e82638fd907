"""Decode audio with soundfile: whole fields, or parts of a long recording by time."""

from __future__ import annotations

import io
import math
import struct
from typing import Any, BinaryIO, NamedTuple

from tarkit.errors import UsageError
from tarkit.extras import MissingExtraError, library
from tarkit.samples.mediafile import MediaFile

AUDIO_FORMATS = ("wav", "flac", "ogg", "oga", "opus", "mp3")
"""Extensions of fields that are decoded as audio."""
MAX_BYTES = 1 << 30
"""Default of the largest size of decoded audio in bytes, 1 GiB."""
_PIPED = 0xFFFFFFFF
"""Size in the header of a WAV file that was written to a pipe."""
_NO_LENGTH = (1 << 63) - 1
"""soundfile's number of frames of a FLAC file that was written to a pipe."""
_LAST_PAGE = 10
"""More seconds than a page of Ogg has."""
_OGG_PAGE, _PAGE_HEADER, _LONGEST_PAGE = b"OggS", 27, 27 + 255 + 255 * 255


class Audio(NamedTuple):
    """Decoded audio.

    Attributes:
        samples: float32 array of shape (frames, channels), also with one channel, of -1 to 1.
        rate: number of frames in a second.
    """

    samples: Any
    rate: int


def decode_audio(data: bytes, *, max_bytes: int = MAX_BYTES) -> Audio:
    """Decode a file of WAV, FLAC, Ogg Vorbis, Opus or MP3.

    Args:
        data: the file.
        max_bytes: largest size of the decoded samples in bytes; each is 4 bytes.

    Raises:
        ValueError: the file is cut, or has more samples. A cut is detected in WAV and FLAC, which
            have their length in the header, and in Ogg inside of a page.
        soundfile.LibsndfileError: the file is damaged.
        MissingExtraError: soundfile is not installed.
    """
    return _read(MediaFile(data), 0.0, None, max_bytes)


def read_audio(
    file: BinaryIO, *, start: float = 0.0, seconds: float | None = None, max_bytes: int = MAX_BYTES
) -> Audio:
    """Decode a part of a recording.

    From a file of :meth:`tarkit.trainers.shardmap.ShardMap.open_field`, only the part is read, and
    up to 200 kB more. An MP3 has no table of its frames: it is read from its beginning to the part.

    >>> with samples.open_field(7, "flac") as file:  # doctest: +SKIP
    ...     part, rate = read_audio(file, start=60.0, seconds=5.0)

    Args:
        file: a seekable file.
        start: begin of the part in seconds, rounded to the nearest frame.
        seconds: length of the part in seconds, rounded too; None: to the end. At the end of the
            recording the part is shorter.
        max_bytes: largest size of the decoded samples in bytes; each is 4 bytes.

    Raises:
        UsageError: ``start`` or ``seconds`` is negative or not finite, or the part begins behind
            the end.
        DecodeError: the file is damaged or cut, or the part has too many samples. Errors of reading
            the file are raised unchanged.
        MissingExtraError: soundfile is not installed.
    """
    for name, value in (("start", start), ("seconds", seconds or 0.0)):
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} is {value!r}; it must be a number of seconds from 0 on")
    media = MediaFile(file)
    with media.decoding("audio"):
        return _read(media, start, seconds, max_bytes)


def _read(media: MediaFile, start: float, seconds: float | None, max_bytes: int) -> Audio:
    soundfile = _soundfile()
    _check_wav(media)
    with soundfile.SoundFile(media) as sound:
        begin = round(start * sound.samplerate)
        if begin > sound.frames:
            ends = f"the recording ends at {sound.frames / sound.samplerate:.3f} s"
            raise UsageError(f"{media.name or 'audio'}: start is {start:g} s, and {ends}")
        wanted = sound.frames - begin
        if seconds is not None:
            wanted = min(wanted, round(seconds * sound.samplerate))
        if begin + wanted == _NO_LENGTH:
            raise ValueError("its header has no length, as of a program that wrote to a pipe")
        if wanted * sound.channels * 4 > max_bytes:
            raise ValueError(f"it has more than {max_bytes} bytes once it is decoded; max_bytes allows more")
        _seek(sound, begin)
        samples = sound.read(wanted, dtype="float32", always_2d=True)
        if len(samples) < wanted:
            raise ValueError(f"cut: frames {begin} to {begin + wanted} are asked for, and {len(samples)} are there")
        if begin + wanted == sound.frames:
            _check_ogg(media)
        return Audio(samples, sound.samplerate)


def _seek(sound: Any, begin: int) -> None:
    """Go to a frame.

    In the last page of Vorbis, libvorbis goes to a place up to 64 frames off, so the frames before
    it are read instead.
    """
    before = _LAST_PAGE * sound.samplerate
    is_near_end = sound.subtype == "VORBIS" and sound.frames - begin < before
    near = max(0, begin - before) if is_near_end else begin
    if near:
        sound.seek(near)
    sound.read(begin - near, dtype="float32")


def _soundfile() -> Any:
    try:
        return library("soundfile", "audio", "audio")
    except OSError as error:  # the library in C that it loads is missing
        raise MissingExtraError("audio", "audio") from error


def _check_wav(media: MediaFile) -> None:
    """Check that a WAV file has the bytes that its header announces: soundfile ignores that.

    Raises:
        ValueError: the file is shorter, or its header has no length.
    """
    head = media.read(12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        at, name, size = 12, b"", _PIPED
        while name != b"data" and len(chunk := media.read(8)) == 8:
            name, size = struct.unpack("<4sI", chunk)
            begin = at + 8
            at = begin + size + size % 2
            media.seek(begin if name == b"data" else at)
        end = media.seek(0, io.SEEK_END)
        if name != b"data":
            raise ValueError("it has no chunk 'data'")
        if size != _PIPED and end < begin + size:
            raise ValueError(f"cut: by its header it has {begin + size} bytes, and it has {end}")
        if size == 0 and head[4:8] in (b"\0" * 4, b"\xff" * 4) and end > begin:
            raise ValueError(f"its header has no length, as of a program that wrote to a pipe, and {end} bytes follow")
    media.seek(0)


def _check_ogg(media: MediaFile) -> None:
    """Check that the last page of an Ogg file is whole (RFC 3533, 6): soundfile ignores a cut one.

    Raises:
        ValueError: it is cut.
    """
    media.seek(0)
    if media.read(4) != _OGG_PAGE:
        return
    media.seek(max(0, media.seek(0, io.SEEK_END) - _LONGEST_PAGE))
    tail = media.read(_LONGEST_PAGE)
    page = tail[tail.rfind(_OGG_PAGE + b"\0") :]
    segments = page[_PAGE_HEADER : _PAGE_HEADER + page[_PAGE_HEADER - 1]] if len(page) > _PAGE_HEADER else b""
    if not segments or len(page) < _PAGE_HEADER + len(segments) + sum(segments):
        raise ValueError("cut: its last page is not whole")
