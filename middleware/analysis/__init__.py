"""Statistics over many trials belong here (scipy and statsmodels, the extra `stats`). Nothing is built yet."""
