"""One turn: run, gather, build the prompt, answer, cite; its stream, live or replayed."""
