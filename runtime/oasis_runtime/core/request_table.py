"""The requests that an engine knows: their options, their sets, and the lanes of the sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from oasis_runtime.contract import RequestOptions, SelectionConfig
from oasis_runtime.core.budget import Budget
from oasis_runtime.core.requests import Selection, StepRequest, Tracked
from oasis_runtime.core.tables import Tables


class RequestTable(Mapping[str, Tracked]):
    """By request id, what :class:`Tracked` holds, from the first step or the admission of a
    request until :meth:`release`.

    A lane is free or belongs to one request; a request that has a set has a lane. Options outlive
    a preemption and end with :meth:`forget`.
    """

    def __init__(self, tables: Tables, selection: SelectionConfig) -> None:
        self._tables = tables
        self._selection = selection
        self._requests: dict[str, Tracked] = {}
        self._options: dict[str, RequestOptions] = {}
        self._lanes = list(range(len(tables.selected)))

    def __getitem__(self, request_id: str) -> Tracked:
        return self._requests[request_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    # ------------------------------------------------------------------- lifetime

    def configure(self, request_id: str, options: RequestOptions) -> None:
        """Overrides for a request; before its first step."""
        self._options[request_id] = options

    def budget_of(self, request_id: str) -> Budget:
        options = self._options.get(request_id, RequestOptions())
        return Budget.of(self._selection, options, self._tables.geometry.block)

    def track(self, request_id: str) -> Tracked:
        t = self._requests.get(request_id)
        if t is None:
            t = self._requests[request_id] = Tracked(self.budget_of(request_id))
        return t

    def begin_step(self, r: StepRequest) -> Tracked:
        """Track the request of a step; one that restarted has no set and no peer any more."""
        t = self.track(r.request_id)
        if r.computed < t.computed:  # preempted, and computed again here
            t.selection_length, t.remote = 0, False
        t.computed = r.computed
        return t

    def forget(self, request_id: str) -> None:
        """The request ended; its blocks may be given to another one."""
        self.release(request_id)
        self._options.pop(request_id, None)

    def release(self, request_id: str) -> None:
        """The request was preempted: as :meth:`forget`, but it will come again as it was asked."""
        t = self._requests.pop(request_id, None)
        if t is not None and t.lane is not None:
            self._lanes.append(t.lane)

    # ----------------------------------------------------------------------- sets

    def selection_of(self, request_id: str) -> Selection | None:
        """The set chosen for the request's next token, for a peer to start from."""
        t = self._requests.get(request_id)
        if t is None or t.lane is None or t.selection_length == 0:
            return None
        return Selection(
            self._tables.selected[t.lane].copy(),
            self._tables.count[t.lane].copy(),
            min(t.window, self._tables.geometry.blocks_for(t.selection_length)),
            t.selection_length,
        )

    def give_lane(self, t: Tracked) -> bool:
        """Whether the request has a lane, its own or one that was free."""
        if t.lane is None and self._lanes:
            t.lane = self._lanes.pop()
        return t.lane is not None

    # ---------------------------------------------------------------------- peers

    def adopt(self, request_id: str, selection: Selection, remote: bool) -> None:
        """Start a request from a peer's selection. ``remote``: some of its pages are not here.

        The pages of the selection, the sinks and the window must be here before its first step.
        Raises ValueError when the selection cannot be one of this model.
        """
        g = self._tables.geometry
        selection.check(g.layers, g.heads, g.blocks_for(selection.length))
        t = self.track(request_id)
        t.parked, t.remote = selection, remote

    def unpark(self, t: Tracked, length: int) -> bool:
        """Move a peer's selection, if one waits and is not of more than ``length`` tokens, to a
        lane. Returns whether the request has a set, its own or that of the peer."""
        parked, t.parked = t.parked, None
        if parked is not None and parked.length <= length and self.give_lane(t):
            assert t.lane is not None
            selected, count = self._tables.selected[t.lane], self._tables.count[t.lane]
            width = min(parked.blocks.shape[2], selected.shape[2])
            selected[:, :, :width] = parked.blocks[:, :, :width]
            most = min(width, t.budget.selected_at(parked.length))
            count[:] = np.minimum(parked.count, most)
            t.window = max(parked.window, t.budget.sinks)
            t.selection_length, t.chosen_at = parked.length, -1
        return t.lane is not None and t.selection_length > 0

    def lose(self, request_id: str) -> None:
        """The peer with the request's other pages is gone: what is not here must be computed."""
        t = self._requests.get(request_id)
        if t is not None:
            t.remote, t.parked, t.selection_length = False, None, 0

    def landed(self, request_id: str) -> None:
        """Pages of the request came since the last step."""
        t = self._requests.get(request_id)
        if t is not None:
            t.landed = True

    def is_remote(self, request_id: str) -> bool:
        """Whether some of the request's pages are with a peer."""
        t = self._requests.get(request_id)
        return t is not None and t.remote

    def check(self) -> None:
        """Raise AssertionError when lanes are lost or shared, or a set has none."""
        held = [t.lane for t in self._requests.values() if t.lane is not None]
        lanes = sorted([*held, *self._lanes])
        if lanes != list(range(len(self._tables.selected))):
            raise AssertionError(f"lanes are lost or shared: {lanes}")
        for name, t in self._requests.items():
            if t.selection_length and t.lane is None:
                raise AssertionError(f"request {name} has a set but no lane")
