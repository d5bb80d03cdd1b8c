"""Commands that run an agent: `run`, `serve`, `demo`.

`fairtrial run` does not come through here on its way to the agent (`fairtrial/__main__.py` takes the short path); its
row stands here so that help shows it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fairtrial.middleware.cli.base import (
    RUN,
    JsonOption,
    app,
)


@app.command(
    rich_help_panel=RUN,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def run(context: typer.Context) -> None:
    """Run a command under observation: fairtrial run -- claude -p "…"  (fairtrial run --help)."""
    from fairtrial.middleware.relay import runopts, supervise

    supervise.run(runopts.parse(context.args))


@app.command(
    rich_help_panel=RUN,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def serve(context: typer.Context) -> int:
    """A long-lived door for each model API, for many trials  (fairtrial serve --help)."""
    from fairtrial.middleware.relay import serve as serving

    return serving.main(context.args)


@app.command(rich_help_panel=RUN)
def demo(
    name: Annotated[str | None, typer.Argument(help="One of the six trials, as --only.", show_default=False)] = None,
    only: Annotated[str | None, typer.Option("--only", help="Run one of the six trials by name.")] = None,
    as_json: JsonOption = False,
) -> int:
    """Six scripted trials against a stand-in model server, offline: what was booked, and what was true."""
    from fairtrial.middleware.demo.show import run_demo

    if name is not None and only not in {None, name}:
        raise typer.BadParameter(f"one trial at a time: {name} or --only {only}")
    return run_demo(only=only or name, as_json=as_json)
