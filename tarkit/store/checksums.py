"""Verify checksums of whole objects while their bytes are read, if the store has one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from email.message import Message


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """Return the CRC-32 of ISO 3309, ten times as fast as that of ``zlib``.

    Args:
        data: bytes.
        value: CRC-32 of the bytes before them.
    """
    from isal import isal_zlib

    result: int = isal_zlib.crc32(data, value)
    return result


class _Crc32:
    _value = 0

    def update(self, data: bytes) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


class Checksum:
    """The checksum that a store gives for an object.

    Args:
        name: crc32, crc32c, md5, sha1 or sha256.
        expected: the digest, big-endian.
    """

    def __init__(self, name: str, expected: bytes) -> None:
        self.name = name
        self.expected = expected
        if name == "crc32c":
            import google_crc32c

            self._hash: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
        elif name == "crc32":
            self._hash = _Crc32()
        else:
            self._hash = hashlib.new(name, usedforsecurity=False)

    def update(self, data: bytes) -> None:
        """Add the next bytes of the object."""
        self._hash.update(data)

    def problem(self) -> str | None:
        """Return a phrase for a difference; None if the checksum is right."""
        found: bytes = self._hash.digest()
        if found == self.expected:
            return None
        return f"the {self.name} of the received bytes is {found.hex()}, but the store gives {self.expected.hex()}"


_LENGTHS = {"crc32": 4, "crc32c": 4, "md5": 16, "sha1": 20, "sha256": 32}


def _decoded(name: str, text: str) -> Checksum | None:
    """Decode a checksum from base64.

    None if it is not valid, or does not have the length of this checksum (a checksum of parts,
    ``…-3``).
    """
    try:
        expected = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return Checksum(name, expected) if len(expected) == _LENGTHS[name] else None


def _listed(values: list[str]) -> dict[str, str]:
    """Parse ``a=x, b=y`` of headers that may be repeated; names are in lower case."""
    pairs = [item.strip().partition("=") for value in values for item in value.split(",")]
    return {name.lower(): value for name, _, value in pairs}


def from_headers(headers: Message, host: str) -> Checksum | None:
    """Return the checksum for the whole object in an answer of status 200, if any.

    Used are: ``x-goog-hash`` (crc32c, md5) unless the object is stored compressed and sent
    decompressed; ``Repr-Digest`` (RFC 9530) and ``Digest`` (RFC 3230) with sha-256;
    ``x-amz-checksum-`` crc32c, crc32, sha256 and sha1 of type FULL_OBJECT, or without a type if the
    ETag is not that of a multipart object; ``Content-MD5``; and the ETag of Amazon S3 itself where
    its documentation says that it is an MD5: 32 hex digits (so no multipart), not encrypted with
    KMS or a customer's key, not in a directory bucket. The ETags of other stores look equal but may
    be any text.
    """
    given: list[tuple[str, str]] = []
    stored = headers.get("x-goog-stored-content-encoding", "identity").strip().lower()
    if stored == headers.get("Content-Encoding", "identity").strip().lower():
        goog = _listed(headers.get_all("x-goog-hash", []))
        given += [(name, goog.get(name, "")) for name in ("crc32c", "md5")]
    for header in ("Repr-Digest", "Digest"):
        text = _listed(headers.get_all(header, [])).get("sha-256", "")
        given.append(("sha256", text.strip().strip(":")))
    # Stores other than Amazon's leave the type out; but an object whose ETag has no number of parts
    # was uploaded at once.
    kind = headers.get("x-amz-checksum-type", "" if "-" in headers.get("ETag", "-") else "FULL_OBJECT")
    if kind.upper() == "FULL_OBJECT":
        given += [(name, headers.get(f"x-amz-checksum-{name}", "")) for name in ("crc32c", "crc32", "sha256", "sha1")]
    given.append(("md5", headers.get("Content-MD5", "")))
    return next(filter(None, (_decoded(name, text) for name, text in given)), None) or _amazon_md5(headers, host)


def _amazon_md5(headers: Message, host: str) -> Checksum | None:
    etag = headers.get("ETag", "").strip('"')
    if headers.get("Server") != "AmazonS3" or "s3express" in host or not re.fullmatch(r"[0-9a-f]{32}", etag):
        return None
    encrypted = headers.get("x-amz-server-side-encryption", "AES256") != "AES256"
    if encrypted or "x-amz-server-side-encryption-customer-algorithm" in headers:
        return None
    return Checksum("md5", bytes.fromhex(etag))


def from_info(info: Mapping[str, Any]) -> Checksum | None:
    """Return the checksum in the result of fsspec's ``info()``, if any.

    GCS gives crc32c and md5Hash. The ETag of S3 is not used, because ``info()`` does not show if it
    is an MD5.
    """
    if info.get("contentEncoding"):
        return None
    given = (("crc32c", info.get("crc32c")), ("md5", info.get("md5Hash")))
    return next(filter(None, (_decoded(name, text) for name, text in given if isinstance(text, str))), None)
