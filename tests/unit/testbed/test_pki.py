"""Certificates say who a component is and verify against the bed's authority."""

from __future__ import annotations

import subprocess
from pathlib import Path

from testbed import pki
from testbed.node import layout
from testbed.pki import Certificate


def test_a_subject_names_the_group_before_the_user() -> None:
    assert Certificate("n", "system:node:a", organization="system:nodes").subject == (
        "/O=system:nodes/CN=system:node:a"
    )


def test_a_certificate_without_names_gets_no_empty_extension() -> None:
    arguments = pki.certificate_arguments(Certificate("n", "user"), Path("/pki"))
    assert not any(argument.startswith("subjectAltName") for argument in arguments)


def test_the_api_server_is_valid_under_every_name_that_the_bed_uses() -> None:
    names = next(c for c in layout.CERTIFICATES if c.name == "apiserver").alternative_names
    for wanted in ("DNS:kubernetes.default.svc", f"IP:{layout.ADDRESS}", "IP:10.96.0.1"):
        assert wanted in names.split(",")


def test_written_certificates_verify_against_the_authority(tmp_path: Path) -> None:
    pki.write(tmp_path, [Certificate("server", "s", dns=("localhost",), addresses=("127.0.0.1",))])
    verify = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", "server.crt"]
    subprocess.run(verify, cwd=tmp_path, check=True, capture_output=True)
    shown = subprocess.run(
        ["openssl", "x509", "-in", "server.crt", "-noout", "-ext", "subjectAltName"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "DNS:localhost, IP Address:127.0.0.1" in shown
