from __future__ import annotations

import pytest
from llama_index.core.readers.base import BaseReader

from core.errors import UnsupportedMediaError
from core.formats import FORMATS, DocumentFormat, format_of, is_supported, language_of
from services.adapters.readers.documents import READERS


def test_every_format_has_an_ending_and_a_reader() -> None:
    assert {*FORMATS.values()} == {*DocumentFormat} == {*READERS}


@pytest.mark.parametrize("document_format", [*DocumentFormat])
def test_every_reader_exists_and_is_a_llama_index_reader(document_format: DocumentFormat) -> None:
    from importlib import import_module

    module, name = READERS[document_format]
    assert issubclass(getattr(import_module(f"services.adapters.readers.{module}"), name), BaseReader)


@pytest.mark.parametrize(
    ("file_name", "better"),
    [("通知.DOC", "DOCX"), ("a.wps", "DOCX"), ("b.rtf", "DOCX"), ("c.xls", "XLSX"), ("d.et", "XLSX"),
     ("e.ppt", "PPTX"), ("f.odp", "PPTX"), ("g.mobi", "EPUB"), ("h.msg", "EML")],
)  # fmt: skip
def test_an_old_or_foreign_format_is_refused_with_what_to_save_it_as(file_name: str, better: str) -> None:
    with pytest.raises(UnsupportedMediaError, match=f"save it as {better}"):
        format_of(file_name)
    assert not is_supported(file_name)


def test_source_files_know_their_language() -> None:
    assert (format_of("main.RS"), language_of("main.RS")) == (DocumentFormat.CODE, "rust")
    assert language_of("notes.txt") == language_of("Makefile") == ""
