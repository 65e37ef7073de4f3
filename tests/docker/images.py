"""The images of docker/, built for tests: once for each content, with no package index inside.

    python -m tests.docker.images      builds what is missing and prints the embedded image

The base image is the first that can be had: one that is there already, one that a registry
gives, one that debootstrap makes. Wheels come from the package index that pip here uses.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import APIError, BuildError, ImageNotFound
from requests.exceptions import RequestException

ROOT = Path(__file__).parents[2]
VERSION = "0.9.4"
"""Of TGI, which the embedded image shows; its own tag names it."""
OURS = "tgi-bench-test"
EMBEDDED = "tgi-bench-embedded-test"
DEBIAN_BASE = "tgi-bench-test-base:bookworm"
REGISTRY_BASE = "python:3.12-slim"
_PACKAGES = "python3,python3-venv,ca-certificates"
_LARGE = ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt")
_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
_CONTENT = ("pyproject.toml", "README.md", "LICENSE", ".dockerignore")


class NoImageError(Exception):
    """The images cannot be built here, and why."""


def embedded_image(client: docker.DockerClient) -> str:
    """The tag of the embedded server's image for this very tree; builds it where it is missing.

    Raises NoImageError.
    """
    digest = _digest()
    # The tag must name TGI's version; what follows it is a suffix as TGI's own tags have.
    tag = f"{EMBEDDED}:{VERSION}-{digest}"
    with _one_at_a_time():
        if not _exists(client, tag):
            _build(client, f"{OURS}:{digest}", tag)
    return tag


def _build(client: docker.DockerClient, ours: str, embedded: str) -> None:
    base = _base(client)
    wheels = _wheels(_python_of(client, base))
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        for name in _CONTENT:
            shutil.copy(ROOT / name, context / name)
        for name in ("tgi_bench", "docker"):
            ignored = shutil.ignore_patterns("__pycache__", "*.whl")
            shutil.copytree(ROOT / name, context / name, ignore=ignored)
        for wheel in wheels.glob("*.whl"):
            shutil.copy(wheel, context / "docker" / "wheels")
        arguments = {"BASE": base, "PIP_OPTIONS": "--no-index"}
        _run_build(client, context, "docker/Dockerfile", ours, arguments)
        arguments = {"TGI_BENCH": ours, "TGI_VERSION": VERSION}
        _run_build(client, context, "docker/Dockerfile.embedded", embedded, arguments)


def _run_build(
    client: docker.DockerClient, context: Path, file: str, tag: str, arguments: dict[str, str]
) -> None:
    try:
        client.images.build(
            path=str(context), dockerfile=file, tag=tag, buildargs=arguments, rm=True, forcerm=True
        )
    except BuildError as error:
        lines = [str(entry.get("stream", "")).rstrip() for entry in error.build_log]
        raise NoImageError(f"{file}: {error}\n" + "\n".join(lines[-20:])) from error


def _base(client: docker.DockerClient) -> str:
    for name in (DEBIAN_BASE, REGISTRY_BASE):
        if _exists(client, name):
            return name
    try:
        client.images.pull(REGISTRY_BASE)
    except (APIError, RequestException) as error:
        _debootstrap(client, str(error))
        return DEBIAN_BASE
    return REGISTRY_BASE


def _debootstrap(client: docker.DockerClient, why: str) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise NoImageError(
            f"no base image: {REGISTRY_BASE} cannot be pulled ({why}), and debootstrap is not "
            "installed or this is not root"
        )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={_PACKAGES}",
            "bookworm",
            str(root),
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise NoImageError(f"debootstrap failed: {made.stdout[-400:]}")
        for name in _LARGE:
            shutil.rmtree(root / name, ignore_errors=True)
        archive = Path(folder, "root.tar")
        subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
        repository, _, tag = DEBIAN_BASE.partition(":")
        client.api.import_image_from_file(str(archive), repository=repository, tag=tag)
        client.images.get(DEBIAN_BASE)


def _python_of(client: docker.DockerClient, base: str) -> str:
    """ "3.11"."""
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = client.containers.run(base, ["python3", "-c", script], remove=True)
    return bytes(said).decode().strip()


def _wheels(python: str) -> Path:
    """A folder with the wheels of all dependencies for that Python; kept between sessions."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    name = hashlib.sha256(f"{python} {sorted(wanted)}".encode()).hexdigest()[:12]
    folder = _cache() / f"wheels-{name}"
    if folder.exists():
        return folder
    unfinished = Path(tempfile.mkdtemp(dir=_cache()))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--implementation=cp", f"--python-version={python}", "--dest", str(unfinished)]
    command += [f"--platform={platform}" for platform in _PLATFORMS]
    made = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(unfinished)
        raise NoImageError(f"no wheels for the image: {made.stderr[-600:]}")
    unfinished.rename(folder)
    return folder


def _digest() -> str:
    files = [ROOT / name for name in _CONTENT]
    for name in ("tgi_bench", "docker"):
        files += [p for p in (ROOT / name).rglob("*") if p.is_file()]
    digest = hashlib.sha256()
    for file in sorted(files):
        if "__pycache__" not in file.parts and file.suffix != ".whl":
            digest.update(f"{file.relative_to(ROOT)}\0{file.stat().st_mode & 0o111}\0".encode())
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _exists(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(home, "tgi-bench-tests")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with (_cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        print(embedded_image(docker.from_env()))
    except NoImageError as problem:
        sys.exit(str(problem))
