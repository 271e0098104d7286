"""Commands: `wenmai`, and the modules that are also run by name."""
