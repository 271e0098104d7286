"""From what was found to what the model is told: prompt texts, budget, order, layout, manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.turn_request import TurnRequest
from config.prompt_library import Language, PromptLibrary
from core.budget import fit, fits_alone
from core.errors import QuestionTooLongError
from core.knowledge import Candidate
from core.manifest import ManifestPart, PromptManifest
from core.messages import Message, PromptTexts, assemble, lay_out
from core.text import is_mostly_chinese
from core.tokens import estimate_tokens
from core.turns import Turn
from services.llm_service import ModelEntry


@dataclass(frozen=True, slots=True)
class Prompt:
    """`messages` as they go over the wire; `candidates` that found room; the logical order's manifest."""

    messages: list[Message]
    candidates: tuple[Candidate, ...]
    manifest: PromptManifest
    dropped: int


class PromptBuilder:
    def __init__(self, library: PromptLibrary) -> None:
        self._library = library

    @staticmethod
    def language(question: str) -> Language:
        return "zh" if is_mostly_chinese(question) else "en"

    def check_fits(self, request: TurnRequest, model: ModelEntry) -> None:
        """Raises QuestionTooLongError when prompt and question alone exceed the model's window."""
        system = self._texts(request, has_knowledge=True).system
        if not fits_alone(system, request.question, model.context_window - model.max_tokens):
            raise QuestionTooLongError(
                f"question: too long for model {model.model_id!r} ({model.context_window} tokens)."
            )

    def build(
        self,
        request: TurnRequest,
        model: ModelEntry,
        relevant: Sequence[Turn],
        recent: Sequence[Turn],
        candidates: Sequence[Candidate],
    ) -> Prompt:
        texts = self._texts(request, has_knowledge=bool(candidates))
        budget = model.context_window - model.max_tokens
        fitted = fit(texts.system, relevant, recent, candidates, request.question, budget)
        ordered = assemble(texts, fitted.relevant, fitted.recent, fitted.candidates, request.question)
        return Prompt(
            lay_out(ordered, model.layout, texts),
            fitted.candidates,
            _manifest(model, ordered),
            fitted.dropped,
        )

    def _texts(self, request: TurnRequest, *, has_knowledge: bool) -> PromptTexts:
        language = self.language(request.question)
        return PromptTexts(
            system=self._library.system(language, has_knowledge=has_knowledge, thinking=request.thinking),
            relevant_intro=self._library.text("relevant_intro", language),
            knowledge_intro=self._library.text("knowledge_intro", language),
        )


def _manifest(model: ModelEntry, messages: Sequence[Message]) -> PromptManifest:
    parts = tuple(
        ManifestPart(
            part=message.part.value,
            role=message.role.value,
            tokens=estimate_tokens(message.content),
            turn_id=message.turn_id,
        )
        for message in messages
    )
    return PromptManifest(model.model_id, model.layout.value, parts)
