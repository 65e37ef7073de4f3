"""Pulling: a registry of our own, with one image of one small layer."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import docker
import pytest
from docker.errors import APIError, ImageNotFound

from tgi_bench.errors import LaunchError
from tgi_bench.launch.docker_engine import resolve

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_TAG = "0.9.4"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    return buffer.getvalue()


def _blobs() -> tuple[dict[str, bytes], bytes]:
    """Blobs by digest, and the manifest that names them."""
    layer = _layer()
    packed = gzip.compress(layer, mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["CUDA_VERSION=12.4.1"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    types = ("container.image.v1+json", "image.rootfs.diff.tar.gzip")
    described = [
        {
            "mediaType": f"application/vnd.docker.{kind}",
            "size": len(data),
            "digest": _digest(data),
        }
        for kind, data in zip(types, (config, packed), strict=True)
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": described[0],
        "layers": described[1:],
    }
    return {_digest(data): data for data in (config, packed)}, json.dumps(manifest).encode()


BLOBS, MANIFEST = _blobs()


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if self.path == "/v2/":
            self._answer(b"{}", "application/json")
        elif "/tgi/manifests/" in self.path and name in (_TAG, _digest(MANIFEST)):
            self._answer(MANIFEST, _MANIFEST)
        elif name in BLOBS:
            self._answer(BLOBS[name], "application/octet-stream")
        else:
            self.send_error(404)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", _digest(body))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not into the tests' output."""


@pytest.fixture
def repository(client: docker.DockerClient) -> Iterator[str]:
    """The name of a repository that the engine can pull from."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"127.0.0.1:{server.server_address[1]}/tgi"
        yield name
        for reference in (f"{name}:{_TAG}", f"{name}@{_digest(MANIFEST)}"):
            with suppress(ImageNotFound, APIError):
                client.images.remove(reference)
        server.shutdown()


@pytest.mark.parametrize("reference", [f":{_TAG}", f"@{_digest(MANIFEST)}"])
def test_an_image_is_pulled_once(
    client: docker.DockerClient, repository: str, reference: str
) -> None:
    said: list[str] = []
    image = resolve(client, repository + reference, 30.0, said.append)
    assert image.digest == f"{repository}@{_digest(MANIFEST)}"
    assert image.cuda == "12.4.1"
    assert said[0] == f"pulling {repository}{reference}"
    assert "1 of 1 layers" in said[-1]
    count = len(said)
    # It is there now: no pull, and none is needed.
    assert resolve(client, repository + reference, None, said.append) == image
    assert len(said) == count


def test_a_tag_that_does_not_exist(client: docker.DockerClient, repository: str) -> None:
    with pytest.raises(LaunchError, match=r"image .*:9\.9\.9 (does not exist|cannot be pulled): "):
        resolve(client, f"{repository}:9.9.9", 30.0, lambda _: None)


def test_a_pull_that_takes_too_long(client: docker.DockerClient, repository: str) -> None:
    with pytest.raises(LaunchError, match=r"not pulled within 0 s \(server\.timeouts\.pull_s\)"):
        resolve(client, f"{repository}:{_TAG}", 0.0, lambda _: None)
