"""Models as a turn uses them: calls with deadlines, windows, embedding off the loop, text filters."""
