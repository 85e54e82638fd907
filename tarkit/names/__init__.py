"""Names as text: URLs, patterns of names, redaction. No input or output."""
