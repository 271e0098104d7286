"""Models as turns use them: guarded calls, embedding off the event loop, the extractive answerer, filters."""
