"""Tells `fairtrial run --control` how each trial of a harness goes.  Without it, everything here does nothing."""
