"""TGI's version numbers: from text, and from the tag of an image."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tgi_bench.errors import InputError

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


NEWEST = "3.3.7"
"""The newest version whose launcher the table knows (2025-12-19); a newer one is taken as it."""

OLDEST = "0.8.0"

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})", re.ASCII)
_TAG = re.compile(r"v?(\d{1,4}\.\d{1,4}\.\d{1,4})(-[A-Za-z0-9._-]+)?", re.ASCII)


class Version(NamedTuple):
    """A release of TGI; tuples compare in the order of release."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> Version:
    """ "0.9.4" or "v0.9.4" as a Version.

    Raises InputError where the text is no version, or one before 0.8.0.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise InputError(f"`{text}` is no version of TGI; write it as three numbers: {NEWEST}")
    version = Version(int(found[1]), int(found[2]), int(found[3]))
    if version < _OLDEST:
        raise InputError(
            f"TGI {version} is older than {OLDEST}, the oldest that tgi-bench can drive: "
            "before it the shards return whole batches"
        )
    return version


def is_known(text: str) -> bool:
    """Whether the table knows this version's launcher: 0.8.0 to 3.3.7; InputError as above."""
    return parse_version(text) <= _NEWEST


def unknown_behaviour(text: str) -> str:
    """What the embedded server says to a version that is not known."""
    return f"the embedded server shows the behaviours of {OLDEST} to {NEWEST}, not of {text}"


def version_of_image(image: str) -> str | None:
    """The version that an image's tag names: "0.9.4" of `...:0.9.4` and `...:0.9.4-rocm`.

    None for no tag, `latest`, `sha-1a2b3c4`, a digest alone, and a two-part tag such as
    `3.3`, which moves from release to release.
    """
    found = _TAG.fullmatch(tag_of(image))
    return found[1] if found else None


def tag_of(image: str) -> str:
    """What stands after the colon of an image's name; "" where it has no tag."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


_OLDEST = Version(*map(int, OLDEST.split(".")))
_NEWEST = Version(*map(int, NEWEST.split(".")))
