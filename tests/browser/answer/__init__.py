"""An answer on the page: Markdown, thinking, errors, feedback."""
