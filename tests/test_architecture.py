"""The plan of the house: who may import whom, what no file is called, who may print and exit."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tgi_bench"

# Everything may import `errors` and the observations, and each room its own files.
ARROWS: dict[str, frozenset[str]] = {
    "__init__": frozenset(),
    "errors": frozenset(),
    "inert": frozenset(),
    "observation": frozenset(),
    "load_observation": frozenset(),
    "process_tree": frozenset(),
    "kernel_stamps": frozenset(),
    "codec": frozenset(),
    "words": frozenset(),
    "sections": frozenset(),
    "engines": frozenset(),
    "http_rules": frozenset(),
    "ask": frozenset(),
    "memory_evidence": frozenset(),
    "task_observation": frozenset(),
    "wire": frozenset(),
    "estimate": frozenset(),
    "torch_engine": frozenset({"estimate"}),
    "dialects": frozenset({"sections", "ask"}),
    "devices": frozenset(),
    "launch": frozenset({"trials", "ask", "dialects", "devices", "engines", "sections"}),
    "trials": frozenset({"dialects", "sections"}),
    "plan": frozenset({"trials", "dialects", "engines", "launch", "sections"}),
    "drive": frozenset(
        {
            "trials",
            "dialects",
            "ask",
            "engines",
            "sections",
            "plan",
            "wire",
            "torch_engine",
            "kernel_stamps",
        }
    ),
    "record": frozenset({"trials", "dialects", "engines", "sections", "launch", "plan", "devices"}),
    "analysis": frozenset({"trials", "engines", "sections", "plan", "estimate", "devices"}),
    "report": frozenset(
        {"trials", "analysis", "engines", "sections", "launch", "plan", "estimate"}
    ),
    "kinds": frozenset(
        {
            "trials",
            "dialects",
            "report",
            "analysis",
            "record",
            "devices",
            "estimate",
            "engines",
            "sections",
            "plan",
            "drive",
            "launch",
        }
    ),
    "published": frozenset(
        {
            "trials",
            "sections",
            "dialects",
            "kinds",
            "report",
            "analysis",
            "record",
            "estimate",
            "engines",
            "launch",
            "plan",
        }
    ),
    "server": frozenset({"engines", "wire", "estimate", "torch_engine", "kernel_stamps"}),
    "sweep": frozenset(
        {
            "trials",
            "ask",
            "dialects",
            "launch",
            "drive",
            "devices",
            "record",
            "engines",
            "plan",
            "kinds",
        }
    ),
    "selfcheck": frozenset(
        {
            "trials",
            "analysis",
            "dialects",
            "launch",
            "sections",
            "plan",
            "record",
            "report",
            "server",
        }
    ),
    "cli": frozenset(
        {
            "trials",
            "analysis",
            "devices",
            "dialects",
            "drive",
            "estimate",
            "kinds",
            "launch",
            "engines",
            "sections",
            "plan",
            "published",
            "record",
            "report",
            "selfcheck",
            "server",
            "sweep",
            "torch_engine",
        }
    ),
}
FOR_ALL = frozenset(
    {
        "errors",
        "inert",
        "observation",
        "load_observation",
        "codec",
        "words",
        "http_rules",
        "memory_evidence",
        "task_observation",
        "process_tree",
        "__init__",
    }
)
FORBIDDEN_NAMES = frozenset({"utils", "util", "common", "helpers", "base", "manager", "registry"})
QUICK = ("sections", "engines", "dialects", "plan", "estimate")
HEAVY = frozenset({"numpy", "scipy", "grpc", "aiohttp", "httpx", "docker", "torch", "transformers"})
# The two files of arrays: fits of the estimate's constants, which no quick file imports; and what
# the formulas do differently with arrays, which imports numpy inside its functions.
FITS, ARRAYS = "estimate/fitting.py", "estimate/arithmetic.py"
# Processes of their own: the server's log and its launcher's last word, and the script that
# stands between fork and exec.
MAY_PRINT_OR_EXIT = frozenset({"server/log.py", "server/launcher.py", "launch/follow_parent.py"})


@dataclass(frozen=True, slots=True)
class Import:
    """One import of one file; module is its full dotted name."""

    file: Path
    line: int
    module: str


def sources() -> list[Path]:
    found = sorted(PACKAGE.rglob("*.py"))
    assert len(found) > 50, "the package has moved: this test walks nothing"
    return [path for path in found if "_pb2" not in path.name]


def room_of(path: Path, root: Path = PACKAGE) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def imports(path: Path, root: Path = PACKAGE) -> Iterator[Import]:
    """All imports, those under TYPE_CHECKING and inside functions too."""
    return imports_in(ast.walk(ast.parse(path.read_text(encoding="utf-8"))), path, root)


def imports_at_once(path: Path) -> Iterator[Import]:
    """Those that importing the file makes: none inside a function or under TYPE_CHECKING."""
    return imports_in(ast.parse(path.read_text(encoding="utf-8")).body, path, PACKAGE)


def imports_in(nodes: Iterable[ast.AST], path: Path, root: Path) -> Iterator[Import]:
    package = [root.name, *path.relative_to(root).parent.parts]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(path, node.lineno, f"{module}.{alias.name}")


def imported_room(module: str, root: Path = PACKAGE) -> str | None:
    """The room that a dotted name lies in; None where it is not of this package."""
    parts = module.split(".")
    if parts[0] != root.name:
        return None
    if len(parts) == 1:
        return "__init__"
    room = parts[1]
    is_room = (root / room).is_dir() or (root / f"{room}.py").is_file()
    return room if is_room else "__init__"  # `from tgi_bench import __version__`


def wrong_arrows(files: list[Path], root: Path = PACKAGE) -> list[str]:
    wrong = []
    for path in files:
        room = room_of(path, root)
        for found in imports(path, root):
            target = imported_room(found.module, root)
            if target is None or target == room or target in FOR_ALL:
                continue
            if target not in ARROWS.get(room, frozenset()):
                where = path.relative_to(root)
                wrong.append(f"{where}:{found.line}: {room} may not import {target}")
    return wrong


def test_every_room_of_the_house_is_drawn() -> None:
    assert {room_of(path) for path in sources()} == set(ARROWS)


def test_no_arrow_but_those_drawn() -> None:
    assert wrong_arrows(sources()) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("launch/a.py", "import tgi_bench.plan.plan"),
        ("launch/a.py", "from tgi_bench.drive import shard"),
        ("record/a.py", "from tgi_bench import kinds"),
        ("record/a.py", "from ..drive.ranks import Ranks"),
        ("estimate/a.py", "from tgi_bench.plan.plan import Plan"),
        ("server/a.py", "if TYPE_CHECKING:\n    from tgi_bench.plan.plan import Plan"),
        ("sweep.py", "def f() -> None:\n    from tgi_bench.report import documents"),
        ("errors.py", "from tgi_bench.plan import plan"),
        ("analysis/a.py", "from tgi_bench.record import store"),
        ("report/a.py", "from tgi_bench.kinds import page"),
        ("drive/a.py", "from tgi_bench import sweep"),
    ],
)
def test_the_walk_sees_a_wrong_arrow(tmp_path: Path, file: str, source: str) -> None:
    root = tmp_path / "tgi_bench"
    for room in ARROWS:
        (root / room).mkdir(parents=True, exist_ok=True)
    path = root / file
    if path.parent == root:
        path.with_suffix("").rmdir()
    path.write_text(source, encoding="utf-8")
    (root / "sweep.py").touch()
    assert len(wrong_arrows([path], root)) == 1


def test_true_names() -> None:
    names = [path for path in PACKAGE.rglob("*") if path.stem in FORBIDDEN_NAMES]
    assert names == []


def test_plan_and_estimate_start_quickly() -> None:
    slow = "tgi_bench." + FITS.removesuffix(".py").replace("/", ".")
    quick = [path for path in sources() if room_of(path) in QUICK]
    quick = [path for path in quick if path not in (PACKAGE / FITS, PACKAGE / ARRAYS)]
    heavy = [
        f"{found.file.relative_to(PACKAGE)}:{found.line}: {found.module}"
        for found in (
            *(found for path in quick for found in imports(path)),
            *imports_at_once(PACKAGE / ARRAYS),
        )
        if found.module.split(".")[0] in HEAVY or found.module.startswith(f"{slow}.")
    ]
    assert heavy == []
    assert len(quick) > 20
    for name in (FITS, ARRAYS):
        assert any(found.module.startswith("numpy") for found in imports(PACKAGE / name))


def test_numbers_alone_need_no_numpy() -> None:
    """Where `plan` and `estimate` of a few configurations are done, numpy was not imported."""
    code = """
import sys
from click.testing import CliRunner
from tgi_bench.cli.main import cli
for words in ("plan experiments/quickstart.yaml", "estimate --model facebook/opt-1.3b"):
    made = CliRunner().invoke(cli, words.split())
    assert made.exit_code == 0, made.output
print(sorted({"numpy", "scipy", "grpc", "docker", "rich.live"} & set(sys.modules)))
"""
    made = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True)
    assert (made.stdout, made.stderr) == (b"[]\n", b"")


def prints_or_exits(source: str) -> list[int]:
    """Lines that print, exit, or import what draws or reads a command line."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print" | "exit" | "quit" | "input")):
                lines.append(node.lineno)
            case ast.Attribute(
                value=ast.Name(id="sys"), attr="exit" | "stdout" | "stderr" | "stdin"
            ):
                lines.append(node.lineno)
            case ast.Import(names=names) if any(_draws(alias.name) for alias in names):
                lines.append(node.lineno)
            case ast.ImportFrom(module=str(module)) if _draws(module):
                lines.append(node.lineno)
            case ast.Name(id="SystemExit"):
                lines.append(node.lineno)
    return lines


def _draws(module: str) -> bool:
    return module.split(".")[0] in ("rich", "click")


def test_only_cli_prints_draws_or_exits() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sources()
        if room_of(path) != "cli" and path.relative_to(PACKAGE).as_posix() not in MAY_PRINT_OR_EXIT
        for line in prints_or_exits(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "print(1)",
        "import sys\nsys.exit(1)",
        "import sys\nsys.stdout.write('')",
        "from rich.table import Table",
        "import click",
        "raise SystemExit(1)",
        "exit(2)",
    ],
)
def test_the_walk_sees_a_print_or_an_exit(source: str) -> None:
    assert len(prints_or_exits(source)) == 1


def test_exceptions_to_the_rule_are_there_and_needed() -> None:
    for name in MAY_PRINT_OR_EXIT - {"server/log.py"}:
        assert prints_or_exits((PACKAGE / name).read_text(encoding="utf-8")), name


def test_a_class_name_stands_for_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in sources():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_files_stay_small() -> None:
    long = {
        path.relative_to(PACKAGE).as_posix(): length
        for path in sources()
        if (length := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}
