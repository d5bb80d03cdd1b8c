"""Causes: the network between the trial and what it called.

In: nothing.  Out: rows of the table in `core/causes/__init__.py`.  What this module does not do: decide whether a
cause holds (`attribution/rules/`).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.causes.row import DOOR, PROVED, I, M, O, cause

_CONTROL: Final = "proved only with a control vantage"

NETWORK: Final = (
    cause(
        "network.dns",
        "network",
        (I, M, O),
        PROVED,
        "A name could not be resolved.",
        "Check the resolver, then run the trial again.",
        note=_CONTROL,
    ),
    cause(
        "network.tls",
        "network",
        (I, M, O),
        PROVED,
        "The TLS handshake with {upstream} failed ({failure}): {attempts} to get step {step}'s reply within {seconds}.",
        "Check the proxy and the CA certificates that the client is given (SSL_CERT_FILE, NODE_EXTRA_CA_CERTS).",
        note=_CONTROL + "; the operator's when the trust store is at fault",
        sources=DOOR,
        built=True,
    ),
    cause(
        "network.unreachable",
        "network",
        (I, M, O),
        PROVED,
        "A host could not be reached.",
        "Run the trial again.",
        note=_CONTROL,
    ),
    cause(
        "network.reset",
        "network",
        (I, M, O),
        PROVED,
        "A connection was reset.",
        "Run the trial again.",
        note=_CONTROL,
    ),
    cause(
        "network.slow",
        "network",
        (I, M, O),
        PROVED,
        "The network was slow.",
        "Run the trial again.",
        note=_CONTROL,
    ),
    cause(
        "network.mirror",
        "network",
        (I, M, O),
        PROVED,
        "A package mirror failed.",
        "Run the trial again.",
        note=_CONTROL,
    ),
    cause(
        "network.proxy",
        "network",
        (I, M, O),
        PROVED,
        "The proxy towards {upstream} refused or failed ({failure}): {attempts} to get step {step}'s reply "
        "over {seconds}.",
        "Check the proxy that HTTPS_PROXY or HTTP_PROXY names, then run the trial again.",
        note=_CONTROL,
        sources=DOOR,
        built=True,
    ),
    cause(
        "network.blocked",
        "network",
        (O, M),
        PROVED,
        "A rule blocked the connection.",
        "Allow the host, or tell the model that it is not allowed.",
        note="proved when the rule is ours",
    ),
)
