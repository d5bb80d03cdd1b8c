"""Conversations of clients that send no id: which owner does a history go on with?

In: the facts of requests, each with the tenant that sent it.  Out: the `Thread` that a request continues, or why none.
Pure and bounded.  What this module does not do: decide who owns a thread that is new (`trials.py`).

A request continues the longest known thread whose history it extends or repeats.  Where that could be one owner or
another it continues none: two live twins may be a hedge or two trials of one task, the same first words after a whole
answer a resample or the next trial; from then on those words decide nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.steps.identity import extends, same_history

MAX_THREADS: Final = 64
"""Conversations kept that begin with the same words."""
MAX_ALL: Final = 8192
"""Conversations kept of all tenants; those whose first words were silent longest are forgotten."""

Tenant = tuple[str | None, str | None]
"""(keyed digest of the API key, peer): within it a client's own words count."""

Owner = TypeVar("Owner")


@dataclass(slots=True, kw_only=True, eq=False)
class Thread(Generic[Owner]):
    """One conversation as far as it went; `owner` is None where nobody's it could be."""

    owner: Owner | None
    last: RequestFacts
    live: int = 0
    """Its requests that have not ended."""
    answered: bool = False
    """Its last request was answered whole."""

    def goes_on(self, request: RequestFacts) -> bool:
        """Whether the request extends or repeats it, by messages that both know."""
        last = self.last
        known_from = (request.history_len or 0) - len(request.message_digests)
        if known_from >= (last.history_len or 0):
            # It grew by more than the messages that are known of it: the first words alone prove nothing.
            return False
        return same_history(request, last) or extends(request, last)

    def advance(self, request: RequestFacts) -> None:
        """Take its next request."""
        if request.operation == "chat":
            self.last, self.answered = request, False
        self.live += 1

    def ended(self, *, whole: bool) -> None:
        """One of its requests is over."""
        self.live -= 1
        self.answered = self.answered or whole


@dataclass(slots=True, eq=False)
class _Root(Generic[Owner]):
    last_ns: int = 0
    threads: list[Thread[Owner]] = field(default_factory=list["Thread[Owner]"])
    contested: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Generic[Owner]):
    """Where a request belongs: a thread, a new one (`thread` and `why` None), or none, and `why`."""

    thread: Thread[Owner] | None = None
    why: str | None = None
    """no_identity | twins | fork."""


class Conversations(Generic[Owner]):
    """Threads by tenant and first words."""

    def __init__(self) -> None:
        self._roots: OrderedDict[tuple[Tenant, str], _Root[Owner]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """Conversations kept."""
        return self._count

    def find(self, request: RequestFacts, tenant: Tenant, now_ns: int) -> Place[Owner]:
        """Where a request of nobody known belongs.  It has not been taken yet: `advance` its thread, or `begin` one."""
        root = self._root(request, tenant, now_ns)
        if root is None or request.operation not in {"chat", "count_tokens"}:
            return Place(why="no_identity")
        if root.contested is not None:
            return Place(why=root.contested)
        going_on = [thread for thread in root.threads if thread.goes_on(request)]
        longest = max(going_on, key=lambda t: t.last.history_len or 0, default=None)
        fresh = not request.assistant_turns
        if longest is not None:
            again = same_history(request, longest.last) and request.operation == "chat"
            if again and (longest.live or (fresh and longest.answered)):
                root.contested = "twins"
                return Place(why="twins")
            return Place(thread=longest)
        if request.operation != "chat":
            return Place(why="no_identity")
        owners = {id(thread.owner) for thread in root.threads}
        if fresh or not owners:
            return Place()
        # It shares its first words with known threads and continues none: trimmed by its client, or a branch.
        return Place(thread=root.threads[-1]) if len(owners) == 1 else Place(why="fork")

    def follow(self, request: RequestFacts, tenant: Tenant, owner: Owner, now_ns: int) -> Thread[Owner] | None:
        """Take a request whose owner is known; None when it has no history to follow."""
        root = self._root(request, tenant, now_ns)
        if root is None:
            return None
        for thread in root.threads:
            if thread.owner is owner and thread.goes_on(request):
                thread.advance(request)
                return thread
        return self.begin(request, tenant, owner, now_ns)

    def begin(self, request: RequestFacts, tenant: Tenant, owner: Owner | None, now_ns: int) -> Thread[Owner] | None:
        """Begin a thread with this request."""
        root = self._root(request, tenant, now_ns)
        if root is None:
            return None
        thread = Thread(owner=owner, last=request, live=1)
        root.threads.append(thread)
        self._count += 1
        if len(root.threads) > MAX_THREADS:
            del root.threads[0]
            self._count -= 1
        while self._count > MAX_ALL:
            _, oldest = self._roots.popitem(last=False)
            self._count -= len(oldest.threads)
        return thread

    def drop(self, owner: Owner) -> None:
        """The owner is gone: its threads lead nowhere."""
        for root in self._roots.values():
            kept = [thread for thread in root.threads if thread.owner is not owner]
            self._count -= len(root.threads) - len(kept)
            root.threads = kept

    def expire(self, oldest_ns: int) -> None:
        """Forget first words that were not heard since."""
        while self._roots:
            key, root = next(iter(self._roots.items()))
            if root.last_ns >= oldest_ns and len(self._roots) <= MAX_ALL:
                return
            del self._roots[key]
            self._count -= len(root.threads)

    def _root(self, request: RequestFacts, tenant: Tenant, now_ns: int) -> _Root[Owner] | None:
        if request.first_user_digest is None or not request.message_digests:
            return None
        key = (tenant, request.first_user_digest)
        root = self._roots.get(key)
        if root is None:
            root = self._roots[key] = _Root()
        root.last_ns = now_ns
        self._roots.move_to_end(key)
        return root
