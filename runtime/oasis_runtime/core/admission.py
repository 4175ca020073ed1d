"""What a prefill engine sends of a request besides its pages: the summaries of all its blocks and
the selection that its last query made. Encoded as one header line and raw arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.bfloat16 import widen
from oasis_runtime.core.requests import Selection
from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.contract import I32

_HEADER = {"window", "length", "blocks", "layers", "heads", "dim", "selected"}


@dataclass(frozen=True)
class Admission:
    """``low``, ``high``: int8 [L, n, H, D]; ``scale``: bfloat16 [L, n, H] as uint16; n blocks,
    see :class:`oasis_runtime.core.tables.Tables`."""

    selection: Selection
    low: npt.NDArray[np.int8]
    high: npt.NDArray[np.int8]
    scale: npt.NDArray[np.uint16]

    @staticmethod
    def of(tables: Tables, blocks: I32, selection: Selection) -> Admission:
        """Of the request whose logical blocks are the host blocks ``blocks``."""
        return Admission(
            selection,
            tables.low[:, blocks],
            tables.high[:, blocks],
            tables.scale[:, blocks],
        )

    def encode(self) -> bytes:
        layers, blocks, heads, dim = self.low.shape
        most = int(self.selection.count.max(initial=0))
        header = {
            "window": self.selection.window,
            "length": self.selection.length,
            "blocks": blocks,
            "layers": layers,
            "heads": heads,
            "dim": dim,
            "selected": most,
        }
        parts = (
            self.selection.count.astype(np.int32),
            self.selection.blocks[:, :, :most].astype(np.int32),
            self.low,
            self.high,
            self.scale,
        )
        arrays = b"".join(np.ascontiguousarray(p).tobytes() for p in parts)
        return json.dumps(header).encode() + b"\n" + arrays

    @staticmethod
    def decode(data: bytes | memoryview) -> Admission:
        """Raises ValueError when the bytes are not what :meth:`encode` makes."""
        raw = bytes(data)
        line, newline, body = raw.partition(b"\n")
        try:
            header = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the admission's header is not JSON: {line[:40]!r}") from error
        if not newline or not isinstance(header, dict) or set(header) != _HEADER:
            raise ValueError("the admission's header has not the fields of this version")
        n, layers, heads, dim = (_whole(header, k, 1) for k in ("blocks", "layers", "heads", "dim"))
        window, length, most = (_whole(header, k, 0) for k in ("window", "length", "selected"))
        pages = layers * n * heads
        sizes = (4 * layers * heads, 4 * layers * heads * most, pages * dim, pages * dim, 2 * pages)
        if sum(sizes) != len(body):
            raise ValueError(f"the admission has {len(body)} bytes of arrays, not {sum(sizes)}")
        ends = np.cumsum(sizes)
        count, chosen, low, high, scale = (
            body[end - size : end] for end, size in zip(ends, sizes, strict=True)
        )
        scales = np.frombuffer(scale, np.uint16)
        if not np.isfinite(widen(scales)).all():
            raise ValueError("the admission has a scale that is not a number")
        return Admission(
            Selection(
                np.frombuffer(chosen, np.int32).reshape(layers, heads, most),
                np.frombuffer(count, np.int32).reshape(layers, heads),
                window,
                length,
            ),
            np.frombuffer(low, np.int8).reshape(layers, n, heads, dim),
            np.frombuffer(high, np.int8).reshape(layers, n, heads, dim),
            scales.reshape(layers, n, heads),
        )

    def install(self, tables: Tables, blocks: I32) -> None:
        """Write the summaries to the host blocks ``blocks``. Raises ValueError on another shape."""
        g = tables.geometry
        if self.low.shape != (g.layers, len(blocks), g.heads, g.dim):
            raise ValueError(
                f"the admission's summaries are {self.low.shape}, "
                f"this engine needs {(g.layers, len(blocks), g.heads, g.dim)}"
            )
        tables.low[:, blocks] = self.low
        tables.high[:, blocks] = self.high
        tables.scale[:, blocks] = self.scale


def _whole(header: dict[str, object], name: str, least: int) -> int:
    value = header[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 31:
        raise ValueError(
            f"the admission's {name} is {str(value)[:40]}, not a whole number from {least} on"
        )
    return value


def hot_pages(selection: Selection, sinks: int, blocks: int) -> I32:
    """Pages int32 [n, 3] of (layer, head, logical block) that the selection starts with: sinks,
    selected blocks, and the window up to ``blocks``."""
    layers, heads = selection.count.shape
    local = [*range(min(sinks, blocks)), *range(max(selection.window, sinks), blocks)]
    out = []
    for layer in range(layers):
        for head in range(heads):
            chosen = selection.blocks[layer, head, : selection.count[layer, head]]
            logical = np.union1d(chosen, np.array(local, np.int32)).astype(np.int32)
            rows = np.empty((len(logical), 3), np.int32)
            rows[:, 0], rows[:, 1], rows[:, 2] = layer, head, logical
            out.append(rows)
    return np.concatenate(out)
