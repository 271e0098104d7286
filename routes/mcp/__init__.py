"""The door for agents: the tools of an MCP server, and the route it is reached by."""
