"""Where a running trial is: its step so far and how many attempts are open, from observations as they come.

In: observations of one trial in the order of their emission.  Out: `step` and `open_attempts`, good enough for progress
and for edges.  What this module does not do: look ahead.  A compaction or a subagent without an id counts as a step
here until `assembler.py`, which sees the whole trial, says otherwise; nothing is persisted from this.
"""

from __future__ import annotations

from fairtrial.middleware.core.observations import AttemptEnded, AttemptStarted, Observation, RequestFacts, decode
from fairtrial.middleware.steps.identity import SessionKey, session_key


class LiveTrial:
    """Feed it with `take`."""

    def __init__(self) -> None:
        self.step = 0
        """Index of the step that the trial is in; 0 before its first main-agent call."""
        self._open: dict[str, RequestFacts] = {}
        self._ended: set[str] = set()
        self._tools_seen: set[SessionKey] = set()
        self._last: RequestFacts | None = None
        self._last_completed = True

    @property
    def open_attempts(self) -> int:
        """Requests that have no end yet."""
        return len(self._open)

    def take(self, observation: Observation) -> bool:
        """Take one observation; True when it moved the step."""
        if observation.kind not in {AttemptStarted.kind, AttemptEnded.kind}:
            return False
        value = decode(observation)
        if isinstance(value, AttemptStarted) and value.attempt not in self._ended:
            self._open[value.attempt] = value.request
            return self._begin(value.request)
        if isinstance(value, AttemptEnded) and value.attempt not in self._ended:
            self._ended.add(value.attempt)
            request = self._open.pop(value.attempt, None)
            if request is not None and self._is_main(request):
                self._last_completed = value.outcome == "ok"
        return False

    def _is_main(self, request: RequestFacts) -> bool:
        if request.operation != "chat" or request.max_tokens == 1:
            return False
        return bool(request.has_tools) or session_key(request) not in self._tools_seen

    def _begin(self, request: RequestFacts) -> bool:
        if not self._is_main(request):
            return False
        if request.has_tools:
            self._tools_seen.add(session_key(request))
        again = (
            self._last is not None
            and not self._last_completed
            and session_key(self._last) == session_key(request)
            and (request.assistant_turns or 0) <= (self._last.assistant_turns or 0)
        )
        self._last, self._last_completed = request, False
        if not again:
            self.step += 1
        return not again
