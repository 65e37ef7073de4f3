from __future__ import annotations

import io
import json
import re

from tgi_bench.server.log import LAUNCHER, Log, arguments_line


def test_compact_line() -> None:
    stream = io.StringIO()
    Log(False, stream).info(LAUNCHER, "Starting shard", rank=0)
    Log(False, stream).error(LAUNCHER, "Shard 0 crashed")
    info, error = stream.getvalue().splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    text = r"  INFO shard-manager: text_generation_launcher: Starting shard rank=0"
    assert re.fullmatch(stamp + text, info)
    assert re.fullmatch(stamp + r" ERROR text_generation_launcher: Shard 0 crashed", error)


def test_json_line_holds_many_lines_of_text() -> None:
    stream = io.StringIO()
    Log(True, stream).warn(LAUNCHER, "a\nb", rank=3)
    assert stream.getvalue().count("\n") == 1
    line = json.loads(stream.getvalue())
    assert line["level"] == "WARN"
    assert line["target"] == LAUNCHER
    assert line["fields"] == {"message": "a\nb"}
    assert line["span"] == {"rank": 3, "name": "shard-manager"}


ARGUMENTS = (("model_id", '"m"'), ("num_shard", "Some(2)"), ("quantize", "None"))


def test_args_on_one_line() -> None:
    assert (
        arguments_line(ARGUMENTS, pretty=False)
        == 'Args { model_id: "m", num_shard: Some(2), quantize: None }'
    )


def test_args_on_many_lines() -> None:
    assert arguments_line(ARGUMENTS, pretty=True) == (
        'Args {\n    model_id: "m",\n    num_shard: Some(\n        2,\n    ),\n'
        "    quantize: None,\n}"
    )
