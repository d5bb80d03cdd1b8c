"""The table of DESIGN section 5, row by row."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fairtrial.middleware.relay.environment import (
    DoorPlan,
    EnvironmentPlan,
    TraceContext,
    Wishes,
    child_environment,
    plan_doors,
    split_origin,
    split_target,
    trace_context,
)

TOKEN = "0123456789abcdef0123456789abcdef"
TRACE = TraceContext("a" * 32, "b" * 16)


def doors(plan: EnvironmentPlan) -> dict[str, str]:
    return {door.name: door.origin for door in plan.doors}


def child(environ: Mapping[str, str], wishes: Wishes | None = None, *, run: str | None = None) -> dict[str, str]:
    """The child's variables with door number n listening on port 4000 + n."""
    plan = plan_doors(environ, wishes or Wishes())
    urls = {door.name: f"http://127.0.0.1:{4000 + n}/t/{TOKEN}" for n, door in enumerate(plan.doors)}
    return child_environment(environ, plan, urls, trial="T", run=run, trace=TRACE).variables


def test_with_nothing_set_each_provider_has_a_door_to_its_own_address() -> None:
    assert doors(plan_doors({}, Wishes())) == {
        "anthropic": "https://api.anthropic.com",
        "openai": "https://api.openai.com",
        "gemini": "https://generativelanguage.googleapis.com",
    }
    env = child({})
    assert env["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:4000/t/{TOKEN}"
    assert env["OPENAI_BASE_URL"] == env["OPENAI_API_BASE"] == f"http://127.0.0.1:4001/t/{TOKEN}/v1"
    assert env["GOOGLE_GEMINI_BASE_URL"] == f"http://127.0.0.1:4002/t/{TOKEN}"


@pytest.mark.parametrize(
    "held, origin, behind",
    [
        ("https://host/api/anthropic", "https://host", "/api/anthropic"),
        ("https://host:8443/", "https://host:8443", "/"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", ""),
        ("https://HOST/x?api-version=1", "https://host", "/x?api-version=1"),
        ("http://[::1]:9/v1", "http://[::1]:9", "/v1"),
        ("  https://host/v1  ", "https://host", "/v1"),
    ],
)
def test_what_the_variable_held_is_behind_the_door_and_its_path_is_kept(held: str, origin: str, behind: str) -> None:
    environ = {"ANTHROPIC_BASE_URL": held}
    assert doors(plan_doors(environ, Wishes()))["anthropic"] == origin
    assert child(environ)["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:4000/t/{TOKEN}{behind}"


def test_a_password_in_an_address_still_reaches_the_client_and_never_the_record() -> None:
    environ = {"OPENAI_BASE_URL": "https://me:hunter2@host/v1"}
    plan = plan_doors(environ, Wishes())
    made = child_environment(
        environ, plan, {"openai": f"http://127.0.0.1:1/t/{TOKEN}"}, trial="T", run=None, trace=TRACE
    )
    assert made.variables["OPENAI_BASE_URL"] == f"http://me:hunter2@127.0.0.1:1/t/{TOKEN}/v1"
    mutation = next(m for m in made.mutations if m.what == "environment OPENAI_BASE_URL")
    assert mutation.old == "https://***@host/v1"
    assert mutation.new == "http://***@127.0.0.1:1/t/***/v1"


@pytest.mark.parametrize("held", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_of_two_variables_with_one_set_the_other_stays_unset(held: str) -> None:
    """A client that prefers the other one must not turn away from the user's address."""
    env = child({held: "http://vllm:8000/v1"})
    other = {"OPENAI_BASE_URL", "OPENAI_API_BASE"} - {held}
    assert env[held].endswith(f"/t/{TOKEN}/v1")
    assert other.isdisjoint(env)


def test_two_variables_with_two_addresses_have_two_doors() -> None:
    environ = {"OPENAI_BASE_URL": "http://a/v1", "OPENAI_API_BASE": "http://b/v1"}
    found = doors(plan_doors(environ, Wishes()))
    assert (found["openai"], found["OPENAI_API_BASE"]) == ("http://a", "http://b")
    env = child(environ)
    assert env["OPENAI_BASE_URL"] != env["OPENAI_API_BASE"]


def test_an_upstream_by_option_beats_the_variable_and_a_route_beats_both() -> None:
    environ = {"ANTHROPIC_BASE_URL": "https://held/x"}
    assert doors(plan_doors(environ, Wishes(upstreams={"anthropic": "http://up/y"})))["anthropic"] == "http://up"
    both = Wishes(upstreams={"anthropic": "http://up/y"}, routes={"ANTHROPIC_BASE_URL": "http://route/z"})
    assert doors(plan_doors(environ, both))["anthropic"] == "http://route"
    assert child(environ, both)["ANTHROPIC_BASE_URL"].endswith("/z")


def test_a_route_sets_any_variable() -> None:
    env = child({}, Wishes(routes={"MY_MODEL_URL": "http://10.0.0.7:8000/v1"}))
    assert env["MY_MODEL_URL"] == f"http://127.0.0.1:4003/t/{TOKEN}/v1"


@pytest.mark.parametrize("held", ["not a url", "ftp://host/x", "https://", "host:443"])
def test_a_value_that_is_no_address_is_left_alone_and_said(held: str) -> None:
    environ = {"ANTHROPIC_BASE_URL": held}
    plan = plan_doors(environ, Wishes())
    assert "anthropic" not in doors(plan)
    assert child(environ)["ANTHROPIC_BASE_URL"] == held
    assert any(note.say and "ANTHROPIC_BASE_URL" in note.text for note in plan.notes)


def test_an_empty_value_counts_as_unset() -> None:
    assert doors(plan_doors({"ANTHROPIC_BASE_URL": ""}, Wishes()))["anthropic"] == "https://api.anthropic.com"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_door_of_the_outer_run_is_joined_not_relayed_twice(host: str) -> None:
    environ = {"ANTHROPIC_BASE_URL": f"http://{host}:4711/t/{TOKEN}/x"}
    plan = plan_doors(environ, Wishes(outer_doors={4711: "anthropic"}))
    assert "anthropic" not in doors(plan)
    assert [(joined.variable, joined.door) for joined in plan.joined] == [("ANTHROPIC_BASE_URL", "anthropic")]
    env = child(environ, Wishes(outer_doors={4711: "anthropic"}))
    assert env["ANTHROPIC_BASE_URL"] == environ["ANTHROPIC_BASE_URL"]


def test_another_loopback_server_is_no_door_of_ours() -> None:
    environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:4712/t/{TOKEN}"}
    assert doors(plan_doors(environ, Wishes(outer_doors={4711: "anthropic"})))["anthropic"] == "http://127.0.0.1:4712"


@pytest.mark.parametrize(
    "environ, wishes",
    [
        ({"ANTHROPIC_BASE_URL": "https://bedrock-runtime.us-east-1.amazonaws.com"}, Wishes()),
        ({}, Wishes(routes={"ANTHROPIC_BEDROCK_BASE_URL": "https://gateway/bedrock"})),
        ({}, Wishes(routes={"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "https://gateway"})),
    ],
)
def test_signed_bedrock_is_never_rebased_and_said(environ: dict[str, str], wishes: Wishes) -> None:
    plan = plan_doors(environ, wishes)
    assert any(note.event == "environment.signed" and note.say for note in plan.notes)
    env = child(environ, wishes)
    for name in ("ANTHROPIC_BEDROCK_BASE_URL", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"):
        assert name not in env
    assert env.get("ANTHROPIC_BASE_URL", "") == environ.get("ANTHROPIC_BASE_URL", env.get("ANTHROPIC_BASE_URL", ""))


def test_a_bedrock_gateway_that_signs_by_itself_may_be_routed() -> None:
    environ = {"CLAUDE_CODE_SKIP_BEDROCK_AUTH": "1", "CLAUDE_CODE_USE_BEDROCK": "1"}
    env = child(environ, Wishes(routes={"ANTHROPIC_BEDROCK_BASE_URL": "https://gateway/bedrock"}))
    assert env["ANTHROPIC_BEDROCK_BASE_URL"].endswith("/bedrock")


def test_bedrock_by_a_key_of_its_own_is_not_signed_and_may_have_a_door() -> None:
    wishes = Wishes(routes={"ANTHROPIC_BEDROCK_BASE_URL": "https://bedrock-runtime.eu-west-1.amazonaws.com"})
    bearer = {"AWS_BEARER_TOKEN_BEDROCK": "key"}
    origin = "https://bedrock-runtime.eu-west-1.amazonaws.com"
    assert doors(plan_doors(bearer, wishes))["ANTHROPIC_BEDROCK_BASE_URL"] == origin
    assert "ANTHROPIC_BEDROCK_BASE_URL" not in doors(plan_doors({}, wishes))
    botocores = Wishes(routes={"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": origin})
    assert "AWS_ENDPOINT_URL_BEDROCK_RUNTIME" not in doors(plan_doors(bearer, botocores))


@pytest.mark.parametrize("switch", ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"])
def test_a_cloud_that_goes_past_the_door_is_said(switch: str) -> None:
    assert any(note.say and switch in note.text for note in plan_doors({switch: "1"}, Wishes()).notes)
    assert not plan_doors({switch: "0"}, Wishes()).notes


def test_proxy_variables_stay_as_they_are() -> None:
    environ = {"HTTPS_PROXY": "http://corp:3128", "http_proxy": "http://corp:3128", "ALL_PROXY": "socks5://corp:1080"}
    env = child(environ)
    assert {name: env[name] for name in environ} == environ


@pytest.mark.parametrize(
    "before, after",
    [
        ({}, "127.0.0.1,localhost,::1"),
        ({"NO_PROXY": "corp.local"}, "corp.local,127.0.0.1,localhost,::1"),
        ({"no_proxy": "corp.local, localhost"}, "corp.local, localhost,127.0.0.1,::1"),
        ({"NO_PROXY": "*"}, "*"),
    ],
)
def test_loopback_is_added_to_both_spellings_and_no_list_is_lost(before: dict[str, str], after: str) -> None:
    env = child(before)
    assert env["NO_PROXY"] == env["no_proxy"] == after


def test_two_different_lists_are_both_kept() -> None:
    env = child({"NO_PROXY": "a", "no_proxy": "127.0.0.1,localhost,::1"})
    assert env["NO_PROXY"] == "a,127.0.0.1,localhost,::1"
    assert env["no_proxy"] == "127.0.0.1,localhost,::1"


def test_certificates_docker_and_everything_else_stay() -> None:
    environ = {
        "SSL_CERT_FILE": "/ca.pem",
        "NODE_EXTRA_CA_CERTS": "/n.pem",
        "DOCKER_HOST": "unix:///x.sock",
        "DOCKER_TLS_VERIFY": "1",
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "k",
    }
    env = child(environ)
    assert {name: env[name] for name in environ} == environ


def test_the_trial_the_run_and_the_trace_are_named() -> None:
    env = child({}, run="nightly")
    assert env["FAIRTRIAL_TRIAL"] == "T"
    assert env["FAIRTRIAL_RUN"] == "nightly"
    assert env["TRACEPARENT"] == f"00-{'a' * 32}-{'b' * 16}-01"
    assert env["CLAUDE_CODE_PROPAGATE_TRACEPARENT"] == "1"
    assert "FAIRTRIAL_RUN" not in child({})
    assert child({"CLAUDE_CODE_PROPAGATE_TRACEPARENT": "0"})["CLAUDE_CODE_PROPAGATE_TRACEPARENT"] == "0"


@pytest.mark.parametrize("flags", ["00", "01"])
def test_an_incoming_trace_is_continued(flags: str) -> None:
    environ = {"TRACEPARENT": f"00-{'c' * 32}-{'d' * 16}-{flags}"}
    trace = trace_context(environ, new_trace_id="a" * 32, root_span_id="b" * 16)
    assert trace == TraceContext("c" * 32, "b" * 16, "d" * 16, flags)


@pytest.mark.parametrize(
    "text", ["", "junk", f"00-{'0' * 32}-{'d' * 16}-01", f"00-{'c' * 32}-{'0' * 16}-01", f"ff-{'c' * 32}-{'d' * 16}-01"]
)
def test_an_invalid_trace_is_replaced_by_a_new_one(text: str) -> None:
    trace = trace_context({"TRACEPARENT": text}, new_trace_id="a" * 32, root_span_id="b" * 16)
    assert trace == TraceContext("a" * 32, "b" * 16)


def test_every_change_has_a_mutation_and_nothing_else_has() -> None:
    environ = {"PATH": "/bin", "NO_PROXY": "x", "OPENAI_BASE_URL": "http://h/v1"}
    plan = plan_doors(environ, Wishes())
    urls = {door.name: f"http://127.0.0.1:1/t/{TOKEN}" for door in plan.doors}
    made = child_environment(environ, plan, urls, trial="T", run="r", trace=TRACE)
    changed = {name for name in made.variables if made.variables[name] != environ.get(name)}
    assert {mutation.what.removeprefix("environment ") for mutation in made.mutations} == changed
    assert all(mutation.why for mutation in made.mutations)
    assert set(environ) <= set(made.variables)


def test_a_door_that_was_not_opened_leaves_its_variables_alone() -> None:
    plan = plan_doors({}, Wishes())
    made = child_environment({}, plan, {}, trial="T", run=None, trace=TRACE)
    assert "ANTHROPIC_BASE_URL" not in made.variables


def test_a_variable_that_must_not_be_set_is_left_and_its_reason_said() -> None:
    plan = plan_doors({}, Wishes(leave={"OPENAI_BASE_URL": "why not."}))
    pointed = {pointer.variable for door in plan.doors for pointer in door.pointers}
    assert "OPENAI_BASE_URL" not in pointed
    assert any("why not." in note.text for note in plan.notes)


def test_opencode_gets_the_version_in_its_default_address_only() -> None:
    assert child({}, Wishes(v1_clients=True))["ANTHROPIC_BASE_URL"].endswith(f"/t/{TOKEN}/v1")
    held = child({"ANTHROPIC_BASE_URL": "http://h"}, Wishes(v1_clients=True))
    assert held["ANTHROPIC_BASE_URL"].endswith(f"/t/{TOKEN}")


def test_extra_doors_are_opened_and_point_nowhere() -> None:
    plan = plan_doors({}, Wishes(extra=(DoorPlan("codex.x", "http://h:1"),)))
    assert doors(plan)["codex.x"] == "http://h:1"


def test_an_origin_is_split_off_with_path_query_and_login() -> None:
    assert split_origin("https://u:p@h:1/a/b?c=d#e") == ("https://h:1", "/a/b?c=d", "u:p@")
    assert split_origin("https://h:port/") is None


def test_a_socket_that_the_user_names_is_behind_a_door_on_a_port() -> None:
    wishes = Wishes(upstreams={"openai": "http+unix://%2Frun%2Fllm.sock/v1", "anthropic": "unix:///run/other.sock"})
    plan = plan_doors({}, wishes)
    assert (doors(plan)["openai"], doors(plan)["anthropic"]) == ("unix:///run/llm.sock", "unix:///run/other.sock")
    env = child({}, wishes)
    assert env["OPENAI_BASE_URL"] == f"http://127.0.0.1:4001/t/{TOKEN}/v1"
    assert env["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:4000/t/{TOKEN}"


def test_a_socket_that_a_variable_holds_is_its_clients_own_affair() -> None:
    plan = plan_doors({"OPENAI_BASE_URL": "unix:///run/llm.sock"}, Wishes())
    assert "openai" not in doors(plan)
    assert [note.event for note in plan.notes] == ["environment.not_an_address"]


@pytest.mark.parametrize("url", ["unix://run/x.sock", "http+unix://run/x.sock", "unix:", "ftp://h/"])
def test_what_names_no_socket_is_no_target(url: str) -> None:
    assert split_target(url) is None


def test_a_socket_that_a_client_was_told_of_gets_a_door_that_is_a_socket_and_its_base_url_stays() -> None:
    environ = {"ANTHROPIC_UNIX_SOCKET": "/run/api.sock", "ANTHROPIC_BASE_URL": "http://localhost"}
    plan = plan_doors(environ, Wishes())
    (door,) = [door for door in plan.doors if door.name == "anthropic"]
    assert (door.origin, door.socket) == ("unix:///run/api.sock", True)
    urls = {"anthropic": "unix:///run/user/0/fairtrial/x/model.sock"}
    env = child_environment(environ, plan, urls, trial="T", run=None, trace=TRACE).variables
    assert env["ANTHROPIC_UNIX_SOCKET"] == "/run/user/0/fairtrial/x/model.sock"
    assert env["ANTHROPIC_BASE_URL"] == "http://localhost"


def test_the_outer_runs_socket_is_joined() -> None:
    outer = "01a22bad-1333-7284-844b-46e74ec5f297"
    environ = {"FAIRTRIAL_TRIAL": outer, "ANTHROPIC_UNIX_SOCKET": f"/run/user/0/fairtrial/{outer[-12:]}/model.sock"}
    plan = plan_doors(environ, Wishes())
    assert "anthropic" not in doors(plan)
    assert [joined.variable for joined in plan.joined] == ["ANTHROPIC_UNIX_SOCKET"]


def test_via_connect_leaves_every_address_and_sets_the_proxy_alone() -> None:
    proxy = f"http://fairtrial:{TOKEN}@127.0.0.1:4000"
    held = {"HTTPS_PROXY": "http://me:pw@proxy:3128", "ANTHROPIC_BASE_URL": "https://gateway/x", "NO_PROXY": "corp"}
    made = child_environment(held, EnvironmentPlan(), {}, trial="T", run=None, trace=TRACE, proxy=proxy)
    assert made.variables["HTTPS_PROXY"] == made.variables["https_proxy"] == proxy
    assert made.variables["ANTHROPIC_BASE_URL"] == "https://gateway/x"
    assert made.variables["NO_PROXY"] == "corp,127.0.0.1,localhost,::1"
    assert "CLAUDE_CODE_PROPAGATE_TRACEPARENT" not in made.variables
    assert TOKEN not in str(made.mutations)
    assert "pw" not in str(made.mutations)
