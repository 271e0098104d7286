"""HTTP: the application, the chat route, what all routes share; `create_app` and `run_server` start it."""
