"""A trial -> text for a person. Reads records, computes no verdict, removes control characters from what it shows.

| module | what it holds |
|---|---|
| `text` | the end of a run; one trial whole |
| `markdown` | a job summary: one trial, or the trials of a run |
| `junit` | the same for CI servers |
| `annotations` | the same for a GitHub Actions step |
| `sight` | what was watched, in one line |
| `tables` | rows as aligned lines; the table of steps |
| `words` | durations, sizes, counts, a verdict in one phrase |
"""
