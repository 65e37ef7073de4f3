"""TGI's tags: the commit of each, and the version that its sources, so its images, say they are.

tags.csv: git tags of the public repository huggingface/text-generation-inference to v3.3.7, each
tag's commit, and `version` of its Cargo.toml, which /info gives out. The two are not always one:
v3.3.6 and v3.3.7 both say 3.3.6-dev0.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("tags.csv")
_LEAST_DIGITS = 7
_LABEL = re.compile(r"sha-([0-9a-f]{7,40})\b")


@dataclass(frozen=True, slots=True)
class Tag:
    """version: "3.3.7". commit: 40 hex digits. says: the version of its sources."""

    version: str
    commit: str
    says: str


@cache
def tags() -> tuple[Tag, ...]:
    """All of them, oldest first."""
    with _FILE.open(encoding="ascii", newline="") as stream:
        return tuple(
            Tag(row["tag"].removeprefix("v"), row["commit"], row["version_in_source"])
            for row in csv.DictReader(stream)
        )


def tags_saying(version: str) -> tuple[Tag, ...]:
    """Those whose servers give out this version; () where none does."""
    return tuple(tag for tag in tags() if tag.says == version)


def built_from(sha: str | None, docker_label: str | None) -> Tag | None:
    """The tag whose commit a server says it was built from; None: it says none, or no tag's.

    docker_label: "sha-" and the commit's first digits, as official images have it.
    """
    label = _LABEL.match(docker_label or "")
    for digits in (sha, label[1] if label else None):
        if digits is None or len(digits) < _LEAST_DIGITS:
            continue
        for tag in tags():
            if tag.commit.startswith(digits):
                return tag
    return None
