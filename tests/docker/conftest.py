"""A Docker Engine and the embedded server's image; where one is missing, tests skip and say so."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.docker.images import NoImageError, embedded_image
from tests.docker.sweeps import Sweeps
from tgi_bench.errors import LaunchError
from tgi_bench.launch.docker_engine import engine


@pytest.hookimpl(tryfirst=True)  # xdist reads the mark in its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One engine and one image serve them all: two at once would each build and end the other's."""
    here = Path(__file__).parent
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.xdist_group("docker"))


@pytest.fixture(scope="session")
def client() -> Iterator[docker.DockerClient]:
    """The engine that DOCKER_HOST names."""
    try:
        context = engine()
        found = context.__enter__()
    except LaunchError as error:
        pytest.skip(f"SKIPPED, NO REAL CONTAINERS WERE TESTED: {error}")
    yield found
    found.close()


@pytest.fixture(scope="session")
def image(client: docker.DockerClient) -> str:
    """The embedded server of this tree."""
    try:
        return embedded_image(client)
    except NoImageError as error:
        pytest.skip(f"SKIPPED, NO REAL CONTAINERS WERE TESTED: {error}")


@pytest.fixture
def sweeps(client: docker.DockerClient, image: str, tmp_path: Path) -> Iterator[Sweeps]:
    """Sweeps whose results lie in a folder of the test; none may leave a container."""
    made = Sweeps(client, image, tmp_path, Path(tempfile.mkdtemp(prefix="tb", dir="/tmp")))
    try:
        yield made
        assert made.containers() == []
        assert list(made.temporary.iterdir()) == [], "socket folders were left"
    finally:
        made.end()
