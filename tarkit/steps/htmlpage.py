"""Self-contained HTML pages, which work from disk and show other people's data safely.

The data is one JSON block, which a script of the page shows as text. The content policy of the page
allows that one script and pictures, sound and video of the page itself: nothing is loaded, and no
data becomes an element or a handler.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

from tarkit.errors import escaped

_POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
    "script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
)


def page_part(name: str) -> str:
    """Return the text of a file beside this module, such as ``htmlpage.css``."""
    return files("tarkit.steps").joinpath(name).read_text("utf-8")


def page(title: str, body_html: str, data: Any, script: str, style: str) -> bytes:
    """Return a page, as UTF-8.

    Light or dark by the reader's settings, with the colours of ``htmlpage.css``. The script runs
    after ``htmlpage.js``, which defines ``data``, ``element()`` and ``visible()``.

    Args:
        title: title of the page, any text.
        body_html: content of the body; texts in it are escaped by :func:`text_html`.
        data: the data that the script shows, as JSON has it.
        script: JavaScript of the page, without ``</script``.
        style: CSS after the common style.

    Raises:
        ValueError: the data has a number that JSON does not have, such as nan.
    """
    # "<" would end the block, or begin a comment in it. All that is not ASCII is escaped as well.
    block = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    script = f"{page_part('htmlpage.js')}{script}"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest=digest)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text_html(title)}</title>\n<style>{page_part('htmlpage.css')}{style}</style></head>\n"
        f'<body>\n{body_html}\n<script type="application/json" id="data">{block}</script>\n'
        f"<script>{script}</script></body></html>\n"
    ).encode()


def text_html(text: str) -> str:
    """Return any text as HTML that shows it; invisible and bidirectional characters are escaped."""
    return html.escape(escaped(text))
