"""The middleware: malformed requests get 400, all others arrive as they were sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oasis_runtime.serve.payload import PAYLOAD_KEY, EnginePayload
from oasis_runtime.serve.validation import (
    MAX_BODY_BYTES,
    Message,
    Receive,
    RequestError,
    RequestValidation,
    Scope,
    Send,
    checked_body,
)
from tests.unit.serve.payloads import payload
from tests.unit.serve.test_transfer_params import TO_DECODE, TO_PREFILL

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Server:
    """An application behind the middleware that keeps what it is given."""

    payload: EnginePayload
    bodies: list[bytes] = field(default_factory=list)
    lengths: list[bytes | None] = field(default_factory=list)
    after: list[Message] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        assert not message["more_body"]
        self.bodies.append(message["body"])
        self.lengths.append(dict(scope["headers"]).get(b"content-length"))
        self.after.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def request(
        self, *chunks: bytes, path: str = "/v1/chat/completions", method: str = "POST"
    ) -> int:
        """Send a request in ``chunks``; returns the status, 0 if nothing was answered."""
        transfer = SimpleNamespace(
            kv_connector_extra_config={PAYLOAD_KEY: self.payload.model_dump(mode="json")}
        )
        state = SimpleNamespace(vllm_config=SimpleNamespace(kv_transfer_config=transfer))
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(b"content-length", str(sum(map(len, chunks))).encode())],
            "app": SimpleNamespace(state=state),
        }
        messages: list[Message] = [
            {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
            for index, chunk in enumerate(chunks)
        ]
        messages.append({"type": "http.disconnect"})

        async def receive() -> Message:
            return messages.pop(0)

        async def send(message: Message) -> None:
            self.sent.append(message)

        await RequestValidation(self.app)(scope, receive, send)
        return int(self.sent[0]["status"]) if self.sent else 0

    async def post(self, **fields: Any) -> int:
        return await self.request(json.dumps({**CHAT, **fields}).encode())

    @property
    def error(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.sent[-1]["body"])["error"]
        return result


@pytest.fixture
def server() -> Server:
    return Server(payload())


async def test_an_ordinary_request_arrives_byte_for_byte(server: Server) -> None:
    body = b'{ "model": "m",\n "messages": [], "seed": 1e400, "x": "\\u00e9" }'
    assert await server.request(body) == 200
    assert server.bodies == [body]
    assert server.lengths == [str(len(body)).encode()]


async def test_a_body_in_chunks_arrives_whole(server: Server) -> None:
    assert await server.request(b'{"model":', b' "m"', b"}") == 200
    assert server.bodies == [b'{"model": "m"}']


async def test_the_client_going_away_is_still_seen_by_the_application(server: Server) -> None:
    await server.post()
    assert server.after == [{"type": "http.disconnect"}]


async def test_a_client_that_goes_away_in_its_body_is_not_answered(server: Server) -> None:
    status = await server.request()
    assert status == 0
    assert server.bodies == []


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b'"x"', b"\xff", b"--part\r\n\xff"])
async def test_what_is_no_json_object_is_left_to_vllms_own_answer(
    server: Server, body: bytes
) -> None:
    assert await server.request(body) == 200
    assert server.bodies == [body]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100000, "nested too deeply"),
        (b'{"max_tokens": ' + b"9" * 5000 + b"}", "a number of more than 4300 digits"),
        (b'{"prompt": "\\ud800"}', "prompt has half of a surrogate pair"),
        (b'{"prompt": "\xed\xa0\x80"}', "prompt has half of a surrogate pair"),
        ('{"prompt": "\ud800"}'.encode("utf-16", "surrogatepass"), "prompt has half"),
        (b'{"vllm_xargs": {"oasis": {}, "x": ["\\udfff"]}}', "vllm_xargs.x[0] has half"),
        (b'{"vllm_xargs": {"\\udfff": 1}}', "vllm_xargs has half"),
        (b'{"\\udfff": 1}', "the request has half"),
        (b'{"\\udfff": "\\udfff"}', "has half"),
    ],
    ids=str,
)
async def test_json_that_cannot_be_carried_on_is_refused(
    server: Server, body: bytes, said: str
) -> None:
    assert await server.request(body) == 400
    assert said in server.error["message"]
    assert server.bodies == []


async def test_whole_surrogate_pairs_are_characters(server: Server) -> None:
    body = b'{"prompt": "\\ud83d\\ude00 \xf0\x9f\x98\x80"}'
    assert await server.request(body) == 200
    assert server.bodies == [body]


@pytest.mark.parametrize("path", ["/v1/completions", "/invocations", "//v1/completions/", "/new"])
async def test_malformed_transfer_parameters_are_refused_on_every_path(
    server: Server, path: str
) -> None:
    body = json.dumps({"kv_transfer_params": {"do_remote_prefill": "yes"}}).encode()
    assert await server.request(body, path=path) == 400
    assert server.bodies == []


async def test_other_methods_are_not_touched(server: Server) -> None:
    body = b'{"kv_transfer_params": 1}'
    assert await server.request(body, method="GET") == 200
    assert server.bodies == [body]


async def test_the_error_has_openais_shape_and_one_sentence(server: Server) -> None:
    await server.post(kv_transfer_params={**TO_DECODE, "remote_port": "8600"})
    assert server.error == {
        "message": "kv_transfer_params.remote_port must be a valid integer, not '8600'",
        "type": "BadRequestError",
        "param": "kv_transfer_params",
        "code": 400,
    }


async def test_a_rule_over_several_parameters_names_them(server: Server) -> None:
    await server.post(kv_transfer_params={"do_remote_prefill": True})
    assert server.error["message"].startswith(
        "kv_transfer_params: do_remote_prefill is true without remote_engine_id, "
    )


@pytest.mark.parametrize("value", [3, "x", [], [{}], True])
async def test_transfer_parameters_that_are_no_object_are_refused(
    server: Server, value: object
) -> None:
    assert await server.post(kv_transfer_params=value) == 400
    assert server.error["message"].startswith("kv_transfer_params must be ")


@pytest.mark.parametrize("role", ["prefill", "both"])
async def test_the_routers_prefill_request_passes(role: str) -> None:
    server = Server(payload(role=role))
    assert await server.post(kv_transfer_params=TO_PREFILL) == 200


@pytest.mark.parametrize("role", ["decode", "both"])
async def test_the_routers_decode_request_passes(role: str) -> None:
    server = Server(payload(role=role))
    assert await server.post(kv_transfer_params=TO_DECODE) == 200


@pytest.mark.parametrize(
    ("role", "params", "other"),
    [("prefill", TO_DECODE, "a decode engine"), ("decode", TO_PREFILL, "a prefill engine")],
)
async def test_a_request_for_the_other_role_is_sent_there(
    role: str, params: dict[str, Any], other: str
) -> None:
    server = Server(payload(role=role))
    assert await server.post(kv_transfer_params=params) == 400
    assert f"send the request to {other}" in server.error["message"]


async def test_options_as_text_pass_unchanged(server: Server) -> None:
    body = json.dumps({**CHAT, "vllm_xargs": {"oasis": '{"mode": "dense"}'}}).encode()
    assert await server.request(body) == 200
    assert server.bodies == [body]


async def test_options_as_an_object_become_the_text_that_vllm_takes(server: Server) -> None:
    assert await server.post(vllm_xargs={"oasis": {"mode": "dense"}, "other": 1}) == 200
    (body,) = server.bodies
    request = json.loads(body)
    assert json.loads(request.pop("vllm_xargs").pop("oasis")) == {"mode": "dense"}
    assert request == CHAT
    assert server.lengths == [str(len(body)).encode()]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode": "fast"}, "vllm_xargs.oasis.mode must be 'auto', 'sparse' or 'dense', not 'fast'"),
        ("fast", 'vllm_xargs.oasis is not JSON; write it like {"mode": "dense"}'),
        (
            {"budget_tokens": 4096},
            "vllm_xargs.oasis.budget_tokens is 4096 and this engine is configured for 2048; "
            "ask for no more than that",
        ),
    ],
)
async def test_wrong_options_are_refused(server: Server, options: object, sentence: str) -> None:
    assert await server.post(vllm_xargs={"oasis": options}) == 400
    assert server.error["message"] == sentence
    assert server.error["param"] == "vllm_xargs"


@pytest.mark.parametrize("value", [None, "x", 5, ["x"], {}, TO_PREFILL], ids=str)
@pytest.mark.parametrize("name", ["kv_transfer_params", "ec_transfer_params"])
async def test_a_field_of_the_request_is_none_of_its_extra_arguments(
    server: Server, name: str, value: object
) -> None:
    """vLLM would take it for the field, and it passes by the checks of that."""
    assert await server.post(vllm_xargs={name: value}) == 400
    assert server.error["message"] == (
        f"vllm_xargs.{name}: {name} is a field of the request itself; put it beside vllm_xargs"
    )


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"oasis": {"mode": "fast"}}, "sampling_params.extra_args.oasis.mode must be"),
        ({"oasis": {"budget_tokens": 4096}}, "sampling_params.extra_args.oasis.budget_tokens is"),
        ({"kv_transfer_params": "x"}, "sampling_params.extra_args.kv_transfer_params: "),
    ],
)
async def test_a_request_of_tokens_is_checked_too(
    server: Server, extra: dict[str, Any], said: str
) -> None:
    assert await server.post(token_ids=[1], sampling_params={"extra_args": extra}) == 400
    assert server.error["message"].startswith(said)


@pytest.mark.parametrize("params", [None, [], {}, {"extra_args": [1]}, {"extra_args": {"x": 1}}])
async def test_other_parameters_of_a_request_of_tokens_are_vllms_business(
    server: Server, params: object
) -> None:
    assert await server.post(sampling_params=params) == 200


async def test_a_budget_up_to_the_engines_own_passes(server: Server) -> None:
    assert await server.post(vllm_xargs={"oasis": {"budget_tokens": 2048}}) == 200


async def test_options_in_the_wrong_place_are_not_silently_ignored(server: Server) -> None:
    assert await server.post(oasis={"mode": "dense"}) == 400
    assert "belongs under vllm_xargs" in server.error["message"]


async def test_a_request_that_vllm_has_rendered_says_its_transfer_twice(server: Server) -> None:
    again = {"extra_args": {"kv_transfer_params": TO_DECODE}}
    assert await server.post(kv_transfer_params=TO_DECODE, sampling_params=again) == 200
    other = Server(payload())
    assert await other.post(kv_transfer_params=None, sampling_params=again) == 400


@pytest.mark.parametrize("extra", [None, "x", [1], {"other": 1}])
async def test_other_vllm_xargs_are_vllms_business(server: Server, extra: object) -> None:
    assert await server.post(vllm_xargs=extra) == 200


async def test_a_body_beyond_the_bound_is_refused_without_reading_on(server: Server) -> None:
    chunk = b" " * (MAX_BODY_BYTES // 2 + 1)
    assert await server.request(chunk, chunk, chunk) == 413
    assert server.error["code"] == 413
    assert server.bodies == []


TEXT = st.text(st.characters())
"""With halves of surrogate pairs, which JSON can say."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(["kv_transfer_params", "vllm_xargs", "oasis", "model", "prompt"])
PARAMS = st.dictionaries(st.sampled_from([*TO_DECODE, "x"]), JSON)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, JSON | PARAMS | st.fixed_dictionaries({"oasis": JSON | PARAMS})))
def test_any_json_is_either_refused_or_passed_on(request: dict[str, Any]) -> None:
    """Nothing but RequestError comes out, whatever comes in."""
    try:
        passed = checked_body(json.dumps(request).encode(), payload())
    except RequestError:
        return
    again = json.loads(passed)
    json.dumps(again, ensure_ascii=False).encode()
    assert {key for key in again if key != "vllm_xargs"} == {
        key for key in request if key != "vllm_xargs"
    }
