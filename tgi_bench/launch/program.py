"""The launcher `process`: text-generation-launcher, or another command, on this machine."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch.cause import port_taken
from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.launch.ready_process import Program, running
from tgi_bench.launch.secrets import require_set
from tgi_bench.launch.sockets import socket_folder
from tgi_bench.plan.plan import Deployment, ProcessOptions
from tgi_bench.plan.server_command import Reach, server_arguments

_HOSTNAME = "127.0.0.1"


def require_startable(deployment: Deployment) -> None:
    """Raise InputError where the program is not there, or a variable to hand on is not set."""
    words = command_words(deployment)
    if shutil.which(words[0]) is None:
        raise InputError(
            f"`{words[0]}` is not on the PATH: install it, or say in server.command how "
            f"{engine_spec(deployment.engine).title} is started"
        )
    require_set(deployment, os.environ)


@contextmanager
def launch(deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
    """Starts the command, waits until it is ready, and ends it when the context is left.

    Its port is chosen here, since the engines cannot say which they were given; it is tried
    once more where another program took that port in between. Raises LaunchError.
    """
    with ExitStack() as stack:
        try:
            server = stack.enter_context(_started(deployment, options))
        except LaunchError as error:
            if not port_taken(error.log_tail):
                raise
            options.progress("its port was taken meanwhile, starting again")
            server = stack.enter_context(_started(deployment, options))
        yield server


@contextmanager
def _started(deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
    spec = engine_spec(deployment.engine)
    with socket_folder() as stem:
        port, master_port = free_ports(2)
        tgi = deployment.engine is Engine.TGI
        reach = Reach(_HOSTNAME, port, str(stem), master_port) if tgi else Reach(_HOSTNAME, port)
        url = f"http://{_HOSTNAME}:{port}"
        program = Program(
            argv=(
                *command_words(deployment),
                *server_arguments(deployment, reach, in_image=False),
            ),
            find_url=lambda _lines: url,
            master_socket=stem.with_name(f"{stem.name}-0") if spec.has_shards else None,
            no_socket_reason="" if spec.has_shards else no_shards(deployment),
        )
        with running(deployment, options, program) as server:
            yield server


def command_words(deployment: Deployment) -> tuple[str, ...]:
    """The words before the arguments: the experiment's, else the engine's program."""
    host = deployment.host
    given = host.command if isinstance(host, ProcessOptions) else ()
    return given or engine_spec(deployment.engine).program


def no_shards(deployment: Deployment) -> str:
    """Why no batch can be sent to another engine than TGI."""
    title = engine_spec(deployment.engine).title
    return f"{title} has no gRPC shards: prefill and decode batches cannot be sent to it"


def free_ports(count: int) -> tuple[int, ...]:
    """Different ports of 127.0.0.1 that nobody listens at right now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind((_HOSTNAME, 0))
        return tuple(listener.getsockname()[1] for listener in sockets)
