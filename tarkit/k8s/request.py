"""What a generator is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from tarkit.k8s.settings import Settings
from tarkit.k8s.yamltext import Document


@dataclass
class Request:
    """Settings, the documents of the template, and words that are no settings.

    words: arguments besides the flags; of indexed more options of tarproc, of configmap the files. here: the
    manifest is to run on this machine, so local paths are fine, and the image does not matter. notes: what the
    generator has to say besides, a sentence each.
    """

    settings: Settings
    template: list[Document]
    words: list[str] = field(default_factory=list)
    here: bool = False
    notes: list[str] = field(default_factory=list)
