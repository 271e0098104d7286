"""What drives the page and watches it: servers, readers, proxies, pictures."""
