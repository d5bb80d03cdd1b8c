"""What `doctor --from-container` says where no container can come through; the way itself: tests/e2e."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from fairtrial.middleware.doctor.container import prove
from tests.middleware.relay.test_bridge import BOX, TellingEngine


@pytest.mark.parametrize(
    "info, said, remedy",
    [
        ({"KernelVersion": "5.0-far"}, "the engine runs on another machine (kernel 5.0-far)", "a `fairtrial serve`"),
        (
            {"KernelVersion": os.uname().release, "SecurityOptions": ["name=rootless"]},
            "the engine is rootless",
            "use the rootful engine of this machine",
        ),
    ],
)
def test_an_engine_whose_bridge_is_not_ours_is_said_with_a_remedy(
    tmp_path: Path, info: dict[str, object], said: str, remedy: str
) -> None:
    """The engine only tells: it makes no container, so no call comes."""
    with contextlib.closing(TellingEngine(tmp_path / "e.sock")) as engine:
        engine.table |= {"/info": info, "/version": {"ApiVersion": "1.41"}, f"/containers/{BOX}/logs": {}}
        proof = prove({"DOCKER_HOST": engine.url, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}, "image")
    assert proof.state == "no"
    assert said in proof.text, proof
    assert remedy in (proof.remedy or ""), proof
    assert not list((tmp_path / "fairtrial").iterdir()), "the doors' folder is gone"


def test_without_an_engine_there_is_nothing_to_try(tmp_path: Path) -> None:
    proof = prove({"DOCKER_HOST": "ssh://far", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}, "image")
    assert (proof.state, proof.remedy) == ("no", "start one, or name it by DOCKER_HOST")
    assert "ssh" in proof.text
