"""The page as a whole: its states, languages, keys, sizes, accessibility."""
