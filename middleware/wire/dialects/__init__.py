"""One file per model API: request and response bytes in, marks of a model call out.

A new dialect is one file and one line in the table. What no dialect knows passes all the same and is recorded as `unknown`.
"""
