"""The per-request options, as they come out of ``vllm_xargs`` or ``SamplingParams.extra_args``.

vLLM lets a value of ``vllm_xargs`` be a string, a number or a list, so over HTTP the options
travel as a JSON string; a program that calls vLLM directly may put a mapping there.
"""

from __future__ import annotations

import json

from pydantic import ValidationError

from oasis_runtime.contract import RequestOptions
from oasis_runtime.serve.sentences import sentence

OPTIONS_KEY = "oasis"


def parse_request_options(value: object) -> RequestOptions:
    """Options from a mapping or from the text of a JSON object.

    Raises:
        ValueError: with one sentence that starts with the name of the option.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(
                f'{OPTIONS_KEY} is not JSON; write it like {{"mode": "dense"}}'
            ) from None
    if not isinstance(value, dict):
        raise ValueError(
            f'{OPTIONS_KEY} must be an object such as {{"mode": "dense"}}, or its JSON text'
        )
    try:
        return RequestOptions.model_validate(value)
    except ValidationError as invalid:
        raise ValueError(
            sentence(invalid.errors()[0], RequestOptions, prefix=(OPTIONS_KEY,))
        ) from None
