"""Whether torch and transformers are installed, told without importing them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from tgi_bench.errors import InputError

_NEEDED = ("torch", "transformers", "accelerate")
PIP_COMMAND = "pip install 'tgi-bench[transformers]'"


def require_extra() -> None:
    """Raise InputError, with the command that mends it, where a package is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"the transformers engine needs {' and '.join(missing)}, not installed here: "
            f"{PIP_COMMAND}"
        )
    major = version_of("transformers").partition(".")[0]
    if major != "4":
        raise InputError(
            f"the transformers engine needs transformers 4, not {version_of('transformers')}: "
            f"{PIP_COMMAND}"
        )


def version_of(package: str) -> str:
    """The version of an installed package; "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
