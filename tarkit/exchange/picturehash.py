"""The perceptual hash of a picture, by ``imagehash``."""

from __future__ import annotations

import io
import warnings
from typing import Any

from tarkit.extras import library


def hash_library() -> Any:
    """Import and return the module ``imagehash``.

    Raises:
        MissingExtraError: it is not installed.
    """
    return library("imagehash", "a perceptual hash", "dedup")


def picture_hash(data: bytes) -> bytes | None:
    """Return the pHash of a picture, 8 bytes, or None if the picture cannot be decoded.

    It is ``imagehash.phash``: of 32 x 32 gray pixels, which of the 64 lowest frequencies are above
    their median. So pictures of one colour have the same hash, unless it is black. Pictures of more
    than 89,478,485 pixels, Pillow's limit, are not decoded.

    Args:
        data: the file.
    """
    from PIL import Image

    phash = hash_library().phash
    try:
        # Warnings of damaged metadata do not matter here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            bits = str(phash(Image.open(io.BytesIO(data))))
    except MemoryError:
        raise
    except Exception:  # damaged pictures can make Pillow raise anything
        return None
    return bytes.fromhex(bits)
