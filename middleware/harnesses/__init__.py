"""One file per harness: its own result files -> an outcome per trial. The booked score is never changed."""
