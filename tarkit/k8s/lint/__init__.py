"""What is wrong with manifests, before a server says it.

Doors: ``rules.lint``, and with the schema ``verdict.verdict``.
"""
