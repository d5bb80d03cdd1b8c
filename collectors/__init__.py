"""What the host, the kernel and the container runtime say, as observations. One file per source, pure parsers in `parse/`.

A collector states its cost and the privileges it needs, and says when it cannot watch: absence is evidence only under coverage.
"""
