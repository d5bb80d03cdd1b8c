"""What `tests.e2e.harness_table` is made of: rows, the list of scenarios, who runs them, the page."""
