"""PPTX: one section per slide, its number as the page and its title as the heading; notes are kept.

Hidden slides are read, since whoever opens the file sees them. Pictures, comments and animations are not.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from io import BytesIO

import pptx
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document
from lxml.etree import XMLSyntaxError
from pptx.exc import PythonPptxError
from pptx.slide import Slide

from core.errors import UnreadableDocumentError
from services.adapters.office_parts import saved
from services.adapters.outline import section_document, with_dates
from services.adapters.pptx_shapes import blocks, clean, text_block

_PICTURE = "/image"  # how the type of a slide's relation to a picture ends
_PICTURES_ONLY = (
    "The file has no text that can be read: pictures are not read. If there is text in them, run text "
    "recognition (OCR) on it and add that."
)
_CHINESE = re.compile("[\u4e00-\u9fff]")


class PptxReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        try:
            slides = pptx.Presentation(BytesIO(content)).slides
            documents = [_section(number, slide) for number, slide in enumerate(slides, start=1)]
            has_pictures = any(map(_has_picture, slides))
        except (PythonPptxError, zipfile.BadZipFile, XMLSyntaxError) as error:
            raise UnreadableDocumentError("The file is not a valid PPTX document.") from error
        if has_pictures and not any(document.text.strip() for document in documents):
            raise UnreadableDocumentError(_PICTURES_ONLY, code="no_text")
        return with_dates(documents, saved=[saved(content)])


def _has_picture(slide: Slide) -> bool:
    return any(relation.reltype.endswith(_PICTURE) for relation in slide.part.rels.values())


def _section(number: int, slide: Slide) -> Document:
    title_shape = slide.shapes.title
    title = clean(title_shape.text_frame.text) if title_shape is not None else ""
    others = [
        shape for shape in slide.shapes if title_shape is None or shape.shape_id != title_shape.shape_id
    ]
    said = [*filter(None, blocks(others)), *_notes(slide)]
    return section_document("\n\n".join(said) or title, [title] if title else [], number)


def _notes(slide: Slide) -> Iterator[str]:
    frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    notes = text_block(frame) if frame is not None else ""
    if notes:
        yield f"备注：{notes}" if _CHINESE.search(notes) else f"Notes: {notes}"
