"""The list of conversations, and the actions on one."""
