"""Servers of the Model Context Protocol that are asked for tools, over standard streams and over HTTP."""
