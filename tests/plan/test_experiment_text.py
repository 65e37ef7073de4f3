"""Experiment files: what is refused, in which words, at which line or option."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from tests.launch.deployments import embedded
from tgi_bench.errors import ExperimentError
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment import Experiment, json_schema, to_json
from tgi_bench.plan.experiment_text import load, load_plan, parse_overrides
from tgi_bench.plan.matrix import idle_skips
from tgi_bench.plan.plan import Override
from tgi_bench.plan.task_expand import expand_tasks
from tgi_bench.trials.direct_keys import DirectExperiment

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

SMALL = """\
experiment: small
model: org/model
server:
  launcher: docker
  image: tgi:0.9.4
  constant:
    max_input_length: 1000
  variable:
    num_shard: [1, 2]
    quantize: [null, bitsandbytes]
batches:
  sequence_length: 100
  decode_length: 8
  batch_size: [4, 1]
  runs: 2
"""


def said(text: str, sets: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> str:
    with pytest.raises(ExperimentError) as caught:
        load_plan(text, "e.yaml", parse_overrides(sets), only)
    assert caught.value.problems
    return str(caught.value)


def replaced(old: str, new: str) -> str:
    assert SMALL.count(old) == 1
    return SMALL.replace(old, new)


@pytest.mark.parametrize("file", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_experiments_of_this_repository_load(file: Path) -> None:
    experiment, plan = load_plan(file.read_text(), file.name)
    expanded = expand(experiment) if isinstance(experiment, Experiment) else None
    assert plan == (expanded or expand_tasks(cast(DirectExperiment, experiment)))
    assert not any(deployment.version_assumed for deployment in plan.deployments)
    head = file.read_text().splitlines()[0]
    assert head == "# yaml-language-server: $schema=schema.json"


def test_the_schema_is_current() -> None:
    current = (EXPERIMENTS / "schema.json").read_text()
    message = "update it: tgi-bench schema > experiments/schema.json"
    assert current == json_schema(), message


def test_a_scalar_stands_for_a_list_of_one_and_defaults_are_filled() -> None:
    experiment = load(SMALL, "e.yaml")
    assert experiment.batches is not None
    assert experiment.batches.sequence_length == [100]
    assert experiment.batches.warmups == 1
    assert experiment.batches.step_timeout_s == 600
    assert experiment.server.timeouts.load_s == 1200
    assert experiment.batches.prompt_seed is None
    assert experiment.server.embedded.engine == "simulated"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "batch_size: [4, 1]",
            "batch_sise: [4, 1]",
            "e.yaml:11: batches.batch_size: is missing: requests in a batch; run in ascending "
            "order\n"
            "e.yaml:14: batches.batch_sise: is no key here; allowed: sequence_length, "
            "decode_length, batch_size, runs, warmups, sampling, step_timeout_s, prompt_seed; "
            "did you mean `batch_size`?",
        ),
        ("[4, 1]", "[4, 0]", "e.yaml:14: batches.batch_size.1: must be at least 1, not 0"),
        ("[4, 1]", "[4, -1]", "e.yaml:14: batches.batch_size.1: must be at least 1, not -1"),
        (
            "[4, 1]",
            "[4, '1']",
            "e.yaml:14: batches.batch_size.1: must be an integer, not the string `1`",
        ),
        (
            "[4, 1]",
            "[4, true]",
            "e.yaml:14: batches.batch_size.1: must be an integer, not `true`",
        ),
        ("[4, 1]", "[4, 4]", "e.yaml:14: batches.batch_size: holds `4` twice"),
        ("[4, 1]", "[]", "e.yaml:14: batches.batch_size: must hold at least one value"),
        (
            "[4, 1]",
            "[4, 2147483648]",
            "e.yaml:14: batches.batch_size.1: must be at most 2147483647, not 2147483648",
        ),
        (
            "runs: 2",
            "runs: 1.5",
            "e.yaml:15: batches.runs: must be an integer, not `1.5`",
        ),
        ("runs: 2", "runs:", "e.yaml:15: batches.runs: must be an integer, not `null`"),
        (
            "runs: 2",
            "runs: 2\n  warmups: -1",
            "e.yaml:16: batches.warmups: must be at least 0, not -1",
        ),
        (
            "runs: 2",
            "runs: 2\n  sampling: {top_p: 1.5, temperature: 0}",
            "e.yaml:16: batches.sampling.temperature: must be more than 0, not 0\n"
            "e.yaml:16: batches.sampling.top_p: must be at most 1, not 1.5",
        ),
        (
            "runs: 2",
            "runs: 2\n  step_timeout_s: .nan",
            "e.yaml:16: batches.step_timeout_s: must be a finite number, not nan",
        ),
        (
            "launcher: docker",
            "launcher: dokcer",
            "e.yaml:4: server.launcher: must be one of docker, process, embedded, attach, "
            "not the string `dokcer`; did you mean `docker`?",
        ),
        (
            "experiment: small",
            "experiment: ../small",
            "e.yaml:1: experiment: must be a name of at most 100 letters, digits, `.`, `_` and `-` "
            "that begins with a letter, a digit or `_`, not `../small`",
        ),
        (
            "experiment: small",
            'experiment: "a\\nb"',
            "e.yaml:1: experiment: must be a name of at most 100 letters, digits, `.`, `_` and `-` "
            "that begins with a letter, a digit or `_`, not `a\\nb`",
        ),
        (
            "model: org/model",
            '"x\\ny": 1\nmodel: org/model',
            "e.yaml:2: x\\ny: is no key here; allowed: experiment, model, server, batches, load",
        ),
        (
            "runs: 2",
            f"runs: {'9' * 5000}",
            "e.yaml:15: holds an integer of 5000 digits; at most 40 are read",
        ),
        (
            "image: tgi:0.9.4",
            "image: tgi\n  version: 0.9",
            'e.yaml:6: server.version: must be three numbers in quotes, as in "3.3.7", not `0.9`',
        ),
        (
            "max_input_length: 1000",
            f"max_input_length: {10**20}",
            "e.yaml:7: server.constant.max_input_length: must be an integer that fits 64 bits, "
            f"not {10**20}",
        ),
        (
            "  image: tgi:0.9.4\n",
            "",
            "e.yaml:3: server.image: is missing: the launcher `docker` needs the container "
            "image to run",
        ),
        (
            "image: tgi:0.9.4",
            "image: tgi:0.7.0",
            "e.yaml:5: server.image: TGI 0.7.0 is older than 0.8.0, the oldest that tgi-bench "
            "can drive: before it the shards return whole batches",
        ),
        (
            "image: tgi:0.9.4",
            "image: tgi:0.9.4\n  version: 1.0.3",
            "e.yaml:6: server.version: `1.0.3` is not what the image's tag says: 0.9.4",
        ),
        (
            "image: tgi:0.9.4",
            "image: tgi\n  version: new",
            "e.yaml:6: server.version: `new` is no version of TGI; write it as three numbers: "
            "3.3.7",
        ),
        (
            "max_input_length",
            "max_input_lenght",
            "e.yaml:7: server.constant.max_input_lenght: is no argument of "
            "text-generation-launcher 0.9.4; did you mean `max_input_length`?",
        ),
        (
            "max_input_length: 1000",
            "num_shard: 4",
            "e.yaml:9: server.variable.num_shard: is constant as well: give it in one of the two",
        ),
        (
            "max_input_length: 1000",
            "model_id: m",
            "e.yaml:7: server.constant.model_id: comes from the key `model`: leave it out here",
        ),
        (
            "max_input_length: 1000",
            "revision: [[a]]",
            "e.yaml:7: server.constant.revision: a list as one argument's value must hold "
            "strings or numbers, not `[[a]]`",
        ),
        (
            "max_input_length: 1000",
            "revision: {a: b}",
            "e.yaml:7: server.constant.revision: must be a string, a number, true, false or "
            "null, not `a mapping`",
        ),
        (
            "[1, 2]",
            "[1, 0]",
            "e.yaml:9: server.variable.num_shard.1: must be at least 1, not 0",
        ),
        ("[1, 2]", "2", "e.yaml:9: server.variable.num_shard: must be a list, not `2`"),
        ("[1, 2]", "[]", "e.yaml:9: server.variable.num_shard: must hold at least one value"),
        ("[1, 2]", "[1, 1]", "e.yaml:9: server.variable.num_shard: holds `1` twice"),
        (
            "bitsandbytes]",
            "bitsandbites]",
            "e.yaml:10: server.variable.quantize.1: the string `bitsandbites` is not allowed in "
            "text-generation-launcher 0.9.4; allowed: null, bitsandbytes, gptq; did you mean "
            "`bitsandbytes`?",
        ),
        (
            "bitsandbytes]",
            "bitsandbytes]\n  skip: [{dtype: float16}]",
            "e.yaml:11: server.skip.0.dtype: does not vary; what varies: num_shard, quantize",
        ),
        (
            "bitsandbytes]",
            "bitsandbytes]\n  skip: [{quantize: gtpq}]",
            "e.yaml:11: server.skip.0.quantize: the string `gtpq` is not allowed in "
            "text-generation-launcher 0.9.4; allowed: null, bitsandbytes, gptq; did you mean "
            "`gptq`?",
        ),
        (
            "bitsandbytes]",
            "bitsandbytes]\n  skip: [{num_shard: [1, 2]}]",
            "e.yaml:11: server.skip: matches every combination: nothing is left",
        ),
        (
            "bitsandbytes]",
            "bitsandbytes]\n  skip: [{}]",
            "e.yaml:11: server.skip.0: must hold at least one value",
        ),
        (
            "launcher: docker",
            "launcher: attach",
            "e.yaml:8: server.variable: gives 4 deployments, but the launcher `attach` drives "
            "one server as it runs: give one value each, or choose with --only",
        ),
    ],
)
def test_what_is_refused(old: str, new: str, message: str) -> None:
    assert said(replaced(old, new)) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "e.yaml:1: is empty"),
        ("- a\n", "e.yaml:1: must be a mapping, not `[a]`"),
        ("just words\n", "e.yaml:1: must be a mapping, not the string `just words`"),
        ("a: 1\na: 2\n", "e.yaml:2: the key `a` stands twice, first on line 1"),
        ("server: 3\nbatches: {}\n", "e.yaml:1: server: must be a mapping, not `3`"),
    ],
)
def test_what_is_no_experiment(text: str, message: str) -> None:
    assert message in said(text).splitlines()


@pytest.mark.parametrize("name", ["..", ".hidden", "a/b", "a b", "", "a" * 101, "-x", "a\\nb", "é"])
def test_names_that_are_no_folder(name: str) -> None:
    text = said(replaced("experiment: small", f'experiment: "{name}"'))
    assert text.startswith("e.yaml:1: experiment: ")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "server.imagee=x",
            "is no key here; allowed: launcher, engine, image, command, url, sockets, verify_tls, "
            "headers, version, constant, variable, skip, env, docker, timeouts, embedded; did you "
            "mean `image`?",
        ),
        (
            "serverr.image=x",
            "is no key here; allowed: experiment, model, server, batches, load; did you mean "
            "`server`?",
        ),
        ("batches.runs=0", "must be at least 1, not 0"),
        ("batches.runs='2'", "must be an integer, not the string `2`"),
        ("batches.batch_size=[1, 0]", "1: must be at least 1, not 0"),
        ("batches.batch_size.7=1", "`7` is no position in a list of 2"),
        ("batches.batch_size.x=1", "`x` is no position in a list of 2"),
        ("experiment.name=x", "there is no key `name` in a value that is no mapping"),
        ("batches.runs=[1", "its value is no valid YAML"),
        ("batches.runs", "write it as key.path=value"),
        ("batches..runs=1", "write it as key.path=value"),
        ("=1", "write it as key.path=value"),
        (
            "server.constant.dtype=float23",
            "the string `float23` is not allowed in text-generation-launcher 0.9.4; allowed: "
            "null, float16, bfloat16; did you mean `float16`?",
        ),
    ],
)
def test_what_an_override_gets_wrong_is_said_of_the_command_line(option: str, message: str) -> None:
    assert said(SMALL, (option,)).startswith(f"--set {option}: {message}")


def test_problems_of_the_file_and_of_the_command_line_stand_together() -> None:
    text = said(replaced("runs: 2", "runs: 0"), ("batches.warmups=x",))
    assert text.splitlines() == [
        "e.yaml:15: batches.runs: must be at least 1, not 0",
        "--set batches.warmups=x: must be an integer, not the string `x`",
    ]


def test_an_override_mends_the_file() -> None:
    broken = replaced("runs: 2", "runs: 0")
    overrides = parse_overrides(["batches.runs=3", "batches.sampling.top_k=5"], "embedded")
    experiment, plan = load_plan(broken, "e.yaml", overrides)
    assert isinstance(experiment, Experiment)
    assert experiment.batches is not None
    assert experiment.batches.runs == 3
    assert experiment.batches.sampling.top_k == 5
    assert {d.launcher for d in plan.deployments} == {embedded()}
    assert {d.tgi_version for d in plan.deployments} == {"0.9.4"}
    assert plan.overrides == (
        Override("batches.runs", "3"),
        Override("batches.sampling.top_k", "5"),
        Override("server.launcher", "embedded"),
    )


def test_the_later_of_two_overrides_holds() -> None:
    overrides = parse_overrides(["batches.runs=3", "batches.runs=4"])
    batches = load(SMALL, "e.yaml", overrides).batches
    assert batches is not None
    assert batches.runs == 4


def test_an_override_does_not_reach_through_an_alias() -> None:
    text = replaced("sequence_length: 100", "sequence_length: &s [7, 8]")
    text = text.replace("batch_size: [4, 1]", "batch_size: *s")
    experiment = load(text, "e.yaml", parse_overrides(["batches.batch_size.0=9"]))
    assert experiment.batches is not None
    assert experiment.batches.sequence_length == [7, 8]
    assert experiment.batches.batch_size == [9, 8]


def test_an_unknown_launcher_is_said_of_its_option() -> None:
    with pytest.raises(ExperimentError) as caught:
        load(SMALL, "e.yaml", parse_overrides([], "embeded"))
    assert str(caught.value).startswith("--launcher embeded: must be one of docker, process")


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("num_shard=4", "`4` is no value of `num_shard`; allowed: 1, 2"),
        ("numshard=1", "does not vary; what varies: num_shard, quantize; did you mean"),
        ("num_shard", "write it as name=value"),
        ("num_shard=", "write it as name=value"),
        ("quantize=gptq", "`gptq` is no value of `quantize`; allowed: null, bitsandbytes"),
    ],
)
def test_only_is_said_of_the_command_line(only: str, message: str) -> None:
    assert said(SMALL, (), (only,)).startswith(f"--only {only}: {message}")


def test_a_run_file_holds_the_experiment_under_the_keys_of_the_yaml() -> None:
    overrides = parse_overrides(
        [
            "server.constant.waiting_served_ratio=2",
            "load={ramp: [{rate: 1, for: 2s}], workload: {prompt_tokens: 16}}",
        ]
    )
    text = to_json(load(SMALL, "e.yaml", overrides))
    assert '"waiting_served_ratio":2' in text
    assert '"for":"2000000000ns"' in text
    assert '"prompt_tokens":{"kind":"fixed","tokens":16}' in text


def test_which_option_named_the_launcher() -> None:
    assert said(SMALL, ("server.launcher=dockr",)).startswith("--set server.launcher=dockr: must")
    both = parse_overrides(("server.launcher=process",), "dockr")
    with pytest.raises(ExperimentError, match=r"^--launcher dockr: must be one of"):
        load_plan(SMALL, "e.yaml", both)
    assert both[1] == Override("server.launcher", "dockr")


def test_an_override_is_shown_on_one_short_line() -> None:
    assert "\n" not in said(SMALL, ("experiment=a\nb",))
    long = said(SMALL, (f"batches.runs={'9' * 5000}",))
    assert long.endswith("its value holds an integer of 5000 digits; at most 40 are read")
    assert len(long) < 200


@pytest.mark.parametrize(
    ("head", "key"),
    [
        ("image: tgi:9.9.9", "e.yaml:5: server.image"),
        ("version: 9.9.9", "e.yaml:5: server.version"),
    ],
)
def test_a_version_that_the_embedded_server_does_not_show(head: str, key: str) -> None:
    text = replaced("  image: tgi:0.9.4", f"  {head}")
    assert said(text.replace("launcher: docker", "launcher: embedded")) == (
        f"{key}: the embedded server shows the behaviours of 0.8.0 to 3.3.7, not of 9.9.9"
    )
    _, plan = load_plan(text.replace("launcher: docker", "launcher: process"), "e.yaml")
    assert {deployment.tgi_version for deployment in plan.deployments} == {"9.9.9"}


@pytest.mark.parametrize(
    ("skip", "idle"),
    [
        ("[]", ()),
        ("[{num_shard: 1}]", ()),
        ("[{num_shard: 4}]", (1,)),
        ("[{num_shard: [4, 2]}, {num_shard: 1, quantize: gptq}]", (2,)),
    ],
)
def test_skip_entries_that_match_nothing(skip: str, idle: tuple[int, ...]) -> None:
    experiment, _ = load_plan(SMALL, "e.yaml", parse_overrides((f"server.skip={skip}",)))
    assert isinstance(experiment, Experiment)
    assert idle_skips(experiment.server) == idle


def test_a_long_string_in_a_list_is_kept_whole() -> None:
    long = "x" * 200
    setting = f"server.constant.cors_allow_origin=[{long}, y]"
    _, plan = load_plan(SMALL, "e.yaml", parse_overrides((setting,)))
    assert plan.deployments[0].argument("cors_allow_origin") == f"{long},y"
