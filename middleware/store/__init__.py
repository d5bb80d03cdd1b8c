"""The SQLite file: schema, writer, queries. Observations are append-only and idempotent by (source_id, seq).

The schema number and its rule are in docs/formats.md. Nothing here judges; steps and verdicts can be computed anew
from what is stored.
"""
