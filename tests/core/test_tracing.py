from __future__ import annotations

from core.tracing import where

SECRET = "sk-what-was-asked"


def raise_below(depth: int, text: str) -> None:
    if depth:
        raise_below(depth - 1, text)
    raise ValueError(text)


def test_an_error_is_told_by_its_innermost_frames_and_never_by_its_words() -> None:
    """Discriminates: the outermost frames; the message or the source lines among them."""
    try:
        raise_below(7, SECRET)
    except ValueError as error:
        frames = where(error)
    assert len(frames) == 5
    assert [line.partition(":")[0] for line in frames] == [__name__] * 5
    assert all(line.endswith(" in raise_below") for line in frames)
    raised, called = (int(line.split(":")[1].split()[0]) for line in (frames[-1], frames[0]))
    assert raised == called + 1
    assert not any(SECRET in line or "ValueError(" in line for line in frames)


def test_an_error_that_was_never_raised_comes_from_nowhere() -> None:
    assert where(ValueError(SECRET)) == []
