"""Statistics over many trials, from scipy and statsmodels (the extra `stats`); nothing statistical is written by hand here."""
