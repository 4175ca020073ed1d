"""The tables of :class:`oasis_runtime.core.tables.Tables` as tensors of one device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from oasis_runtime.core.geometry import Geometry
from oasis_runtime.core.tables import Tables


@dataclass(frozen=True)
class DeviceTables:
    """Shapes and types as in Tables, but for ``host``, int64, ``scale``, int16 with the bits of
    bfloat16, and ``fast``, int32 [L, S, page_bytes / 4]: what a device program can load."""

    geometry: Geometry
    host: torch.Tensor
    fast: torch.Tensor
    slot_of: torch.Tensor
    owner: torch.Tensor
    last: torch.Tensor
    state: torch.Tensor
    present: torch.Tensor
    bounds: torch.Tensor
    scale: torch.Tensor
    selected: torch.Tensor
    count: torch.Tensor
    elements: torch.Tensor

    @staticmethod
    def of(tables: Tables, device: torch.device) -> DeviceTables:
        """On a CPU the tensors share the arrays' memory; on another device they are a copy."""

        def moved(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        return DeviceTables(
            geometry=tables.geometry,
            host=moved(tables.host.view(np.int64)),
            fast=moved(tables.fast.view(np.int32)),
            slot_of=moved(tables.slot_of),
            owner=moved(tables.owner),
            last=moved(tables.last),
            state=moved(tables.state),
            present=moved(tables.present),
            bounds=moved(tables.bounds),
            scale=moved(tables.scale.view(np.int16)),
            selected=moved(tables.selected),
            count=moved(tables.count),
            elements=moved(tables.elements),
        )
