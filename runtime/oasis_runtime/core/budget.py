"""How many blocks a head may select, and when sparsity is not worth it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from oasis_runtime.contract import EngineConfig, RequestOptions, Role, SelectionConfig


@dataclass(frozen=True)
class Budget:
    """Block counts of one request. ``local`` tokens are kept on top of ``selected`` blocks, which
    are those of contexts of up to ``grows_from`` tokens; in a longer one of n tokens there are
    ``selected * sqrt(n / grows_from)``, rounded down.
    """

    block: int
    selected: int
    sinks: int
    window_tokens: int
    mode: str
    grows_from: float = math.inf

    @staticmethod
    def of(config: SelectionConfig, options: RequestOptions, block: int) -> Budget:
        """The engine's configuration with a request's overrides."""
        tokens = options.budget_tokens or config.budget_tokens
        budget = Budget(
            block=block,
            selected=max(1, tokens // block),
            sinks=-(-config.sink_tokens // block),
            window_tokens=config.window_tokens,
            mode=options.mode or config.mode,
        )
        if config.budget_grows_from is None:
            return budget
        # A budget that grew in short contexts would make them dense again.
        return replace(budget, grows_from=max(config.budget_grows_from, budget.short_up_to))

    @property
    def window_blocks(self) -> int:
        """Most blocks that the window spans, one more for the tokens of the step itself."""
        return -(-self.window_tokens // self.block) + 2

    def selected_at(self, length: int) -> int:
        """Selected blocks of a context of ``length`` tokens."""
        if length <= self.grows_from:
            return self.selected
        return int(self.selected * math.sqrt(length / self.grows_from))

    def most_blocks(self, length: int) -> int:
        """That a context of up to ``length`` tokens attends to."""
        return self.selected_at(length) + self.sinks + self.window_blocks

    @property
    def short_up_to(self) -> int:
        """Longest context, in tokens, in which sparsity does not pay: 2 * (K + local)."""
        return 2 * ((self.selected + self.sinks) * self.block + self.window_tokens)

    @property
    def dense_up_to(self) -> int:
        """Longest context, in tokens, that is served densely for its length, or its mode."""
        if self.mode == "dense":
            return 1 << 62
        return 0 if self.mode == "sparse" else self.short_up_to

    def window_start(self, length: int) -> int:
        """First logical block of the window of the token that follows ``length`` tokens."""
        return max(self.sinks, (length + 1 - self.window_tokens) // self.block, 0)


def sparse_at_once(config: EngineConfig, most_requests: int) -> int:
    """Requests whose sets the fast tier must hold together, for an engine to start.

    A decode engine cannot fall back to dense for a request whose pages are with its peer, so it
    needs room for all; an engine in one role for one, and one that never decodes sparsely for none.
    """
    if config.role is Role.PREFILL or config.selection.mode == "dense":
        return 0
    return most_requests if config.role is Role.DECODE else 1
