from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from oasis_operator.cluster.yaml_body import yaml_body

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_a_yaml_parser_reads_the_same(body: Any) -> None:
    assert yaml.load(yaml_body(body), Loader=yaml.CSafeLoader) == body


def test_an_emoji_is_not_a_pair_of_escapes() -> None:
    assert yaml_body({"a": "\U0001f980"}) == '{"a": "\U0001f980"}'.encode()
