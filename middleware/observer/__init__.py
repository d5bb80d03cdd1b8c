"""What both observer processes share: the record of one trial, the feed's reader, traces, facts of the machine.

They are `middleware/app.py` (one trial, `fairtrial run`) and `middleware/sidecar.py` (many, `fairtrial serve`).
`many.py`, `control.py` and `run/` are of use to the first only.
"""
