"""The application and its commands, in this process or as one of their own."""
