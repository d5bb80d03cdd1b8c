"""Steps, trials and verdicts to the outside. One file per target; an exporter may block nothing but its own bounded queue."""
