"""Drivers and watchers of the page: servers, readers, proxies, pictures."""
