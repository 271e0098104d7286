"""Every stored text embedded again with another model, beside the store that goes on serving."""
