"""The command line of `run`: what is ours and what is the command's."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.errors import UsageError
from fairtrial.middleware.relay import runopts


def test_all_that_follows_the_first_dashes_is_the_command() -> None:
    options = runopts.parse(["--run", "tb", "--task=t1", "--try", "2", "--", "claude", "-p", "--", "--run", "x"])
    assert options.command == ("claude", "-p", "--", "--run", "x")
    assert (options.run, options.task, options.try_) == ("tb", "t1", 2)


def test_the_dashes_may_be_left_out() -> None:
    options = runopts.parse(["--gate", "sh", "-c", "exit 3", "--quiet"])
    assert options.command == ("sh", "-c", "exit 3", "--quiet")
    assert options.gate
    assert not options.quiet


def test_dashes_after_the_command_began_are_the_commands_own() -> None:
    assert runopts.parse(["--name", "n", "git", "log", "--", "file"]).command == ("git", "log", "--", "file")


def test_a_value_that_looks_like_a_command_is_still_a_value() -> None:
    options = runopts.parse(["--name", "true", "--", "false"])
    assert (options.name, options.command) == ("true", ("false",))


def test_upstreams_and_routes_repeat_and_keep_their_order() -> None:
    options = runopts.parse(
        [
            "--upstream",
            "openai=http://h:1/v1",
            "--upstream",
            "anthropic=https://a/x=y",
            "--route",
            "MY_URL=http://m",
            "--",
            "true",
        ]
    )
    assert options.upstreams == (("openai", "http://h:1/v1"), ("anthropic", "https://a/x=y"))
    assert options.routes == (("MY_URL", "http://m"),)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "no command"),
        (["--gate", "--"], "no command"),
        (["--via", "connect", "--upstream", "openai=http://h", "--", "true"], "no meaning with --via connect"),
        (["--via", "connect", "--adapt", "--", "true"], "Leave --adapt out"),
        (["--upstream", "antropic=http://h", "--", "true"], "Did you mean anthropic"),
        (["--upstream", "mistral=http://h", "--", "true"], "--route VARIABLE=http://h"),
        (["--upstream", "openai", "--", "true"], "NAME=URL"),
        (["--upstream", "openai=host:80", "--", "true"], "in full"),
        (["--upstream", "openai=http://[::1", "--", "true"], "in full"),
        (["--upstream", "openai=http://h:99999999", "--", "true"], "in full"),
        (["--route", "A-B=http://h", "--", "true"], "no name of a variable"),
        (["--route", "A=ftp://h", "--", "true"], "in full"),
        (["--headroom", "-1", "--", "true"], "no factor"),
        (["--try", "0", "--", "true"], "Count from 1"),
        (["--store", "s.db", "--json", "./s.db", "--", "true"], "is the store"),
    ],
)
def test_a_line_that_cannot_be_followed_says_why_and_what_to_write(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        runopts.parse(arguments)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--nonsense", "--", "true"], "There is no option --nonsense. Options of the command come after `--`."),
        (["--nme", "x", "--", "true"], "There is no option --nme. Did you mean --name?"),
        (["--taks=x", "--", "true"], "Did you mean --task?"),
        (["--quiet", "--verbose", "--", "true"], "not allowed with"),
        (["--try", "x", "--", "true"], "'x' is no whole number, such as 2"),
        (["--headroom", "x", "--", "true"], "'x' is no number, such as 3"),
    ],
)
def test_a_malformed_line_ends_with_status_2_and_a_remedy(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        runopts.parse(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "`fairtrial run --help`" in error


def test_help_names_every_option_and_every_exit_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        runopts.parse(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for word in (
        "--run",
        "--name",
        "--task",
        "--try",
        "--upstream",
        "--route",
        "--adapt",
        "--via",
        "--store",
    ):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "--headroom" not in text  # recorded, not applied yet
    for status in ("69", "70", "75", "78", "126", "127"):
        assert f"\n  {status}" in text
