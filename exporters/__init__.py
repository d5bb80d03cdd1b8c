"""Steps, trials and verdicts to the outside. One file per target; an exporter may block its own bounded queue only."""
