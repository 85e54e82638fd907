"""Text that names things: URLs, patterns of names, and what of them may be shown.

No input or output.
"""
