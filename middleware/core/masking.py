"""Secrets and content out of what is shown or kept: addresses, environment values, command lines.

In: texts that a person or a program wrote (a URL with a password in it, `--api-key sk-…`, a prompt as an argument).
Out: the same texts with the secret part as `***`, and, for command lines, long or free text as `<N characters>`.
Headers and bodies of model traffic are not handled here (`wire/redact.py`).

Each observation passes `mask_values` on its way to the sink, so that what a model API, an engine or an agent puts into
a name, an error type or a header that is kept leaves no key behind in store, spans, metrics and logs.

How this can be wrong: a secret of unknown shape under an innocent name stays.  The cost is limited because texts of
others are kept in few, named fields only, and no header, body or variable as such.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

MASK: Final = "***"

_SECRET_NAME: Final = re.compile(
    r"(?:^|[-_.])(?:api[-_]?keys?|keys?|tokens?|secrets?|passw(?:or)?d|passphrase|pwd|auth|authorization|bearer|credentials?|cookie"
    r"|headers?|signature|sig)(?:$|[-_.])",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(r"(?:^|[-_.])(?:max|min|num|count|limit|budget)(?:$|[-_.])", re.IGNORECASE)
"""`--max-tokens 500` is an amount."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"  # Anthropic, OpenAI, Stripe; no `task-20261130`
    r"|(?<![A-Za-z0-9])[spr]k_(?:live|test|prod)_[A-Za-z0-9]{8,}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{20,}"
    r"|(?<![A-Za-z0-9])(?:xai-|gsk_|nvapi-|r8_|dop_v1_|pypi-)[A-Za-z0-9_-]{24,}"  # long: `xai-grok-4` is a model
    r"|ya29\.[A-Za-z0-9_-]{16,}"  # Google's OAuth
    r"|xox[abprs]-[A-Za-z0-9-]{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|AIza[A-Za-z0-9_-]{20,}"
    r"|hf_[A-Za-z0-9]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"  # JSON Web Token
    r"|(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=-]{8,}"
)
_USERINFO: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s@]*@")
_QUERY: Final = re.compile(r"(?P<name>[?&;][^=&#\s]+=)(?P<value>[^&#\s]*)")
_TOKEN_PATH: Final = re.compile(r"(?P<head>://[^/\s]+/t/)[A-Za-z0-9_-]{16,}")

_SHORTEST: Final = 8
"""No shorter text holds one of the shapes."""

_KEPT_ARGUMENT_CHARS: Final = 200


def is_secret_name(name: str) -> bool:
    """Whether a variable, header, option or key of this name usually holds a secret (`x-api-key`, `OPENAI_API_KEY`)."""
    words = _CAMEL.sub("_", name)
    return _SECRET_NAME.search(words) is not None and _AMOUNT.search(words) is None


def mask_text(text: str) -> str:
    """Anything in `text` that has the shape of a well-known secret, a URL's user part, or one of our trial tokens."""
    if "://" in text:
        text = _USERINFO.sub(lambda found: f"{found['scheme']}{MASK}@", text)
        text = _TOKEN_PATH.sub(lambda found: found["head"] + MASK, text)
    return _SHAPES.sub(MASK, text)


def mask_values(values: dict[str, object]) -> dict[str, object]:
    """`mask_text` done to every text in plain JSON types that is a value; names stay, and so do digests."""
    return {name: each if "digest" in name else _masked(each) for name, each in values.items()}


def _masked(value: object) -> object:
    match value:
        case str():
            return value if len(value) < _SHORTEST else mask_text(value)
        case list():
            return [_masked(each) for each in cast("list[object]", value)]
        case dict():
            return mask_values(cast("dict[str, object]", value))
        case _:
            return value


def mask_url(url: str) -> str:
    """A URL as it may be shown: no user part, no trial token, no value of a query parameter with a secret's name."""

    def query(found: re.Match[str]) -> str:
        return found["name"] + (MASK if is_secret_name(found["name"][1:-1]) else found["value"])

    return mask_text(_QUERY.sub(query, url))


def mask_value(name: str, value: str) -> str:
    """The value of a setting or variable called `name`, as it may be shown and kept."""
    if not value:
        return value
    return MASK if is_secret_name(name) else mask_url(value)


def mask_command(command: Sequence[str], *, keep_text: bool = False) -> list[str]:
    """A command line as it may be kept: secrets masked, and free text (a prompt) as its length unless `keep_text`.

    Free text is any argument with white space in it or longer than 200 characters, whatever the program: which of
    them take prompts nobody can list, and a script of `sh -c` may hold one.  A prompt of one word stays.
    """
    shown: list[str] = []
    secret_next = False
    for index, argument in enumerate(command):
        if secret_next:
            shown.append(MASK)
            secret_next = False
            continue
        name, equals, value = argument.partition("=")
        named = bool(equals) and re.fullmatch(r"-{0,2}[A-Za-z_][A-Za-z0-9_.-]*", name) is not None
        if named and is_secret_name(name):
            shown.append(f"{name}={MASK}")
        elif index and not keep_text and _is_free_text(argument):
            shown.append(f"{name}=<{len(value)} characters>" if named else f"<{len(argument)} characters>")
        elif argument.startswith("-") and not equals:
            secret_next = is_secret_name(argument.lstrip("-"))
            shown.append(mask_text(argument))
        else:
            shown.append(mask_url(argument))
    return shown


def _is_free_text(argument: str) -> bool:
    return len(argument) > _KEPT_ARGUMENT_CHARS or any(char.isspace() for char in argument)
