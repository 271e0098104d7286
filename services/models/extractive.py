"""The answerer without a model: quotes the key passages of the prompt's own knowledge, never invents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

from llama_index.core.base.llms.types import LLMMetadata

from core.citing.passages import key_spans, presence
from core.llm_wrapper import LLMDelta
from core.prompt.layouts import MESSAGES, PROMPT, Exchange, ReadBack, read_back, read_flat
from core.prompt.messages import Message, Passage, Role, parse_knowledge, scope_in_prompt
from core.relevance.query import Query, QueryForm, follow_up_weight, joined_wordings
from core.relevance.sparse import SparseTerms, WeightedTerm, question_terms
from core.text import is_mostly_chinese
from services.models.lean import LeanLLM

MODEL_NAME = "extractive"
MAX_QUOTES = 3
WORTH_QUOTING = 0.7  # of the best quote's share of the question's terms, and of the best relevance
PIECE_CHARS = 24

_INTRO = {True: "资料中的相关内容：", False: "From the documents:"}
_NOTHING = {
    True: "资料中没有找到能回答这个问题的内容。可以换一种说法，或先添加相关文档。",
    False: "The documents hold nothing that answers this. Try other words, or add documents about it.",
}
_NOTHING_WITHIN = {
    True: "在所限定的范围内（{}）没有找到能回答这个问题的内容。范围之外没有检索，可以放宽范围再问。",
    False: "Within the limits of this question ({}), the documents hold nothing that answers it. Nothing "
    "beyond them was searched: widen them and ask again.",
}


class ExtractiveLLM(LeanLLM):
    """A LlamaIndex LLM that reads the knowledge blocks of its prompt and quotes what answers."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name=MODEL_NAME, is_chat_model=True, context_window=32_768)

    @classmethod
    def class_name(cls) -> str:
        return "ExtractiveLLM"

    async def stream_deltas(
        self, messages: Sequence[Message], exchange: Exchange, *, flat: bool = False
    ) -> AsyncGenerator[LLMDelta, None]:
        exchange.note_messages(messages, PROMPT if flat else MESSAGES)
        system = "\n\n".join(message.content for message in messages[:-1] if message.role is Role.SYSTEM)
        first = messages[0].content
        text = answer(read_flat(first) if flat else read_back(messages), scope_in_prompt(system or first))
        for start in range(0, len(text), PIECE_CHARS):
            yield LLMDelta(text[start : start + PIECE_CHARS])
        exchange.finish_reason = "stop"
        yield LLMDelta(finish_reason="stop")


def answer(prompt: ReadBack, scope: str = "") -> str:
    """Quotes from the prompt's knowledge blocks, best first; a plain statement when there are none.

    `scope` is what the search was limited to, as the prompt says it.
    """
    asked = prompt.question
    passages = parse_knowledge(prompt.knowledge)
    chinese = is_mostly_chinese(asked)
    if not passages:
        return _NOTHING_WITHIN[chinese].format(scope) if scope else _NOTHING[chinese]
    own = [passage for passage in passages if is_mostly_chinese(passage.text) == chinese]
    if own and own[0].relevance >= WORTH_QUOTING * passages[0].relevance:
        passages = own  # a quote in another language only where the reader's has none
    wordings = [(asked, 1.0), *joined_wordings(asked, prompt.previous)]
    forms = tuple(QueryForm(text, [], SparseTerms([], []), weight) for text, weight in wordings)
    quotes = "\n\n".join(_block(quote, index) for index, quote in _quotes(Query(asked, forms), passages))
    return f"{_INTRO[chinese]}\n\n{quotes}"


def _quotes(query: Query, passages: Sequence[Passage]) -> Iterator[tuple[int, str]]:
    """The first passage, and at most two more that say about as much of what was asked."""
    leans = len(query.forms) > 1 and follow_up_weight(query.question) > 0
    terms = question_terms(query.forms[1].text if leans else query.question)
    spans = key_spans(query, [passage.text for passage in passages])
    quoted = [
        (passage.index, passage.text[span.start : span.end] if span else "")
        for passage, span in zip(passages, spans, strict=True)
    ]
    values = [
        _share(terms, quote) * (passage.relevance >= WORTH_QUOTING * passages[0].relevance)
        for passage, (_, quote) in zip(passages, quoted, strict=True)
    ]
    shown: set[str] = set()
    for (index, quote), value in zip(quoted, values, strict=True):
        worth = not shown or value >= WORTH_QUOTING * max(values) > 0
        if quote and worth and quote not in shown and len(shown) < MAX_QUOTES:
            shown.add(quote)
            yield index, quote


def _share(terms: Sequence[WeightedTerm], quote: str) -> float:
    here = presence(terms, quote)
    return sum(term.weight for term, present in zip(terms, here, strict=True) if present)


def _block(quote: str, index: int) -> str:
    lines = [f"> {line}".rstrip() for line in quote.splitlines()]
    return "\n".join(lines) + f" [{index}]"
