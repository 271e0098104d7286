"""A folder of a thousand files as an office has them, and the trial that reads it in."""
