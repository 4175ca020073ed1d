"""How many blocks a head may select, and when sparsity is not worth it."""

from __future__ import annotations

from dataclasses import dataclass

from oasis_runtime.contract import EngineConfig, RequestOptions, Role, SelectionConfig


@dataclass(frozen=True)
class Budget:
    """Block counts of one request. ``local`` tokens are kept on top of ``selected`` blocks."""

    block: int
    selected: int
    sinks: int
    window_tokens: int
    mode: str

    @staticmethod
    def of(config: SelectionConfig, options: RequestOptions, block: int) -> Budget:
        """The engine's configuration with a request's overrides."""
        tokens = options.budget_tokens or config.budget_tokens
        return Budget(
            block=block,
            selected=max(1, tokens // block),
            sinks=-(-config.sink_tokens // block),
            window_tokens=config.window_tokens,
            mode=options.mode or config.mode,
        )

    @property
    def window_blocks(self) -> int:
        """Most blocks that the window spans, one more for the tokens of the step itself."""
        return -(-self.window_tokens // self.block) + 2

    @property
    def most_blocks(self) -> int:
        return self.selected + self.sinks + self.window_blocks

    @property
    def dense_up_to(self) -> int:
        """Longest context, in tokens, that ``auto`` serves densely: 2 * (K + local)."""
        if self.mode == "dense":
            return 1 << 62
        if self.mode == "sparse":
            return 0
        return 2 * ((self.selected + self.sinks) * self.block + self.window_tokens)

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
