"""The imports of a document parser process, in order, done before it is forked."""

from __future__ import annotations

from importlib import import_module

from config.deferred import defer_packages

defer_packages()
for _name in (
    "services.knowledge.parsing.child",
    "services.knowledge.chunking.splitter",
    "services.adapters.readers.documents",
):
    import_module(_name)
