"""Settings, logging, and the fixed prompt texts."""
