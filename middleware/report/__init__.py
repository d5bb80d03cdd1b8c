"""A trial -> text for a person. Reads records, computes no verdict, removes control characters from what it shows.

| module | what it holds |
|---|---|
| `text` | the end of a run; one trial whole |
| `tables` | rows as aligned lines; the table of steps |
| `words` | durations, sizes, counts, a verdict in one phrase |
"""
