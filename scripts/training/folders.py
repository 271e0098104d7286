"""The questions of people's own folders, searched through the product."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from api.search.handler import SearchRequest
from core.formats import supported_files
from core.knowledge import Candidate, Upload
from scripts.evaluation.in_process import Services, open_services
from scripts.evaluation.judging import Hit, TurnQuestion, load_questions
from scripts.evaluation.sets import TURNS_FILE
from scripts.training.judged import Search, Searched

SPLIT = "dev"  # the other half is for judging what was learnt


async def collect_folders(folder: Path, cache: Path) -> AsyncIterator[Searched]:
    """Of every folder in `folder` that has documents and questions."""
    names = _names(folder)
    async with open_services(cache) as services:
        search = Search(services.container)
        for name in tqdm(names, desc="folders"):
            await _read_in(services, folder / name / "documents", name)
            for question in load_questions(folder / name, SPLIT):
                query, candidates, near = await search(_request(question, name))
                kind = "answerable" if question.answerable else "unanswerable"
                labels = _labels(question, candidates)
                gold = max(1, int(labels.sum()))
                yield Searched(name, kind, query, tuple(candidates), labels, gold, near, is_of_folder=True)


def _names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob(f"*/{TURNS_FILE}"))


async def _read_in(services: Services, documents: Path, owner: str) -> None:
    for path in supported_files(documents):
        await services.add(Upload(owner, path.name, path.read_bytes()))


def _request(question: TurnQuestion, owner: str) -> SearchRequest:
    asked = tuple(message.text for message in question.history if message.role == "user")
    last = question.history[-1].text if question.history else ""
    return SearchRequest(question.question, owner, previous_questions=asked, last_answer=last)


def _labels(
    question: TurnQuestion, candidates: Sequence[Candidate]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    right = [
        question.answerable
        and question.is_answered_by(
            Hit(
                each.chunk.document_id, 0.0, each.chunk.indexed_text, each.chunk.heading, each.chunk.file_name
            )
        )
        for each in candidates
    ]
    return np.array(right, dtype=float)
