"""The demo's room: a stand-in for a model API, scripted and offline, that answers real clients and fails on demand.

| module | what it holds |
|---|---|
| `faults` | what can go wrong with an answer, as records; the catalogue of named faults |
| `script` | what the scripted model says, turn by turn; a whole scenario as JSON |
| `asked` | reads a model request: API, step, tools |
| `answers` | a step as JSON body or SSE frames of Messages, Chat Completions or Responses |
| `calls` | what was seen of each request, secrets masked |
| `link` | a client's bytes: requests, silences, and ends of every kind |
| `reply` | one answer's head, body, chunks; or messages of a WebSocket |
| `sending` | an answer goes out, with the fault that hits it |
| `serving` | one connection: which request gets which answer |
| `standin` | the server, its command line, and how to run it in a process of its own |
"""
