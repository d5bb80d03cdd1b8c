"""One file per cause family; each docstring says what it recognises, what it deliberately does not, how it can be
wrong.

A new rule is one file and one line in `engine.py`'s table; its tests hold a positive, a near-miss and an innocent case.
"""
