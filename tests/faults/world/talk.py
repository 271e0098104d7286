"""A session as its client knows it: the reference for the operations."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Talk:
    """One session as its client knows it: parents, questions and answers by turn id, oldest turn first."""

    session_id: str
    parents: dict[str, str | None] = field(default_factory=dict)
    questions: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)

    def put(self, turn_id: str, parent: str | None, asked: str, answer: str) -> None:
        self.parents[turn_id] = parent
        self.questions[turn_id] = asked
        self.answers[turn_id] = answer

    def erase(self, turn_id: str) -> None:
        for book in (self.parents, self.questions, self.answers):
            del book[turn_id]

    def read_parent(self, turn_id: str) -> str | None:
        """Children of erased turns read as roots."""
        parent = self.parents[turn_id]
        return parent if parent in self.parents else None
