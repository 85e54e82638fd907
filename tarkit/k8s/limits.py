"""How much the API takes: numbers that its server refuses to go beyond.

Source: pkg/apis/batch/validation of Kubernetes, and pkg/api/validation of k8s.io/apimachinery.
"""

from __future__ import annotations

INDEXES = 100_000
"""Of an Indexed Job: pods at once, and indexes that may fail."""

INDEXES_OF_MANY = 10_000
"""The same, where there are more than ``INDEXES`` completions with backoffLimitPerIndex."""

ANNOTATIONS = 262_144
"""Bytes of all annotations of an object; client-side ``kubectl apply`` keeps the whole manifest in one of them."""
