"""The MCP server for agents: its tools, and the route to reach it."""
