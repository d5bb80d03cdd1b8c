"""Pure parsers of what the kernel and the runtime write: bytes in, records out; no I/O, no clock.

A missing field is None, never 0; a file that is not what it should be raises ValueError, and the reader counts it.
"""
