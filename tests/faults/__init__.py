"""Things that go wrong, on purpose and on schedule. README.md says what is there."""
