"""A server that is killed and started again, its model and its client, and the acknowledged turns."""
