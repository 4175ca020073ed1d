"""How a Prometheus that asks who is asking is asked: headers, a bearer token, an authority."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Credentials:
    """What a request to Prometheus carries. Both files are read anew as they change, because who
    issues tokens and certificates replaces them while the operator runs."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """Of every request, such as the tenant in ``X-Scope-OrgID``."""
    token_file: Path | None = None
    """Holds a token for ``Authorization: Bearer`` (RFC 6750)."""
    ca_file: Path | None = None
    """PEM certificates that vouch for the server; ``None``: those that the system trusts."""


class Access:
    """Credentials as requests take them: ``headers``, and ``authority`` for TLS, of which ``True``
    is that of the system."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._certificates = ""
        self.headers: Mapping[str, str] = credentials.headers
        self.authority: ssl.SSLContext | Literal[True] = True

    def refresh(self) -> None:
        """Read the files. While the authority is the same it stays one object, so that connections
        are kept.

        Raises:
            OSError: a file cannot be read; ``ssl.SSLError`` where one holds no certificate.
        """
        given = self._credentials
        if given.token_file is not None:
            token = given.token_file.read_text().strip()
            self.headers = {**given.headers, "Authorization": f"Bearer {token}"}
        if given.ca_file is not None and (text := given.ca_file.read_text()) != self._certificates:
            self.authority = ssl.create_default_context(cadata=text)
            self._certificates = text
