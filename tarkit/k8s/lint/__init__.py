"""What is wrong with manifests, before a server reports it: ``rules.lint``, and with the schema ``rules.verdict``."""
