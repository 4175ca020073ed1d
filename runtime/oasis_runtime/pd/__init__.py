"""Prefill/decode KV transfer: the owner of a prompt's KV pushes pages to its reader over NIXL.

The *owner* (a prefill engine, :class:`~oasis_runtime.pd.exporter.Exporter`) offers exports under
leases. The *reader* (a decode engine, :class:`~oasis_runtime.pd.importer.Importer`) asks for an
export over a ZeroMQ control channel, and the owner WRITEs the pages it is asked for into a region
of the reader's landing buffer. Only the send and landing buffers are registered with NIXL, never
a KV pool. Nothing here knows vLLM, torch or the engine core.
"""
