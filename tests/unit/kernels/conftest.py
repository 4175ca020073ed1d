"""Triton's programs are interpreted: the machines of these tests have no GPU."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when the programs are defined, so before any import
