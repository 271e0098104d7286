"""Old turns deleted at their limit, with everything that remembers them."""
