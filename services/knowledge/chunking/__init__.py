"""A parsed document cut into chunks along its structure, within the embedding's window."""
