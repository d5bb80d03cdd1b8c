"""One file per cause family. A rule's docstring says what it recognises, what it deliberately does not, how it can be wrong.

A new rule is one file and one line in the table; its tests hold a positive, a near-miss and an innocent case.
"""
