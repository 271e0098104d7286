"""The list of conversations and what is done to one."""
