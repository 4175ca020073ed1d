"""Three tasks of 6,000 tokens with their answers, recorded once and kept in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from bench.plain import llama, recording
from bench.plain.recording import Recording, record
from bench.plain.weights import load
from examples.ask import QUESTION, logbook
from testbed import cache
from tests.engine.prompts import Prose

PROMPT, ANSWER = 6000, 128
TAIL = 1


def prompts(model: Path) -> dict[str, list[int]]:
    """Text that goes on, a summary of it, and a question about a long list."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    prose = Prose.of(model)

    def chat(text: str) -> list[int]:
        turns = (
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            f"Face<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        )
        tokens: list[int] = tokenizer.encode(turns, add_special_tokens=False).ids
        return tokens

    document = tokenizer.decode(list(prose.passage(20, PROMPT - 100)))
    questions = (chat(f"{logbook(n)}\n\n{QUESTION}") for n in range(200, 0, -2))
    return {
        "prose": list(prose.passage(3, PROMPT)),
        "summary": chat(f"{document}\n\nSummarise the text above in detail."),
        "question": next(tokens for tokens in questions if len(tokens) <= PROMPT),
    }


def recordings(model: Path) -> Iterator[tuple[str, Recording]]:
    """Tasks by name; those that are not in the cache are recorded first, in minutes."""
    code = [Path(module.__file__ or "") for module in (llama, recording)]
    made_by = cache.fingerprint(Path(__file__), model / "config.json", *code)
    for name, prompt in prompts(model).items():
        path = cache.root() / "recordings" / f"{name}-{made_by}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            print(f"recording {name}: {len(prompt)} tokens", flush=True)
            record(load(model), prompt, ANSWER, TAIL).save(path)
        yield name, Recording.load(path)
