"""A folder of a thousand files as found in an office, and the trial that ingests it."""
