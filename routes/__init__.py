"""HTTP: the application, its chat route, and what all routes share; ask it for `create_app`, or to serve."""
