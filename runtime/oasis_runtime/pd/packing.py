"""Copies what a fetch asks for into the send buffer, and nothing that may not be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from oasis_runtime.pd import protocol
from oasis_runtime.pd.exports import ExportBook
from oasis_runtime.pd.types import Bytes, PageSource, TransferError, decode_pages


@dataclass(slots=True)
class Packed:
    """The first ``nbytes`` of the output hold the items that were not refused, in order."""

    nbytes: int = 0
    sent: list[protocol.Holding] = field(default_factory=list)
    refused: list[protocol.RefusedItem] = field(default_factory=list)


class Packer:
    """Reads the exports of ``book`` from ``source``."""

    def __init__(self, source: PageSource, book: ExportBook) -> None:
        self._source = source
        self._book = book

    def pack(self, items: Sequence[protocol.Item], out: Bytes) -> Packed:
        """Packs ``items`` into ``out``; every lease is valid before and after the copying.

        Packing takes time, and a lease may run out meanwhile: then all is packed again without
        that export.
        """
        while True:
            packed = self._pack_once(items, out)
            if not any(self._book.refusal(holding) for holding in packed.sent):
                return packed

    def _pack_once(self, items: Sequence[protocol.Item], out: Bytes) -> Packed:
        packed = Packed()
        for index, item in enumerate(items):
            reason = self._book.refusal(item.holding)
            if reason is None:
                try:
                    packed.nbytes += self._pack_item(item, out[packed.nbytes :])
                    packed.sent.append(item.holding)
                    continue
                except TransferError as error:
                    reason = str(error)
            packed.refused.append(protocol.RefusedItem(index, reason))
        return packed

    def _pack_item(self, item: protocol.Item, out: Bytes) -> int:
        if isinstance(item, protocol.BlobItem):
            return self._pack_blob(item, out)
        return self._pack_pages(item, out)

    def _pack_blob(self, item: protocol.BlobItem, out: Bytes) -> int:
        blob = self._book.read(item.holding).blob
        part = memoryview(blob)[item.offset : item.offset + item.length]
        if len(part) != item.length or item.length > len(out):
            raise TransferError(
                f"bytes {item.offset} to {item.offset + item.length} are outside of the "
                f"blob of {len(blob)} bytes or of the region asked for"
            )
        out[: item.length] = np.frombuffer(part, dtype=np.uint8)
        return item.length

    def _pack_pages(self, item: protocol.PagesItem, out: Bytes) -> int:
        export = self._book.read(item.holding)
        try:
            pages = decode_pages(item.pages)
        except ValueError as error:
            raise TransferError(str(error)) from error
        nbytes = len(pages) * self._source.page_bytes
        if nbytes > len(out):
            raise TransferError(f"{len(pages)} pages do not fit the region asked for")
        layers, heads, blocks = bounds = (
            self._source.layers,
            self._source.kv_heads,
            len(export.block_ids),
        )
        if not bool(((pages >= 0) & (pages < np.array(bounds))).all()):
            raise TransferError(
                f"a page is outside of {layers} layers, {heads} KV heads and {blocks} blocks"
            )
        self._source.read_pages(export.block_ids, pages, out[:nbytes])
        return nbytes
