"""Check that the content of a field begins as its extension says."""

from __future__ import annotations

import re

from tarkit.formats.tar.headers import looks_like

_HTML = re.compile(rb"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_MARKUP = ("html", "htm", "xhtml", "xml", "svg")
_ISO_MEDIA = rb"....(ftyp|moov|mdat|free|wide|skip)"
_BEGINNINGS = {
    "jpg jpeg jpe": rb"\xff\xd8\xff",
    "png": rb"\x89PNG\r\n\x1a\n",
    "gif": rb"GIF8[79]a",
    "webp": rb"RIFF....WEBP",
    "bmp": rb"BM",
    "tif tiff": rb"II[*+]\0|MM\0[*+]",
    "avif heic heif mp4 m4a m4v mov": _ISO_MEDIA,
    "ppm pgm pbm pnm": rb"P[1-7]\s",
    "jp2": rb"\0\0\0\x0cjP  ",
    "wav": rb"(RIFF|RF64)....WAVE",
    "flac": rb"fLaC|ID3",
    "ogg oga opus": rb"OggS",
    "mp3": rb"ID3|\xff[\xe0-\xff]",
    "webm mkv": rb"\x1aE\xdf\xa3",
    "pdf": rb"%PDF-",
    "npy": rb"\x93NUMPY",
    "npz zip": rb"PK\x03\x04",
    "gz tgz": rb"\x1f\x8b",
    "json": rb'(\xef\xbb\xbf)?\s*[\[{"0-9tfn-]',
}
PATTERNS = {
    extension: re.compile(pattern, re.DOTALL)
    for extensions, pattern in _BEGINNINGS.items()
    for extension in extensions.split()
}
"""Extension -> beginning of content of that name."""
_HEAD = 4096


def why_other_content(field: str, content: bytes) -> str | None:
    """Return the reason why the content is not what the field's last extension says, or None.

    Only the first bytes are looked at. A page of HTML is accepted in a field for such pages only.
    """
    extension = field.rpartition(".")[2].lower()
    head = bytes(content[:_HEAD])
    if extension not in _MARKUP and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") and _HTML.search(head):
        return "it is a page of HTML"
    pattern = PATTERNS.get(extension)
    return None if pattern is None or pattern.match(head) else f"it is not {extension}: {looks_like(head)}"
