"""Pure parsers of kernel and runtime text. Text in, records out; a path to /proc or a cgroup is never opened here."""
