"""Files become parsed documents: each format's reader, and the checks that bytes pass first."""
