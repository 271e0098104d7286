"""Turns files into parsed documents: one reader per format, and the checks that bytes pass first."""
