"""Certificates of a bed: one authority, and a certificate for each component, by openssl."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DAYS = 30
"""Validity; every start of a bed makes new ones."""


@dataclass(frozen=True)
class Certificate:
    """Who a component is: its user name, its groups, and where it answers."""

    name: str
    common_name: str
    organization: str = ""
    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        group = f"/O={self.organization}" if self.organization else ""
        return f"{group}/CN={self.common_name}"

    @property
    def alternative_names(self) -> str:
        names = [f"DNS:{name}" for name in self.dns]
        return ",".join(names + [f"IP:{address}" for address in self.addresses])


def authority_arguments(folder: Path) -> list[str]:
    """openssl arguments that make ``ca.key`` and ``ca.crt``."""
    return [
        *_request("/CN=oasiskv-testbed", folder / "ca"),
        "-addext",
        "basicConstraints=critical,CA:TRUE",
        "-addext",
        "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
    ]


def certificate_arguments(certificate: Certificate, folder: Path) -> list[str]:
    """openssl arguments that make ``NAME.key`` and ``NAME.crt``, signed by ``ca``."""
    arguments = [
        *_request(certificate.subject, folder / certificate.name),
        "-CA",
        str(folder / "ca.crt"),
        "-CAkey",
        str(folder / "ca.key"),
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        "keyUsage=digitalSignature",
        "-addext",
        "extendedKeyUsage=serverAuth,clientAuth",
    ]
    if certificate.alternative_names:
        arguments += ["-addext", f"subjectAltName={certificate.alternative_names}"]
    return arguments


def _request(subject: str, stem: Path) -> list[str]:
    return [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-noenc",
        "-days",
        str(DAYS),
        "-subj",
        subject,
        "-keyout",
        f"{stem}.key",
        "-out",
        f"{stem}.crt",
    ]


def write(folder: Path, certificates: Iterable[Certificate]) -> None:
    """Make the authority, the certificates and the key pair that signs service-account tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    _openssl(authority_arguments(folder))
    for certificate in certificates:
        _openssl(certificate_arguments(certificate, folder))
    _openssl(["genrsa", "-out", str(folder / "sa.key"), "2048"])
    _openssl(["rsa", "-in", str(folder / "sa.key"), "-pubout", "-out", str(folder / "sa.pub")])


def _openssl(arguments: list[str]) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
