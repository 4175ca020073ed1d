from __future__ import annotations

import dataclasses

import pytest

from oasis_runtime.contract import TRANSFER_PORT, TransferConfig
from oasis_runtime.pd.agent import UCX_DEFAULTS, set_ucx_defaults
from oasis_runtime.pd.bandwidth import MovingRate
from oasis_runtime.pd.endpoint import endpoint
from oasis_runtime.pd.importer import Importer
from oasis_runtime.pd.settings import TransferSettings


def test_ranks_listen_on_ports_of_their_own() -> None:
    assert TransferSettings.from_config(TransferConfig(), rank=3).port == TRANSFER_PORT + 3


@pytest.mark.parametrize("landing", [1 << 20, (1 << 20) + 1, 256 << 20])
def test_a_chunk_fits_the_landing_buffer_several_times(landing: int) -> None:
    made = TransferSettings.from_config(TransferConfig(landing_bytes=landing))
    assert 4 * made.chunk_bytes <= landing


def test_no_deadline_is_longer_than_the_lease() -> None:
    made = TransferSettings.from_config(TransferConfig(lease_seconds=4, heartbeat_seconds=1))
    assert made.operation_seconds == made.connect_seconds == 4
    assert made.offer_grace_seconds < made.operation_seconds


def test_a_chunk_larger_than_the_landing_buffer_is_an_error() -> None:
    made = TransferSettings.from_config(TransferConfig())
    with pytest.raises(ValueError, match=r"raise transfer\.landing_bytes"):
        dataclasses.replace(made, landing_bytes=made.chunk_bytes - 1)


def test_a_page_larger_than_a_chunk_is_an_error() -> None:
    made = TransferSettings.from_config(TransferConfig(landing_bytes=1 << 20))
    with pytest.raises(ValueError, match=r"raise transfer\.landing_bytes"):
        Importer(made, "layout", made.chunk_bytes + 1)


def test_what_the_environment_says_about_ucx_stays() -> None:
    environ = {"UCX_TLS": "rc,tcp"}
    set_ucx_defaults(environ)
    assert environ == {**UCX_DEFAULTS, "UCX_TLS": "rc,tcp"}


def test_ipv6_hosts_are_bracketed() -> None:
    assert endpoint("fd00::1", 8600) == "tcp://[fd00::1]:8600"
    assert endpoint("prefill-0", None) == "tcp://prefill-0"


def test_a_rate_is_bytes_over_time_not_a_mean_of_rates() -> None:
    rate = MovingRate()
    assert rate.bytes_per_second == 0
    rate.add(1000, 1.9)
    rate.add(1000, 0.1)
    assert 900 < rate.bytes_per_second < 1100
