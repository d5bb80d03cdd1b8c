"""Sans-IO: bytes in, events out. No awaits, no clock, no logging, a bound on every buffer.

Framers and parsers of what passes the doors, used on copies only; `dialects/` holds one file per model API and
`feed.py` the frames in which the relay process hands its copies to the observer. Bad input makes a parser give up and
say so; it never raises.
"""
