"""A turn as it goes out: framed events, the response that streams them, or one whole object of them."""
