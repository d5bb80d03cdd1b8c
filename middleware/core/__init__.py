"""The floor: records, causes, names of telemetry, errors, configuration, clock, ids. Standard library and msgspec only.

Everything above may import this room; it imports nothing of ours. Read `records/` (what fairtrial says about a
trial) and `observations/` (what it saw) first.
"""
