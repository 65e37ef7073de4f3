"""Fixtures of the command line's tests."""

from __future__ import annotations

from tests.cli.command_line import tgi_bench

__all__ = ["tgi_bench"]
