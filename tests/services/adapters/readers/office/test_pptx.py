"""Slides without a title placeholder: which text box is their heading."""

from __future__ import annotations

from io import BytesIO

import pptx
import pytest
from pptx.util import Inches, Pt

from services.adapters.readers.documents import parse_document


@pytest.mark.parametrize(
    ("boxes", "title"),
    [
        ([("渠道策略", 32, 0), ("先做社区，再做商超。", 16, 2)], "渠道策略"),
        ([("渠道策略", 32, 0), ("三月完成样机", 28, 2)], None),  # hardly larger
        ([("渠道策略", 32, 4), ("三月完成样机", 16, 5)], None),  # not near the top
        ([("三月完成样机", 16, 0), ("渠道策略", 32, 1)], None),  # not the first
        ([("85%", 60, 0), ("of all customers stay", 16, 2)], None),
        ([("We deliver within three days.", 32, 0), ("Ask Ines.", 16, 2)], None),  # a sentence
        ([("渠道策略", 32, 0)], None),  # all that the slide has
        ([("渠道策略", 32, 0), ("a box of the usual size", None, 2)], "渠道策略"),
    ],
)
def test_a_text_box_is_a_slides_title_if_it_clearly_is(
    boxes: list[tuple[str, int | None, int]], title: str | None
) -> None:
    """`boxes`: text, size, distance from the top in inches. Discriminates: the first text in any case."""
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[5])  # with a title, which stays empty
    for text, size, top in boxes:
        frame = slide.shapes.add_textbox(0, Inches(top), Inches(9), Inches(1)).text_frame
        frame.text = text
        frame.paragraphs[0].runs[0].font.size = Pt(size) if size else None
    saved = BytesIO()
    slides.save(saved)
    (section,) = parse_document("a.pptx", saved.getvalue()).sections
    others = [text for text, *_ in boxes if text != title]
    assert (section.heading, section.text) == ((title,) if title else (), "\n\n".join(others))


def test_a_list_in_a_placeholder_may_be_larger_than_a_text_box() -> None:
    """Discriminates: a placeholder's size, which its layout defines, taken for that of a text box."""
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[1])
    slide.placeholders[1].text = "三月完成样机"
    frame = slide.shapes.add_textbox(0, 0, Inches(9), Inches(1)).text_frame
    frame.text = "内部资料"
    frame.paragraphs[0].runs[0].font.size = Pt(28)
    saved = BytesIO()
    slides.save(saved)
    (section,) = parse_document("a.pptx", saved.getvalue()).sections
    assert (section.heading, section.text) == ((), "内部资料\n\n三月完成样机")
