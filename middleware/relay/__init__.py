"""The relay process: the only code that touches the agent's traffic. Bytes pass first, observing comes second.

Loads the standard library, httptools and uvloop only (a contract in pyproject.toml). It never retries, caches or
repairs. What it sees leaves as copies through `fairtrial.middleware.wire.feed`, over a bounded socket that drops and
counts.
"""
