"""Plain text: one section."""

from __future__ import annotations

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from services.adapters.decoding import decode
from services.adapters.outline import section_document


class PlainTextReader(BaseReader):
    def load_data(self, content: bytes) -> list[Document]:
        return [section_document(decode(content))]
