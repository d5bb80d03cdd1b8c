"""Causes: what the model API did, as its door saw it.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import DOOR, PROVED, RETRY_LATER, SUSPECTED, H, I, M, O, cause

MODEL_API: Final = (
    cause(
        "model_api.overloaded",
        "model_api",
        (I,),
        PROVED,
        "The model API was overloaded: {attempts} to get step {step}'s reply failed ({statuses}) within {seconds}.",
        RETRY_LATER,
        note="when terminal",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.rate_limited",
        "model_api",
        (I, O),
        PROVED,
        "The model API's rate limit was reached: {attempts} to get step {step}'s reply failed ({statuses}) within "
        "{seconds}.",
        "Run the trial again with fewer trials at once, or ask for a higher limit.",
        note="when terminal; the operator's for a per-key limit that this run's own trials share",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.server_error",
        "model_api",
        (I,),
        PROVED,
        "The model API had an error of its own: {attempts} to get step {step}'s reply failed ({statuses}) within "
        "{seconds}.",
        RETRY_LATER,
        note="when terminal",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.truncated",
        "model_api",
        (I,),
        PROVED,
        "The provider cut the connection in the middle of step {step}'s reply ({attempts} within {seconds}; "
        "{bytes_down} received, no end mark).",
        RETRY_LATER,
        note="when terminal; a cut reply that the client kept: proved only if a tool call or the stop reason was "
        "lost and the trial ended within that turn",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.unreachable",
        "model_api",
        (I,),
        PROVED,
        "The model API at {upstream} had answered before and then could not be reached ({failure}): {attempts} to get "
        "step {step}'s reply failed within {seconds}.",
        RETRY_LATER,
        note="when terminal, and the upstream had answered earlier in this run",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.stalled",
        "model_api",
        (I,),
        PROVED,
        "The model API sent no byte of step {step}'s reply for {silence}, until the client gave up.",
        RETRY_LATER,
        note="when the silence, pings counted, had reached the client's own watchdog",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.timeout",
        "model_api",
        (I, H),
        SUSPECTED,
        "The model API timed out on its own side: {attempts} to get step {step}'s reply failed ({statuses}) within "
        "{seconds}.",
        "Run the trial again; if it happens again, make the request smaller or the time limit longer.",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.slow",
        "model_api",
        (I, H),
        SUSPECTED,
        "Model calls took {charged} more than the frozen reference expects of calls of their size, out of a time limit "
        "that fired.",
        "Run the trial again at another hour, or with a longer time limit.",
        note="only with a frozen reference, and only where a time limit fired",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.client_error",
        "model_api",
        (H, O, M),
        SUSPECTED,
        "The model API refused step {step}'s request as wrong ({statuses}, {error_type}).",
        "Read the error that the client printed: the request has to change, running it again will not help.",
        note="400, 404 for a model, 413, 422",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.poison_request",
        "model_api",
        (I, M),
        SUSPECTED,
        "The model API failed {attempts} on step {step}'s request ({statuses} within {seconds}) while other requests "
        "to the same model passed within a minute, so the request itself may be at fault.",
        "Send the request again by itself: if it fails there too, report it to the provider.",
        note="5xx at least three times for one step while others pass within 60 s; 529 never",
        sources=DOOR,
        built=True,
    ),
    cause(
        "model_api.degraded",
        "model_api",
        (I, M),
        SUSPECTED,
        "The provider reported degraded quality while this trial ran.",
        "Repeat the trials of that hour.",
        note="needs the provider's incident window and repeated runs",
    ),
    cause(
        "gateway.error",
        "model_api",
        (I, O),
        PROVED,
        "A gateway answered in place of the provider ({failure}, no provider request id): {attempts} to get step "
        "{step}'s reply failed within {seconds}.",
        "Look at the gateway's log at that time, then run the trial again.",
        note="502, 503, 504 or HTML without the provider's request id",
        sources=DOOR,
        built=True,
    ),
)
