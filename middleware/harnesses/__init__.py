"""Readers of a harness's own result files belong here, one file per harness. Nothing is built yet."""
