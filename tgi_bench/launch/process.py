"""The launcher `process`: text-generation-launcher, or another command, on this machine."""

from __future__ import annotations

import shlex
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import BeforeValidator, Field

from tgi_bench.engines.engine import Engine, engine_spec, secret_in
from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch.launcher import Launcher, LaunchOptions, RunningServer
from tgi_bench.sections.section import Section, refused, texts

if TYPE_CHECKING:
    from tgi_bench.launch.deployment import Deployment

LOCALHOST = "127.0.0.1"


def command_words(value: object) -> list[str]:
    """A command as a shell would split it, or as a list of its words; [] is the engine's own."""
    if value == []:
        return []
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise refused(f"is no command: {error}") from None
    else:
        words = texts(value, "a command, as a string or as a list of its words")
    if not words or not words[0] or any("\0" in word for word in words):
        raise refused("must hold at least the program's name")
    if (secret := secret_in(words)) is not None:
        raise refused(
            f"holds what looks like a secret ({secret}), and the command is recorded: leave it out "
            "and hand it on by the name of its environment variable, as in server.env: [HF_TOKEN]"
        )
    return words


class ProcessKeys(Section):
    """How a process is started."""

    command: Annotated[
        list[str], BeforeValidator(command_words, json_schema_input_type=str | list[str])
    ] = Field(default_factory=list)
    """Read by the launcher `process`: the program, and words before the arguments."""


@dataclass(frozen=True)
class ProcessLauncher(Launcher):
    """A command of this machine, by default the engine's program."""

    name = "process"
    Keys: ClassVar[type[Section]] = ProcessKeys
    on_this_machine = True

    keys: ProcessKeys

    def words(self, deployment: Deployment) -> str:
        """The command without the arguments."""
        return shlex.join(self._command(deployment))

    def require_startable(self, deployment: Deployment) -> None:
        """The program must be there, too."""
        program = self._command(deployment)[0]
        if shutil.which(program) is None:
            raise InputError(
                f"`{program}` is not on the PATH: install it, or say in server.command how "
                f"{engine_spec(deployment.engine).title} is started"
            )
        super().require_startable(deployment)

    @contextmanager
    def launch(self, deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
        """Starts the command, waits until it is ready, and ends it when the context is left.

        Its port is chosen here, since the engines cannot say which they were given; it is tried
        once more where another program took that port in between. Raises LaunchError.
        """
        from tgi_bench.launch.cause import port_taken

        with ExitStack() as stack:
            try:
                server = stack.enter_context(self._started(deployment, options))
            except LaunchError as error:
                if not port_taken(error.log_tail):
                    raise
                options.progress("its port was taken meanwhile, starting again")
                server = stack.enter_context(self._started(deployment, options))
            yield server

    @contextmanager
    def _started(self, deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
        from tgi_bench.launch.child import Program, running
        from tgi_bench.launch.deployment import Reach, server_arguments
        from tgi_bench.launch.left_behind import socket_folder

        spec = engine_spec(deployment.engine)
        with socket_folder() as stem:
            port, master_port = free_ports(2)
            reach = Reach(LOCALHOST, port)
            if deployment.engine is Engine.TGI:
                reach = Reach(LOCALHOST, port, str(stem), master_port)
            url = f"http://{LOCALHOST}:{port}"
            program = Program(
                argv=(
                    *self._command(deployment),
                    *server_arguments(deployment, reach, in_image=False),
                ),
                find_url=lambda _lines: url,
                master_socket=stem.with_name(f"{stem.name}-0") if spec.has_shards else None,
                no_socket_reason="" if spec.has_shards else no_shards(deployment),
            )
            with running(deployment, options, program) as server:
                yield server

    def _command(self, deployment: Deployment) -> tuple[str, ...]:
        """The words before the arguments: the experiment's, else the engine's program."""
        return tuple(self.keys.command) or engine_spec(deployment.engine).program


def no_shards(deployment: Deployment) -> str:
    """Why no batch can be sent to another engine than TGI."""
    title = engine_spec(deployment.engine).title
    return f"{title} has no gRPC shards: prefill and decode batches cannot be sent to it"


def free_ports(count: int) -> tuple[int, ...]:
    """Different ports of 127.0.0.1 that nobody listens at right now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind((LOCALHOST, 0))
        return tuple(listener.getsockname()[1] for listener in sockets)
