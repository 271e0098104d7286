"""Model Context Protocol servers that provide tools, over standard streams and over HTTP."""
