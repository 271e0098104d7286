"""Questions of clients that speak another form: where their message lists go on, and a model asked plain."""
