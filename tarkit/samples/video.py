"""Decode frames of a video by time with torchcodec, from bytes or a part of a shard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

from tarkit.errors import UsageError
from tarkit.extras import library
from tarkit.samples.mediafile import MediaFile

_ROUNDING = 1e-6


class VideoLibraryError(UsageError, ImportError):
    """torchcodec is installed, and cannot be loaded."""


class Frames(NamedTuple):
    """Decoded frames of a video.

    Attributes:
        pixels: uint8 tensor of shape (frames, 3, height, width), RGB.
        begins: float64 tensor with the time at which each frame begins, in seconds.
    """

    pixels: Any
    begins: Any


def read_frames(
    video: bytes | BinaryIO, seconds: Sequence[float], *, mappings: str | bytes | None = None, device: str = "cpu"
) -> Frames:
    """Decode the frames that are played at the given times.

    Bytes are scanned once for the exact time of each frame. A file, such as one of
    :meth:`tarkit.trainers.shardmap.ShardMap.open_field`, is not: that would read all of it. There
    the places of frames follow from the mean frame rate in the header, or from ``mappings``, and a
    frame that is not played at the time that was asked for is an error.

    >>> with samples.open_field(7, "mp4") as file:  # doctest: +SKIP
    ...     pixels, begins = read_frames(file, [60.0, 60.5, 61.0])

    Args:
        video: the content of a file that FFmpeg can decode, or a seekable file.
        seconds: times in seconds, in any order, in which the frames are returned.
        mappings: time, duration and key of each frame, JSON of ``ffprobe -v error -select_streams
            v:0 -show_entries frame=pts,duration,key_frame -of json``.
        device: device that decodes, such as ``cuda``: in the process of the training loop, not in a
            worker that was forked.

    Raises:
        UsageError: a time is not in the video, ``seconds`` is empty, or torchcodec cannot be
            loaded.
        DecodeError: the video cannot be decoded, or a frame is of another time. Errors of reading
            the file are raised unchanged.
        MissingExtraError: torchcodec is not installed.
    """
    times = [float(each) for each in seconds]
    if not times or not all(map(math.isfinite, times)):
        raise UsageError(f"seconds is {seconds!r}; it must be one or more times in seconds")
    media = MediaFile(video)
    options: dict[str, Any] = {} if mappings is None else {"custom_frame_mappings": mappings}
    hint = None
    if mappings is None and not isinstance(video, bytes):
        options, hint = {"seek_mode": "approximate"}, "if its frame rate varies, give mappings= or its bytes"
    with media.decoding("video", hint):
        source = video if isinstance(video, bytes) else media
        decoder = _decoders().VideoDecoder(source, device=device, **options)
        begin, end = decoder.metadata.begin_stream_seconds, decoder.metadata.end_stream_seconds
        for time in times:
            if not begin <= time < end:
                raise UsageError(f"{media.name or 'video'}: {time:g} s is not in it: it has {begin:.3f} to {end:.3f} s")
        found = decoder.get_frames_played_at(seconds=times)
        _check_times(times, found)
        return Frames(found.data, found.pts_seconds)


def _check_times(times: list[float], found: Any) -> None:
    """Check that each frame is the one that is played at its time.

    Raises:
        ValueError: it is another one.
    """
    for time, begin, length in zip(times, found.pts_seconds.tolist(), found.duration_seconds.tolist(), strict=True):
        if not begin - _ROUNDING <= time < begin + length + _ROUNDING:
            raise ValueError(f"at {time:g} s there is the frame of {begin:.3f} to {begin + length:.3f} s")


def _decoders() -> Any:
    try:
        decoders = library("torchcodec.decoders", "video", "video")
        if library("torchcodec", "video", "video").ffmpeg_major_version is None:
            raise OSError("FFmpeg is missing")
        return decoders
    except (RuntimeError, OSError) as error:
        reason = "its FFmpeg libraries or its kind of torch are missing"
        hint = "install FFmpeg (apt-get install ffmpeg), and the torchcodec for this torch"
        raise VideoLibraryError(
            f"video needs torchcodec, which is installed and cannot be loaded: {reason}; {hint}"
        ) from error
