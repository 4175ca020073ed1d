"""Sampled comparison of sparse attention with dense attention over the same KV.

Every so many steps one head of one layer of one sparse request is also computed densely: the share
of the dense attention mass that lies on the attended tokens, and how far the output is off.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from oasis_runtime.core.engine import Step
from oasis_runtime.core.sampling import HeadWalk
from oasis_runtime.kernels.contract import I32
from oasis_runtime.vllm.layout import PageLayout
from oasis_runtime.vllm.session import Session


@dataclass(frozen=True)
class Target:
    request_id: str
    layer: int
    head: int


class Auditor:
    def __init__(self, session: Session, layout: PageLayout, scale: float, every: int) -> None:
        self._session = session
        self._layout = layout
        self._scale = scale
        self._every = every
        self._target: Target | None = None
        g = session.engine.tables.geometry
        self._walk = HeadWalk(g.layers, g.heads)
        self._count = 0

    def begin_step(self, step: Step) -> None:
        """Pick the next sample when one is due; ask for the pages that it lacks."""
        present = {step.batch[i].request_id: step.batch[i] for i in step.sparse}
        if self._target is not None and self._target.request_id not in present:
            self._target = None
        if self._target is None and present and step.index % self._every == 0:
            request_id = list(present)[self._count % len(present)]
            self._target = Target(request_id, *self._walk.take())
            self._count += 1
        if self._target is not None:
            self._session.engine.want(
                self._target.request_id, self._absent(present[self._target.request_id].blocks, step)
            )

    def _absent(self, blocks: I32, step: Step) -> I32:
        """Pages int32 [n, 3] of the target that the host tier lacks."""
        assert self._target is not None
        t, tables = self._target, self._session.engine.tables
        length = next(r.length for r in step.batch if r.request_id == t.request_id)
        used = blocks[: tables.geometry.blocks_for(length) - 1]
        logical = np.nonzero(tables.present[t.layer, t.head, used] == 0)[0]
        pages = np.empty((len(logical), 3), np.int32)
        pages[:, 0], pages[:, 1], pages[:, 2] = t.layer, t.head, logical
        return pages

    def observe(self, layer: int, rows: torch.Tensor, result: torch.Tensor, table: I32) -> None:
        """``rows``, ``result``: query and output [rows, group, D] of the layer's sparse requests;
        ``table``: their block tables over slots."""
        t, step = self._target, self._session.step
        if t is None or step is None or layer != t.layer:
            return
        g = self._session.engine.tables.geometry
        first = 0
        for position, i in enumerate(step.sparse):
            r = step.batch[i]
            if r.request_id == t.request_id:
                if len(self._absent(r.blocks, step)) == 0:
                    at = first + t.head * r.scheduled
                    slots = table[position * g.heads + t.head]
                    self._compare(t, r.blocks, r.computed + 1, rows[at], result[at], slots)
                    self._target = None
                return
            first += g.heads * r.scheduled

    def _compare(
        self,
        t: Target,
        blocks: I32,
        length: int,
        query: torch.Tensor,
        output: torch.Tensor,
        slots: I32,
    ) -> None:
        tables = self._session.engine.tables
        g = tables.geometry
        used = blocks[: g.blocks_for(length)]
        pages = self._session.tiers.host[t.layer][torch.from_numpy(used).long(), t.head]
        flat = pages.reshape(len(used), -1)
        keys = flat[:, self._layout.keys.view(-1)].float().view(-1, g.dim)[:length]
        values = flat[:, self._layout.values.view(-1)].float().view(-1, g.dim)[:length]
        weights = torch.softmax(query.float() @ keys.T * self._scale, dim=-1)
        attended = tables.owner[t.layer, slots] % g.host_blocks
        inside = np.repeat(np.isin(used, attended), g.block)[:length]
        mass = weights[:, torch.from_numpy(inside)].sum(dim=-1).mean()
        dense = weights @ values
        error = (output.float() - dense).norm() / dense.norm().clamp_min(1e-12)
        self._session.engine.audited(t.request_id, t.layer, t.head, float(mass), float(error))
