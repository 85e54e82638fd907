"""Values of fields as text for people: texts, numbers, JSON, the first values of arrays."""

from __future__ import annotations

import codecs
from typing import Any

from tarkit.formats.tar.large import SkipLarge
from tarkit.samples.codecs import decode_field, decompress, extension_of

LARGE = SkipLarge(64 << 20, 128 << 20)
"""Policy for reading samples that are shown: of larger members, only the size is."""
_DECODED = ("cbor", "mp", "msgpack", "msg", "npy", "npz")
MOST_BYTES = 1 << 20
"""Size of a compressed or binary value above which it is not decoded, in bytes."""
_ITEMS = 16


def value_text(field: str, content: Any, most: int) -> str | None:
    """Return the value of a field as text, or None if it has none that people can read.

    A value that cannot be decoded is replaced by the reason in parentheses.

    Args:
        content: its bytes; None is returned for a stand-in for bytes.
        most: number of characters after which the text is cut; it ends with "…" then.
    """
    extension, compressed = extension_of(field)
    if not isinstance(content, bytes) or (len(content) > MOST_BYTES and (compressed or extension in _DECODED)):
        return None
    try:
        if extension in _DECODED:
            text = _described(decode_field(field, content, max_bytes=MOST_BYTES))
        else:
            plain = decompress(content, MOST_BYTES) if compressed else content[: 4 * most + 4]
            # A character that is cut at the end is left out.
            text = codecs.getincrementaldecoder("utf-8")().decode(plain)
    except UnicodeDecodeError:
        return None
    except Exception as error:  # damaged bytes can make a decoder raise anything
        return f"({getattr(error, 'reason', error)})"
    if "\0" in text:
        return None
    return text if len(text) <= most else f"{text[:most]}…"


def _described(value: Any) -> str:
    """Return a text for a decoded value; of an array, its type, its shape and its first values."""
    if hasattr(value, "dtype"):
        first = " ".join(map(str, value.ravel()[:_ITEMS].tolist()))
        return f"{value.dtype} {'×'.join(map(str, value.shape))}: {first}{' …' if value.size > _ITEMS else ''}"
    return str(value)
