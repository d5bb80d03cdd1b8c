"""`make jaeger` starts what is there with the storage that was asked for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

START = "deploy/jaeger/start.sh"


def start(root: Path, program: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "JAEGER_BIN": str(program), **more}
    return subprocess.run(
        ["bash", START], cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=30
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Stands for Jaeger: prints the configuration that it was given."""
    made = tmp_path / "jaeger"
    made.write_text('#!/bin/sh\n[ "$1" = --config ] && cat "$2"\n')
    made.chmod(0o755)
    return made


@pytest.mark.parametrize("storage, kept", [("memory", "max_traces: 100000"), ("badger", "/.cache/jaeger/badger/keys")])
def test_the_storage_that_was_asked_for_on_loopback_only(
    repo_root: Path, program: Path, storage: str, kept: str
) -> None:
    done = start(repo_root, program, STORAGE=storage)
    assert done.returncode == 0, done.stderr
    assert kept in done.stdout
    assert done.stdout.count("127.0.0.1:") == 4
    assert "0.0.0.0" not in done.stdout
    assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318" in done.stderr


def test_a_storage_that_is_not_known_is_said(repo_root: Path, program: Path) -> None:
    done = start(repo_root, program, STORAGE="cassandra")
    assert done.returncode == 2
    assert "say memory or badger" in done.stderr
