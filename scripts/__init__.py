"""Commands: `wenmai`, and the module names that others rely on."""
