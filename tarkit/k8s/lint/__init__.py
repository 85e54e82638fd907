"""What is wrong with manifests, before a server says it: ``rules.lint`` is the door."""
