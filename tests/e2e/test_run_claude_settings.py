"""Claude Code's settings files in the order that both npm lines take them, and what `fairtrial run` says of each.

/etc of these runs is a copy of its own (a mount namespace), so root is needed and nothing of the machine is touched.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.corporate import running_proxy
from tests.e2e.test_run_connect import VIA, Company, company, through
from tests.e2e.test_standin_clients import FINAL, SCRIPT, claude_result
from tests.e2e.under import NO_DOCKER, missed, passed, run_under

pytestmark = pytest.mark.usefixtures("claude_line")
__all__ = ("company",)

MANAGED = "claude-code/managed-settings.json"
EARLY, LATE = "claude-code/managed-settings.d/10-a.json", "claude-code/managed-settings.d/90-b.json"


def put(path: Path, **env: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"env": env}))


@pytest.fixture
def etc(tmp_path: Path) -> tuple[Path, Sequence[str]]:
    """A copy of /etc, and the command prefix that shows it in the place of /etc."""
    copy = tmp_path / "etc"
    shutil.copytree("/etc", copy, symlinks=True, ignore=shutil.ignore_patterns("*shadow*", "ssl", "claude-code"))
    line = f'mount --bind {shlex.quote(str(copy))} /etc && exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", line, "sh")
    if os.geteuid() != 0 or subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("a mount namespace of its own cannot be made here")
    return copy, prefix


@pytest.mark.parametrize(
    "there, strongest",
    [
        (("home", "project", "local"), "local"),
        (("local", "flag"), "flag"),
        (("flag", MANAGED), MANAGED),
        ((MANAGED, EARLY), EARLY),
        ((EARLY, LATE, "flag"), LATE),
    ],
)
def test_the_file_that_claude_code_goes_by_is_the_one_that_is_named(
    home: Path,
    project: Path,
    tmp_path: Path,
    loopback_only: Sequence[str],
    etc: tuple[Path, Sequence[str]],
    there: Sequence[str],
    strongest: str,
) -> None:
    folder, prefix = etc
    places = {
        "home": home / ".claude" / "settings.json",
        "project": project / ".claude" / "settings.json",
        "local": project / ".claude" / "settings.local.json",
    }
    command = clients.claude_command("say hello using bash")
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:

        def address(name: str) -> str:
            return f"{server.url}/run/{name.replace('/', '-')}"

        for name in there:
            if name == "flag":
                command += ["--settings", json.dumps({"env": {"ANTHROPIC_BASE_URL": address(name)}})]
            else:
                put(places.get(name, folder / name), ANTHROPIC_BASE_URL=address(name))
        environment = clients.claude_environment(home, address("environment"), **NO_DOCKER)
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=[*loopback_only, *prefix])
        went = {call.prefix for call in server.model_calls}
    assert went == {f"/run/{strongest.replace('/', '-')}"}, under.told()
    shown = {"flag": "--settings of the command"}.get(strongest, str(places.get(strongest, f"/etc/{strongest}")))
    assert f"{shown} sets env.ANTHROPIC_BASE_URL to {address(strongest)}" in under.outcome.stderr, under.told()
    assert (under.verdict.blame, under.trial.steps) == (Blame.INDETERMINATE, [])


@pytest.mark.parametrize("key", ["HTTPS_PROXY", "HTTP_PROXY"])
def test_a_companys_proxy_and_ca_in_the_users_settings_are_what_the_door_goes_by(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company, key: str
) -> None:
    """Nothing of it is in the environment: without them the provider's name would not even resolve."""
    with (
        running_standin(SCRIPT, tls=company.tls, command_prefix=loopback_only) as server,
        running_proxy(server.port, tmp_path, command_prefix=loopback_only) as proxy,
    ):
        put(home / ".claude" / "settings.json", NODE_EXTRA_CA_CERTS=str(company.ca), **{key: proxy.url})
        environment = clients.claude_environment(home, None, **NO_DOCKER)
        command = clients.claude_command("say hello using bash")
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    assert claude_result(under.outcome)["result"] == FINAL, under.told()
    assert not (told := missed(under, passed())), told
    gone_by = {attempt.via_proxy for step in under.trial.steps for call in step.calls for attempt in call.attempts}
    assert gone_by - {None} == {proxy.url.removeprefix("http://")}  # None: on a connection that stood already


@pytest.mark.parametrize("key", ["HTTPS_PROXY", "https_proxy"])
def test_a_proxy_in_a_settings_file_leads_past_the_connect_door_only_in_small_letters_and_that_is_said(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str], company: Company, key: str
) -> None:
    """In capitals it is where the door goes on; the environment holds the CA alone."""
    with (
        running_standin(SCRIPT, tls=company.tls, command_prefix=loopback_only) as server,
        running_proxy(server.port, tmp_path, command_prefix=loopback_only) as proxy,
    ):
        put(home / ".claude" / "settings.json", **{key: proxy.url})
        environment = clients.claude_environment(home, None, **NO_DOCKER, **through(company, proxy.url))
        del environment["HTTPS_PROXY"]
        command = clients.claude_command("say hello using bash")
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only, options=VIA)
    assert claude_result(under.outcome)["result"] == FINAL, under.told()
    found = [one for one in under.trial.connections if one.provider == "anthropic"]
    said = "~/.claude/settings.json sets env.https_proxy, which beats the environment" in under.outcome.stderr
    if key == "https_proxy":
        assert (found, said) == ([], True), under.told()
    else:
        assert found, under.told()
        assert ({(one.ok, one.via_proxy is not None) for one in found}, said) == ({(True, True)}, False), under.told()
